/* SPDX-License-Identifier: BSD-3-Clause */
/* status.h - which status an errno is. */
#ifndef ROPEWAY_MSG_STATUS_H
#define ROPEWAY_MSG_STATUS_H

int msg_status_of_errno(int rc);

#endif
