/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.h — the counts of each source up to a position, as a state token has them. */
#ifndef RP_PLAN_LEDGER_H
#define RP_PLAN_LEDGER_H

#include "plan/plan.h"

struct rp_ledger_source {
    uint64_t weight;    /* the plan's; in version 2, the one in force at the token, or 0 */
    uint64_t documents; /* taken since row 0 */
    /* Taken since the weights of the token apply; in version 2, since row 0 */
    uint64_t tokens;
    uint64_t of_epoch; /* documents of an epoch of the source */
    /* Epochs that all lanes have finished, and the last one that a lane has begun. */
    uint64_t finished_epochs, begun_epoch;
    /* Version 2: tokens taken that are in no row yet, and that will never be delivered; the pass of
     * begun_epoch */
    uint64_t waiting, withheld;
    uint32_t pass;
};

/** Fill in an entry for each source of the plan. The token must be of the plan's stream; the plan
 * does not change. Pieces that a lane holds back for later rows are included. Errors: as
 * rp_state_info, and -RP_E_MISMATCH. */
RP_MUST_CHECK int rp_plan_ledger(const struct rp_plan *plan, const void *token, size_t bytes,
                                 struct rp_ledger_source *sources, struct rp_error *error);

/** As above, from a token without a plan: weight, tokens, of_epoch and the epochs of its `count`
 * sources, which version 2 has in the order of their numbers. `documents` stays 0 in version 1,
 * because only the plan deals documents to lanes. Errors: as above. */
RP_MUST_CHECK int rp_state_ledger(const void *token, size_t bytes, struct rp_ledger_source *sources,
                                  uint32_t count, struct rp_error *error);

#endif
