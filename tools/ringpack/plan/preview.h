/* SPDX-License-Identifier: Apache-2.0 */
/* preview.h — the first row of `ringpack plan`: row 0, or the row of a state token, with the config
 * as it is now.
 *
 * A token is compared with the config as a start of an engine compares it (server/start.c), so a
 * refusal has the same words. Other weights are the exception: a start takes them only with
 * --accept-weights, and a preview of them is the purpose here, so they are planned, and printed. */
#ifndef RP_TOOLS_PREVIEW_H
#define RP_TOOLS_PREVIEW_H

#include <jansson.h>

#include "config/config.h"
#include "plan/plan.h"

struct rp_preview {
    const char *path; /* given by --state; NULL = row 0 */
    char *file;       /* that had the token: `path`, or the newest checkpoint of that directory */
    uint64_t row;
    struct rp_plan_counts counts; /* counts of the rows before */
    bool has_other_weights, has_other_epochs;
    struct rp_error weights; /* how the weights differ */
    uint64_t epochs;         /* num_epochs of the token */
};

/** Go to the row of the token. `plan` is at row 0. Errors: as rp_cmd_read_state and
 * rp_plan_resume. */
RP_MUST_CHECK int rp_preview_begin(struct rp_preview *preview, struct rp_plan *plan,
                                   const struct rp_config *config, struct rp_error *error);
void rp_preview_close(struct rp_preview *preview);

/** Counts of the rows from the start on. `counts` cover the whole stream; cuts and capped rows are
 * counted from the start on in any case, and buffered tokens are those at the end. */
void rp_preview_subtract(const struct rp_preview *preview, struct rp_plan_counts *counts);

/** Lines of the report; none at row 0. */
void rp_preview_print(const struct rp_preview *preview, const struct rp_config *config);
/** The same as fields of a JSON object. */
void rp_preview_json(const struct rp_preview *preview, json_t *report);

#endif
