/* SPDX-License-Identifier: Apache-2.0 */
/* live_records.h — a record that a running engine takes: from some step on it has other weights
 * (`ringpack weights`), or more documents (`ringpack grow`). STREAM2.md sections 9.4, 12.5. */
#ifndef RP_SERVER_LIVE_RECORDS_H
#define RP_SERVER_LIVE_RECORDS_H

#include "server/engine.h"

/** Serve a request, JSON: {"step": STEP, "weights": {NAME: "DECIMAL", …}}, where a source without
 * one gets 0; or with "documents": {NAME: "NUMBER", …}, where a source without one keeps its own.
 * On success the record is in the run journal, and every plan of the engine has it; the caller
 * frees *answer. After a refusal nothing is changed. If the flow cannot be started again, or it is
 * not known whether the journal has the record, the engine has failed. */
RP_MUST_CHECK int rp_engine_set_record(struct rp_engine *engine, const uint8_t *body,
                                       uint64_t bytes, char **answer, struct rp_error *error);

#endif
