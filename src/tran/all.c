/* all.c - the transports there are, in order of preference. */
#include "tran/tran.h"

#include <stddef.h>

const struct tran_ops *const tran_all[] = {&tran_shm, &tran_verbs, &tran_tcp, NULL};
