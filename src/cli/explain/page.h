/* SPDX-License-Identifier: BSD-3-Clause */
/* page.h - the page around the data: explain.html, explain.css and the scripts, embedded at build
 * time by embed.py. */
#ifndef ROPEWAY_CLI_EXPLAIN_PAGE_H
#define ROPEWAY_CLI_EXPLAIN_PAGE_H

#include <stddef.h>

extern const unsigned char rpwi_explain_page_head[], rpwi_explain_page_tail[];
extern const size_t rpwi_explain_page_head_len, rpwi_explain_page_tail_len;

#endif
