/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c — version 1: the loop over rows, and the end of the stream; packing_*.c fills a row. Calls
 * on a plan of version 2 continue in v2/facade.c. token*.c has the state token. */
#include "plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/mem.h"
#include "plan/link.h"
#include "plan/packing.h"
#include "plan/plan_state.h"

/* ---- opening --------------------------------------------------------------------------------- */

static int check_range(const char *name, uint64_t value, uint64_t least, uint64_t most,
                       struct rp_error *error)
{
    if (value >= least && value <= most)
        return 0;
    return rp_fail(error, -RP_E_CONFIG, NULL, "%s is %" PRIu64 "; expected %" PRIu64 " to %" PRIu64,
                   name, value, least, most);
}

/* Set unused parameters to 0, so that they make no difference, and check the others. */
static int check_config(struct rp_plan_config *config, struct rp_error *error)
{
    if (config->shuffle != RP_SHUFFLE_BLOCK)
        config->block_documents = config->window_blocks = 0;
    if (config->packing == RP_PACKING_CONCAT) {
        config->window = 0;
        config->row_gap = RP_ROW_GAP_PAD;
    }
    const struct {
        const char *name;
        uint64_t value, least, most;
        bool used;
    } checks[] = {
        {"seq_len", config->seq_len, 1, RP_SEQ_LEN_MAX, true},
        {"shuffle", config->shuffle, 0, RP_SHUFFLE_BLOCK, true},
        {"block_documents", config->block_documents, 1, UINT32_MAX,
         config->shuffle == RP_SHUFFLE_BLOCK},
        {"window_blocks", config->window_blocks, 1, UINT32_MAX,
         config->shuffle == RP_SHUFFLE_BLOCK},
        {"packing", config->packing, 0, RP_PACKING_BEST_FIT, true},
        {"window", config->window, 1, RP_WINDOW_MAX, config->packing != RP_PACKING_CONCAT},
        {"row_gap", config->row_gap, 0, RP_ROW_GAP_SPLIT, true},
        {"long_doc", config->long_doc, 0, RP_LONG_DOC_DROP, true},
        {"max_docs_per_row", config->max_docs_per_row, 1, config->seq_len, true},
        {"lanes", config->lanes, 1, RP_LANES_MAX, true},
        {"num_epochs", config->num_epochs, 0, RP_EPOCHS_MAX, true},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(checks); i++) {
        int failed = checks[i].used ? check_range(checks[i].name, checks[i].value, checks[i].least,
                                                  checks[i].most, error)
                                    : 0;
        if (failed < 0)
            return failed;
    }
    return 0;
}

static int check_sources(const struct rp_plan_config *config, const struct rp_plan_source *sources,
                         uint32_t source_count, struct rp_error *error)
{
    int failed = check_range("number of sources", source_count, 1, RP_SOURCES_MAX, error);
    for (uint32_t s = 0; s < source_count && failed == 0; s++) {
        failed = check_range("documents", sources[s].documents, 1, INT64_MAX, error);
        if (failed == 0)
            failed = check_range("weight", sources[s].weight, 1, UINT32_MAX, error);
        if (failed < 0)
            return rp_fail_context(error, failed, "source %s",
                                   rp_plan_source_word(&sources[s], s).text);
        uint64_t units = rp_order_units(config, sources[s].documents);
        if (units < config->lanes)
            return rp_fail(
                error, -RP_E_CONFIG, "lower plan_partitions, or use smaller blocks",
                "source %s has %" PRIu64 " %s for %" PRIu32 " lanes; each lane needs one",
                rp_plan_source_word(&sources[s], s).text, units,
                config->shuffle == RP_SHUFFLE_BLOCK ? "blocks" : "documents", config->lanes);
    }
    return failed;
}

static int check_token_bytes(const struct rp_plan_config *config, uint32_t source_count,
                             struct rp_error *error)
{
    uint64_t bytes = rp_state_bytes_max(config, source_count);
    if (bytes <= UINT32_MAX)
        return 0;
    return rp_fail(error, -RP_E_CONFIG,
                   "lower packing_buffer or open_bins, max_docs_per_row, or plan_partitions",
                   "a state token of this configuration could take %" PRIu64
                   " bytes; at most %" PRIu32 " are possible",
                   bytes, UINT32_MAX);
}

/* Allocate and fill the members of a plan. On failure rp_plan_close frees them. */
static int open_parts(struct rp_plan *plan, const struct rp_plan_source *sources,
                      struct rp_error *error)
{
    uint32_t source_count = plan->source_count;
    plan->sources = rp_calloc(source_count, sizeof *plan->sources);
    plan->weights = rp_calloc(source_count, sizeof *plan->weights);
    plan->lanes = rp_calloc(plan->config.lanes, sizeof *plan->lanes);
    plan->row_fragments = rp_calloc(plan->config.max_docs_per_row, sizeof *plan->row_fragments);
    if (!plan->sources || !plan->weights || !plan->lanes || !plan->row_fragments)
        return rp_fail(error, -ENOMEM, NULL,
                       "no memory for a plan of %" PRIu32 " sources and %" PRIu32 " lanes",
                       source_count, plan->config.lanes);
    for (uint32_t s = 0; s < source_count; s++) {
        plan->sources[s] = sources[s];
        plan->weights[s] = sources[s].weight;
    }
    for (uint32_t lane = 0; lane < plan->config.lanes; lane++) {
        int failed = rp_lane_open(&plan->lanes[lane], plan, lane, error);
        if (failed < 0)
            return failed;
    }
    return 0;
}

int rp_plan_open(struct rp_plan **plan_out, const struct rp_plan_config *config,
                 const struct rp_plan_source *sources, uint32_t source_count,
                 struct rp_error *error)
{
    *plan_out = NULL;
    struct rp_plan_config checked = *config;
    int failed = check_config(&checked, error);
    if (failed == 0)
        failed = check_sources(&checked, sources, source_count, error);
    if (failed == 0)
        failed = check_token_bytes(&checked, source_count, error);
    if (failed < 0)
        return failed;

    struct rp_plan *plan = rp_calloc(1, sizeof *plan);
    if (!plan)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a plan");
    plan->config = checked;
    plan->source_count = source_count;
    plan->digest = rp_hash128(NULL, 0); /* D(0) */
    failed = open_parts(plan, sources, error);
    if (failed < 0) {
        rp_plan_close(plan);
        return failed;
    }
    *plan_out = plan;
    return 0;
}

int rp_plan_open_stream(struct rp_plan **plan_out, const struct rp_stream_spec *spec,
                        struct rp_error *error)
{
    struct rp_plan *plan = rp_calloc(1, sizeof *plan);
    *plan_out = NULL;
    if (!plan)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a plan");
    int code = rp_v2_open(&plan->v2, spec, error);
    if (code < 0) {
        free(plan);
        return code;
    }
    *plan_out = plan;
    return 0;
}

void rp_plan_own(struct rp_plan *plan, void *owned, void (*free_owned)(void *owned))
{
    RP_ASSERT(!plan->owned);
    plan->owned = owned;
    plan->free_owned = free_owned;
}

uint32_t rp_plan_version(const struct rp_plan *plan)
{
    return plan->v2 ? 2 : 1;
}

void rp_plan_close(struct rp_plan *plan)
{
    if (!plan)
        return;
    rp_v2_close(plan->v2);
    if (plan->owned)
        plan->free_owned(plan->owned);
    for (uint32_t lane = 0; plan->lanes && lane < plan->config.lanes; lane++)
        rp_lane_close(&plan->lanes[lane]);
    free(plan->sources);
    free(plan->weights);
    free(plan->lanes);
    free(plan->row_fragments);
    free(plan);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int make_row(struct rp_lane *lane, struct rp_draft *draft, struct rp_error *error)
{
    switch (lane->config->packing) {
    case RP_PACKING_CONCAT:
        return rp_concat_row(lane, draft, error);
    case RP_PACKING_BEST_FIT:
        return rp_best_fit_row(lane, draft, error);
    default:
        return rp_lookahead_row(lane, draft, error);
    }
}

/* Whether no further row has a fragment. It plans no row, so that the state at the end of the
 * stream is the state after its last row, however often rp_plan_next is called. */
static bool is_over(const struct rp_plan *plan)
{
    for (uint64_t i = 0; i < plan->config.lanes; i++)
        if (!rp_lane_is_over(rp_plan_lane(plan, plan->next_row + i)))
            return false;
    return true;
}

int rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error)
{
    if (plan->v2)
        return rp_v2_next(plan->v2, row, error);
    if (plan->failed) /* half-way in a row, so that the plan is between two rows for ever */
        return rp_fail_again(error, &plan->failure);
    if (is_over(plan))
        return 0;

    struct rp_lane *lane = rp_plan_lane(plan, plan->next_row);
    struct rp_draft draft = {plan->row_fragments, 0, plan->config.seq_len};
    int failed = make_row(lane, &draft, &plan->failure);
    if (failed < 0) {
        plan->failed = true;
        return rp_fail_again(error, &plan->failure);
    }
    uint32_t tokens = plan->config.seq_len - draft.gap;
    if (draft.count > 0) {
        lane->counts.emitted += tokens;
        lane->counts.padding += draft.gap;
        lane->capped += draft.gap > 0 && draft.count == plan->config.max_docs_per_row;
    }
    if (rp_hash128_is_known(plan->digest))
        plan->digest = rp_plan_link(plan->digest, plan->next_row, draft.fragments, draft.count,
                                    draft.gap);
    *row = (struct rp_row){.row = plan->next_row,
                           .count = draft.count,
                           .tokens = tokens,
                           .fragments = draft.fragments,
                           .planned = plan->next_row};
    plan->next_row++;
    return 1;
}

uint32_t rp_plan_max_docs_per_row(const struct rp_plan *plan)
{
    return plan->v2 ? rp_v2_max_docs_per_row(plan->v2) : plan->config.max_docs_per_row;
}

uint32_t rp_plan_seq_len(const struct rp_plan *plan)
{
    return plan->v2 ? rp_v2_seq_len(plan->v2) : plan->config.seq_len;
}

bool rp_plan_is_stage_end(const struct rp_plan *plan)
{
    return plan->v2 && rp_v2_is_stage_end(plan->v2);
}

uint32_t rp_plan_run_seq_len(const struct rp_plan *plan)
{
    return plan->v2 ? plan->v2->seq_len : plan->config.seq_len;
}

bool rp_plan_next_stage(const struct rp_plan *plan, struct rp_plan_stage *stage)
{
    uint64_t row = rp_plan_row(plan);
    bool is_end = rp_plan_is_stage_end(plan);
    if (is_end)
        *stage = (struct rp_plan_stage){row, rp_v2_stage_of(plan->v2, row), rp_plan_seq_len(plan)};
    return is_end;
}

uint64_t rp_plan_next_boundary(const struct rp_plan *plan, uint64_t row)
{
    return plan->v2 ? rp_calendar_next(plan->v2->now.calendar, row) : UINT64_MAX;
}

void rp_plan_stage_text(const struct rp_plan *plan, char *text, size_t capacity)
{
    struct rp_plan_stage next;
    text[0] = '\0';
    if (rp_plan_next_stage(plan, &next))
        snprintf(text, capacity,
                 "stage %" PRIu32 " begins at row %" PRIu64 " with rows of seq_len %" PRIu32,
                 next.number, next.row, next.seq_len);
}

bool rp_plan_is_in_run(const struct rp_plan *plan)
{
    return !plan->v2 || rp_v2_is_in_run(plan->v2);
}

bool rp_plan_has_records_of(struct rp_plan *plan, const void *token, size_t bytes)
{
    return plan->v2 && rp_v2_is_token(token, bytes) && rp_v2_has_records_of(plan->v2, token, bytes);
}

int rp_plan_check_steps(struct rp_plan *plan, const struct rp_numbering *numbering,
                        struct rp_error *error)
{
    return plan->v2 ? rp_v2_check_steps(plan->v2, numbering, error) : 0;
}

void rp_plan_cross_stages(struct rp_plan *plan)
{
    if (plan->v2)
        plan->v2->crosses = true;
}

uint64_t rp_plan_row(const struct rp_plan *plan)
{
    return plan->v2 ? rp_planner_row(plan->v2->now.rows) : plan->next_row;
}

uint64_t rp_plan_documents(const struct rp_plan *plan)
{
    uint64_t documents = 0;
    if (plan->v2) {
        const struct rp_snapshot *state = rp_v2_state(plan->v2);
        return state ? state->counts.documents + state->counts.passed_over : 0;
    }
    for (uint32_t i = 0; i < plan->config.lanes; i++)
        documents += plan->lanes[i].counts.documents;
    return documents;
}

struct rp_hash128 rp_plan_digest(const struct rp_plan *plan)
{
    const struct rp_hash128 unknown = {0, 0};
    const struct rp_snapshot *state = plan->v2 ? rp_v2_state(plan->v2) : NULL;
    if (plan->v2)
        return state ? state->digest : unknown;
    return plan->digest;
}

void rp_plan_forget_digest(struct rp_plan *plan)
{
    plan->digest = (struct rp_hash128){0, 0};
}

int rp_plan_seek(struct rp_plan *plan, uint64_t row, struct rp_error *error)
{
    uint64_t at = rp_plan_row(plan);
    if (row < at)
        return rp_fail(error, -RP_E_USAGE, "open a new plan, or load an earlier state token",
                       "cannot seek back to row %" PRIu64 ": the plan is at row %" PRIu64, row, at);
    for (; at < row; at = rp_plan_row(plan)) {
        struct rp_row passed;
        int planned = rp_plan_next(plan, &passed, error);
        if (planned < 0)
            return planned;
        if (planned == 0)
            return rp_fail(error, -RP_E_USAGE, NULL,
                           rp_plan_is_stage_end(plan)
                               ? "cannot seek to row %" PRIu64
                                 ": rows of another seq_len begin at row %" PRIu64
                               : "cannot seek to row %" PRIu64 ": the stream ends with %" PRIu64
                                 " rows",
                           row, at);
    }
    return 0;
}

struct rp_row_form rp_plan_row_form(const struct rp_plan *plan)
{
    return plan->v2 ? rp_v2_row_form(plan->v2) : (struct rp_row_form){.has_bos = false};
}

bool rp_plan_skips(const struct rp_plan *plan, uint64_t first, uint64_t count)
{
    RP_ASSERT(plan && count > 0 && first + count > first);
    return plan->v2 && rp_calendar_skips_all(plan->v2->now.calendar, first, count);
}

/* ---- counts and sizes ------------------------------------------------------------------------ */

void rp_plan_counts(const struct rp_plan *plan, struct rp_plan_counts *counts)
{
    if (plan->v2) {
        rp_v2_counts(plan->v2, counts);
        return;
    }
    *counts = (struct rp_plan_counts){0};
    for (uint32_t i = 0; i < plan->config.lanes; i++) {
        const struct rp_lane *lane = &plan->lanes[i];
        rp_plan_counts_add(counts, &lane->counts);
        counts->buffered += rp_lane_buffered(lane);
        counts->cuts += lane->cuts;
        counts->capped += lane->capped;
    }
}

size_t rp_plan_state_bytes_max(const struct rp_plan *plan)
{
    if (plan->v2)
        return rp_planner_token_bytes_max(plan->v2->now.calendar);
    return (size_t)rp_state_bytes_max(&plan->config, plan->source_count);
}
