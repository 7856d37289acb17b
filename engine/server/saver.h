/* SPDX-License-Identifier: Apache-2.0 */
/* saver.h — the parts of one save, which save.c begins and ends: the list of its contents
 * (save_contents.c), and the threads that copy and write them (saver.c). */
#ifndef RP_SERVER_SAVER_H
#define RP_SERVER_SAVER_H

#include "server/engine.h"

/** Set saver->sources: the addresses of all contents, which the flow holds. */
void rp_engine_list_contents(struct rp_engine *engine);
/** The main function of a saver's thread; its argument is the `struct rp_saver`. */
void *rp_saver_main(void *saver);

#endif
