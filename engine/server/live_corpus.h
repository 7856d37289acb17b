/* SPDX-License-Identifier: Apache-2.0 */
/* live_corpus.h — the corpus as its index is now, in a running engine (`ringpack grow`): opened
 * beside the present one, with plans of its own, and put in its place once a record names it. */
#ifndef RP_SERVER_LIVE_CORPUS_H
#define RP_SERVER_LIVE_CORPUS_H

#include "server/engine.h"

struct rp_grown {
    struct rp_corpus *corpus; /* NULL: the present one has all documents that are wanted */
    struct rp_plan *plan, *probe, *planner;
};

/** Open the index again, if some source is to have more documents than now (0: as it has). The
 * plans follow the engine's. -RP_E_USAGE: there is no index, or the engine keeps objects; errors of
 * an index, and -RP_E_CONFIG if it has too few documents. */
RP_MUST_CHECK int rp_engine_open_grown(struct rp_grown *grown, const struct rp_engine *engine,
                                       const uint64_t *documents, struct rp_error *error);
void rp_grown_close(struct rp_grown *grown);

/** Put it in the place of the engine's corpus, plans and flow. The flow is stopped, and grown->plan
 * at the row of the next one. After an error the engine has failed. */
RP_MUST_CHECK int rp_engine_adopt_grown(struct rp_engine *engine, struct rp_grown *grown,
                                        struct rp_error *error);

#endif
