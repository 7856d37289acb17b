/* SPDX-License-Identifier: Apache-2.0 */
/* save_contents.h — which prefetched rows a checkpoint keeps. */
#ifndef RP_SERVER_SAVE_CONTENTS_H
#define RP_SERVER_SAVE_CONTENTS_H

#include "server/engine.h"

/** Set the saver's sources. The flow must hold them already, so that they stay as they are. */
void rp_engine_list_contents(struct rp_engine *engine);

#endif
