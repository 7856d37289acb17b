/* SPDX-License-Identifier: Apache-2.0 */
/* kept_records.h — the weights and documents that a run took while it ran, as its journal has them:
 * a start appends them to the calendar. */
#ifndef RP_SERVER_KEPT_RECORDS_H
#define RP_SERVER_KEPT_RECORDS_H

#include "server/engine.h"

/** `web=3 books=1`: the sources with a value, in the order of the config. The caller frees it. */
RP_MUST_CHECK int rp_kept_record_text(char **text, const struct rp_config *config,
                                      const struct rp_plan_record *record, struct rp_error *error);

/* The records that the run journal has, in the order of their writing. */
struct rp_records_ahead {
    struct rp_plan_record *list;
    uint32_t count;
};
/** At a start: read them. None if the start is fresh. The caller frees them, also after an error.
 */
RP_MUST_CHECK int rp_engine_list_records(const struct rp_engine *engine,
                                         struct rp_records_ahead *ahead, struct rp_error *error);
void rp_engine_free_records(struct rp_records_ahead *ahead);
/** With the plan at the row of the start: append those that it does not have, and log which hold.
 */
RP_MUST_CHECK int rp_engine_take_records(struct rp_engine *engine,
                                         const struct rp_records_ahead *ahead,
                                         struct rp_error *error);

/** The contract of a checkpoint (NULL: none); false: it has none. */
bool rp_engine_contract_of(const struct rp_checkpoint *checkpoint, struct rp_contract *contract);
/** The stream record of the run so far, as a start knows it; NULL: it does not. */
const struct rp_record *rp_engine_records_of(const struct rp_engine *engine,
                                             const struct rp_checkpoint *checkpoint,
                                             struct rp_contract *contract);

/** Describe the stream of the engine's plan: the contract and its identity. */
RP_MUST_CHECK int rp_engine_describe(struct rp_engine *engine, struct rp_error *error);

#endif
