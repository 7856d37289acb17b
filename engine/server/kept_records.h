/* SPDX-License-Identifier: Apache-2.0 */
/* kept_records.h — the records of weights and documents that a running engine has taken
 * (live_records.h). The run journal keeps them, and a start appends them to the calendar. Also the
 * contract of the stream, which the records are a part of. */
#ifndef RP_SERVER_KEPT_RECORDS_H
#define RP_SERVER_KEPT_RECORDS_H

#include "server/engine.h"

/** "documents" or "weights". */
const char *rp_kept_record_kind(bool is_documents);
/** Fail for want of memory. */
int rp_kept_record_no_memory(struct rp_error *error);
/** `web=3 books=1`: the sources with a value, in the order of the config. The caller frees it. */
RP_MUST_CHECK int rp_kept_record_text(char **text, const struct rp_config *config,
                                      const struct rp_plan_record *record, struct rp_error *error);

/* The records of the run journal, oldest first. */
struct rp_records_ahead {
    struct rp_plan_record *list;
    uint32_t count;
};
/** Read the run journal's records; a fresh start has none. The caller frees them, also after an
 * error. */
RP_MUST_CHECK int rp_engine_list_records(const struct rp_engine *engine,
                                         struct rp_records_ahead *ahead, struct rp_error *error);
void rp_engine_free_records(struct rp_records_ahead *ahead);
/** Append the records that the calendar of the plan lacks, and log which hold. The plan is at the
 * row of the start. */
RP_MUST_CHECK int rp_engine_append_records(struct rp_engine *engine,
                                           const struct rp_records_ahead *ahead,
                                           struct rp_error *error);

/** Open the contract of a checkpoint, which may be NULL. False if it has no contract. */
bool rp_engine_contract_of(const struct rp_checkpoint *checkpoint, struct rp_contract *contract);
/** The stream record of the run before this start: the one given in the options, or the
 * checkpoint's, which `contract` holds. NULL: not known. */
const struct rp_record *rp_engine_records_of(const struct rp_engine *engine,
                                             const struct rp_checkpoint *checkpoint,
                                             struct rp_contract *contract);

/** Set the contract and the identity of the stream from the engine's plan. */
RP_MUST_CHECK int rp_engine_set_contract(struct rp_engine *engine, struct rp_error *error);

#endif
