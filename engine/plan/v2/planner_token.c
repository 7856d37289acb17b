/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token.c — the state token of a plan's next row, and the facts of a token for listings. */
#include "plan/v2/planner_token.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "plan/v2/planner_token_format.h"

size_t rp_planner_token_bytes_max(const struct rp_calendar *calendar)
{
    size_t bytes = sizeof(struct rp_token2_header) + sizeof(struct rp_hash128);
    uint32_t count = rp_calendar_source_count(calendar);
    for (uint32_t j = 0; j < count; j++)
        bytes += rp_align_up(
            sizeof(struct rp_token2_source) + 1 + strlen(rp_calendar_source_name(calendar, j)), 8);
    /* Each source with the flag has 8 bytes more, and the history 8 less. */
    bytes += rp_max_u64(RP_HISTORY_MAX, (uint64_t)8 * count);
    bytes += rp_token2_room_at(calendar, RP_NO_ROW - 1).bytes;
    RP_ASSERT(bytes <= RP_STREAM_TOKEN_BYTES_MAX);
    return bytes;
}

struct rp_token2_kept *rp_token2_kept_of(struct rp_planner *plan)
{
    struct rp_token2_kept *kept = rp_planner_carried(plan);
    if (kept)
        return kept;
    uint32_t count = rp_calendar_source_count(rp_planner_calendar(plan));
    kept = rp_calloc(1, sizeof *kept + count * sizeof kept->sources[0]);
    if (kept)
        rp_planner_carry(plan, kept);
    return kept;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The token that is being made, and the row before it, whose values are in force. */
struct making {
    struct rp_token2 token;
    const struct rp_calendar *calendar;
    const struct rp_stage *stage;
    uint64_t last_row;
    struct rp_token2_kept *kept;
};

static int fill_source(struct making *making, uint32_t j, struct rp_error *error)
{
    struct rp_planner_token_source *source = &making->token.sources[j];
    struct rp_token2_kept_source *kept = &making->kept->sources[j];
    const struct rp_stream_source *of_config = rp_calendar_source(making->calendar, j);
    const char *name = rp_calendar_source_name(making->calendar, j);
    memcpy(source->name, name, strlen(name) + 1);
    source->limits = making->last_row < making->kept->limits_end || kept->is_removed
                         ? kept->limits
                         : making->stage->limits[j];
    if (kept->is_removed) {
        source->prints = kept->prints;
        source->documents_next = kept->documents_next;
        source->too_long = kept->too_long;
        source->drop_untrained = kept->drop_untrained;
        return 0;
    }
    if (kept->prints_at != source->state.documents) {
        kept->prints_at = 0;
        int code = of_config->view.prints(of_config->view.context, source->state.documents,
                                          &kept->prints, error);
        if (code < 0)
            return code;
        kept->prints_at = source->state.documents;
    }
    source->prints = kept->prints;
    source->weight = making->stage->weights[j];
    source->documents_next = making->stage->documents[j];
    source->too_long = of_config->too_long;
    source->drop_untrained = of_config->drop_untrained;
    return 0;
}

/* Sources of the snapshot, and those that join at the first row of a window that is begun. */
static int fill_sources(struct making *making, struct rp_error *error)
{
    struct rp_token2 *token = &making->token;
    uint32_t count = token->snapshot.source_count;
    if (making->stage->joined > count && token->header.next_row > token->header.window_first)
        count = making->stage->joined;
    token->header.source_count = count;
    token->sources = rp_calloc(count, sizeof *token->sources);
    if (!token->sources)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the %" PRIu32 " sources of a token",
                       count);
    int code = 0;
    for (uint32_t j = 0; j < count && code == 0; j++) {
        if (j < token->snapshot.source_count)
            token->sources[j].state = token->snapshot.sources[j];
        else
            token->sources[j].state.documents = making->stage->documents[j];
        code = fill_source(making, j, error);
    }
    return code;
}

static int fill_history(struct making *making, struct rp_error *error)
{
    struct rp_token2 *token = &making->token;
    token->history = rp_calloc(RP_HISTORY_MAX + 1, 1);
    if (!token->history)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the history of a token");
    token->header.history_bytes = rp_token2_history_of(making->calendar, token->header.next_row,
                                                       rp_token2_flags(token),
                                                       &making->kept->oldest, token->history);
    return 0;
}

static struct rp_token2_deal deal_record(const struct rp_deal *deal)
{
    if (deal->window == 0)
        return (struct rp_token2_deal){0};
    return (struct rp_token2_deal){
        .window = deal->window,
        .step = deal->step,
        .tier = deal->tier,
        .bundle = deal->bundle,
        .k = deal->cost.k,
        .w = deal->cost.w,
        .order = (uint8_t)deal->order,
        .h = deal->cost.h,
        .b = deal->cost.b,
    };
}

static void fill_header(struct making *making, const struct rp_stream_position *position)
{
    const struct rp_stream_fixed *fixed = &rp_calendar_spec(making->calendar)->fixed;
    const struct rp_snapshot *snapshot = &making->token.snapshot;
    const struct rp_stage *stage = making->stage;
    struct rp_calendar_chains chains = rp_calendar_chains(making->calendar, position->next_row);
    bool is_concat = stage->packing == RP_PACKING_CONCAT;
    making->token.header = (struct rp_token2_header){
        .magic = RP_TOKEN_MAGIC,
        .version = RP_TOKEN_VERSION_CALENDAR,
        .seed = fixed->seed,
        .next_row = position->next_row,
        .window_first = position->window_first,
        .window_end = position->next_row > position->window_first ? position->window_end
                                                                  : position->window_first,
        .digest = snapshot->digest,
        .declared = chains.declared,
        .records = chains.records,
        .skips = rp_calendar_skip_hash(making->calendar, position->next_row),
        .tokenizer = fixed->tokenizer,
        .counts = snapshot->counts,
        .pool_row = snapshot->pool_row,
        .seq_len = stage->seq_len,
        .window = is_concat ? 0 : stage->window,
        .max_docs_per_row = stage->max_docs_per_row,
        .block_documents = fixed->block_documents,
        .window_blocks = fixed->window_blocks,
        .spread = is_concat ? 0 : stage->spread,
        .align = stage->align,
        .group = fixed->group,
        .longest = snapshot->longest,
        .bos_id = fixed->bos_id,
        .eos_id = fixed->eos_id,
        .stages_begun = chains.declared_count,
        .fifo_count = snapshot->fifo_count,
        .pool_count = snapshot->pool_count,
        .open_count = snapshot->open_count,
        .deal = deal_record(&stage->deal),
        .shuffle = (uint8_t)fixed->shuffle,
        .packing = (uint8_t)stage->packing,
        .row_gap = is_concat ? 0 : (uint8_t)stage->row_gap,
        .long_doc = (uint8_t)fixed->long_doc,
        .stopped = snapshot->stopped,
        .label_across_cuts = fixed->label_across_cuts,
    };
}

int rp_planner_token_write(struct rp_planner *plan, void *token, size_t *bytes_out,
                           struct rp_error *error)
{
    struct rp_stream_position position = rp_planner_position(plan);
    struct making making = {
        .calendar = rp_planner_calendar(plan),
        .last_row = position.next_row > 0 ? position.next_row - 1 : 0,
        .kept = rp_token2_kept_of(plan),
    };
    if (!making.kept)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the sources of a token");
    making.stage = rp_calendar_at(making.calendar, making.last_row);
    int code = rp_planner_snapshot(plan, &making.token.snapshot, error);
    if (code == 0) {
        fill_header(&making, &position);
        code = fill_sources(&making, error);
    }
    if (code == 0)
        code = fill_history(&making, error);
    if (code == 0)
        *bytes_out = rp_token2_encode(&making.token, token);
    rp_token2_free(&making.token);
    return code;
}

/* ---- listing --------------------------------------------------------------------------------- */

/* Count the tokens that wait by source, and all of them. */
static uint64_t count_waiting(struct rp_token2 *token)
{
    const struct rp_snapshot *snapshot = &token->snapshot;
    uint64_t tokens = 0; /* no overflow: the check of sums has it below 2^63 */
    for (uint64_t i = 0; i < rp_snapshot_pieces(snapshot); i++) {
        const struct rp_item_piece *piece = rp_snapshot_piece(snapshot, i);
        token->sources[piece->source].waiting += piece->length;
    }
    for (uint32_t j = 0; j < token->header.source_count; j++)
        tokens += token->sources[j].waiting;
    return tokens;
}

int rp_planner_token_info(const void *token, size_t bytes, struct rp_planner_token_info *info,
                          struct rp_error *error)
{
    struct rp_token2 decoded;
    int code = rp_token2_decode(&decoded, token, bytes, error);
    if (code < 0)
        return code;
    const struct rp_token2_header *header = &decoded.header;
    *info = (struct rp_planner_token_info){
        .position = {header->next_row, header->window_first, header->window_end},
        .bytes = header->bytes,
        .source_count = header->source_count,
        .stages_begun = header->stages_begun,
        .seed = header->seed,
        .digest = header->digest,
        .records = header->records,
        .tokenizer = header->tokenizer,
        .counts = header->counts,
        .waiting = count_waiting(&decoded),
        .seq_len = header->seq_len,
        .align = header->align,
        .window = header->window,
        .spread = header->spread,
        .max_docs_per_row = header->max_docs_per_row,
        .group = header->group,
        .bos_id = header->bos_id,
        .eos_id = header->eos_id,
        .shuffle = (enum rp_shuffle)header->shuffle,
        .packing = (enum rp_packing)header->packing,
        .row_gap = (enum rp_row_gap)header->row_gap,
        .long_doc = (enum rp_long_doc)header->long_doc,
        .block_documents = header->block_documents,
        .window_blocks = header->window_blocks,
        .deal = rp_token2_deal_of(&header->deal),
    };
    rp_token2_free(&decoded);
    return 0;
}

int rp_planner_token_sources(const void *token, size_t bytes,
                             struct rp_planner_token_source **sources_out, uint32_t *count_out,
                             struct rp_error *error)
{
    struct rp_token2 decoded;
    *sources_out = NULL;
    *count_out = 0;
    int code = rp_token2_decode(&decoded, token, bytes, error);
    if (code < 0)
        return code;
    (void)count_waiting(&decoded);
    *sources_out = decoded.sources;
    *count_out = decoded.header.source_count;
    decoded.sources = NULL;
    rp_token2_free(&decoded);
    return 0;
}

int rp_planner_token_source(const void *token, size_t bytes, uint32_t number,
                            struct rp_planner_token_source *source, struct rp_error *error)
{
    struct rp_planner_token_source *sources;
    uint32_t count;
    int code = rp_planner_token_sources(token, bytes, &sources, &count, error);
    if (code < 0)
        return code;
    if (number < count)
        *source = sources[number];
    free(sources);
    return number < count ? 0
                          : rp_fail(error, -RP_E_USAGE, "the first source has number 0",
                                    "state token: source %" PRIu32 " of %" PRIu32, number, count);
}
