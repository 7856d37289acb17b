/* SPDX-License-Identifier: Apache-2.0 */
/* save_contents.h — which prefetched rows a checkpoint keeps. */
#ifndef RP_SERVER_SAVE_CONTENTS_H
#define RP_SERVER_SAVE_CONTENTS_H

#include "server/engine.h"

/** Set the saver's sources. Behind a hold, which keeps them as they are. */
void rp_engine_list_contents(struct rp_engine *engine);

#endif
