/* SPDX-License-Identifier: Apache-2.0 */
/* live_corpus.h — a grown corpus in a running engine (`ringpack grow`): the index is opened a
 * second time, with plans over the new corpus, and replaces the engine's once a record names its
 * documents. */
#ifndef RP_SERVER_LIVE_CORPUS_H
#define RP_SERVER_LIVE_CORPUS_H

#include "server/engine.h"

struct rp_grown {
    struct rp_corpus *corpus; /* NULL: the present one has all documents that are wanted */
    struct rp_plan *plan, *probe, *planner;
};

/** Open the index again, if documents[s] is more than source s has now, for any s. The plans have
 * the calendar of the engine's. -RP_E_USAGE: there is no index, or the engine caches objects;
 * errors of an index, and -RP_E_CONFIG if it has too few documents. */
RP_MUST_CHECK int rp_engine_open_grown(struct rp_grown *grown, const struct rp_engine *engine,
                                       const uint64_t *documents, struct rp_error *error);
void rp_grown_close(struct rp_grown *grown);

/** Replace the engine's corpus and plans by the grown ones, and its flow by a new one. The flow is
 * stopped, and grown->plan is at the row of the next start. After an error the engine has failed.
 */
RP_MUST_CHECK int rp_engine_adopt_grown(struct rp_engine *engine, struct rp_grown *grown,
                                        struct rp_error *error);

#endif
