/* SPDX-License-Identifier: BSD-3-Clause */
/* record.h - what the programs beside it call: notes where it was called from, two callers up, and
 * prints a report of that, as the checker would. */
void record(void);
void print_report(void);
