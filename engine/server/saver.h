/* SPDX-License-Identifier: Apache-2.0 */
/* saver.h — the threads that copy and write a checkpoint. save.c begins a save and ends it. */
#ifndef RP_SERVER_SAVER_H
#define RP_SERVER_SAVER_H

#include "server/engine.h"

/** The main function of a saver's thread; its argument is the `struct rp_saver`. */
void *rp_saver_main(void *saver);

#endif
