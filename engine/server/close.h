/* SPDX-License-Identifier: Apache-2.0 */
/* close.h — the end of an engine. */
#ifndef RP_SERVER_CLOSE_H
#define RP_SERVER_CLOSE_H

#include "server/engine.h"

/** Close all that the engine has opened, however far that went. If the disk of the token files
 * hangs, what its threads use stays until the process ends. */
void rp_engine_close(struct rp_engine *engine);

#endif
