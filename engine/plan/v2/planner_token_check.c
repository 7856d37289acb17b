/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token_check.c — the checks of a decoded token that need neither calendar nor documents:
 * the range of every value, and the sums of STREAM2.md sections 12.2 and 13. */
#include <errno.h>
#include <inttypes.h>

#include "base/mem.h"
#include "base/text.h"
#include "plan/v2/planner_token_format.h"

__extension__ typedef unsigned __int128 wide; /* sums of forged 64-bit numbers do not overflow */
__extension__ typedef __int128 wide_signed;

#define COUNT_END (UINT64_C(1) << 63) /* rows, documents, tokens */
#define CREDIT_END (INT64_C(1) << 62) /* section 13 */
#define TURN_MAX (UINT32_C(1) << 31)

static int check_position(const struct rp_token2_header *header, struct rp_error *error)
{
    uint64_t first = header->window_first, next = header->next_row, end = header->window_end;
    bool begins = next == first && end == first;
    bool inside = first < next && next < end && end - first <= header->deal.window;
    if (next < COUNT_END && end < COUNT_END && (begins || inside))
        return 0;
    return RP_TOKEN_DAMAGED(error,
                            ": row %" PRIu64 " in a deal window from row %" PRIu64 " to %" PRIu64
                            "; a window has %" PRIu32 " rows",
                            next, first, end, header->deal.window);
}

static int check_rows(const struct rp_token2_header *header, struct rp_error *error)
{
    uint32_t align = header->align, group = header->group, seq_len = header->seq_len;
    if (align == 0 || align > RP_ALIGN_MAX || seq_len == 0 || seq_len > 1u << 24 ||
        seq_len % align != 0)
        return RP_TOKEN_DAMAGED(error, ": seq_len %" PRIu32 " with align %" PRIu32, seq_len, align);
    if (group == 0 || group > RP_GROUP_MAX || header->max_docs_per_row < group ||
        header->max_docs_per_row > seq_len)
        return RP_TOKEN_DAMAGED(error,
                                ": group %" PRIu32 " with max_docs_per_row %" PRIu32
                                " in rows of %" PRIu32 " tokens",
                                group, header->max_docs_per_row, seq_len);
    bool is_concat = header->packing == RP_PACKING_CONCAT;
    if (header->packing > RP_PACKING_BEST_FIT ||
        header->row_gap > (is_concat ? 0 : RP_ROW_GAP_SPLIT) ||
        (header->window == 0) != is_concat || header->window > 4096 ||
        (header->spread == 0) != is_concat || header->spread > RP_SPREAD_MAX)
        return RP_TOKEN_DAMAGED(
            error, ": packing %u with window %" PRIu32 ", row_gap %u and spread %" PRIu32,
            header->packing, header->window, header->row_gap, header->spread);
    return 0;
}

static int check_fixed(const struct rp_token2_header *header, struct rp_error *error)
{
    bool blocks = header->shuffle == RP_SHUFFLE_BLOCK;
    if (header->shuffle > RP_SHUFFLE_BLOCK || (header->block_documents > 0) != blocks ||
        (header->window_blocks > 0) != blocks || header->block_documents % header->group != 0)
        return RP_TOKEN_DAMAGED(
            error, ": shuffle %u with block_documents %" PRIu32 " and window_blocks %" PRIu32,
            header->shuffle, header->block_documents, header->window_blocks);
    if (header->long_doc > RP_LONG_DOC_DROP || (header->group > 1 && header->long_doc != 0) ||
        header->stopped > 1 || header->label_across_cuts > 1 || header->zero[0] != 0 ||
        header->zero[1] != 0 || !rp_hash128_is_known(header->digest) ||
        header->longest > RP_PIECE_TOKENS_MAX || header->stages_begun == 0 ||
        header->stages_begun > RP_STAGES_MAX)
        return RP_TOKEN_DAMAGED(error,
                                ": long_doc %u, stopped %u, label_across_cuts %u, a longest piece "
                                "of %" PRIu32 " tokens, %" PRIu32 " stages, a plan digest, or "
                                "zeros: one has no meaning",
                                header->long_doc, header->stopped, header->label_across_cuts,
                                header->longest, header->stages_begun);
    return 0;
}

static bool deal_is_off(const struct rp_token2_deal *deal)
{
    static const struct rp_token2_deal off;
    return memcmp(deal, &off, sizeof off) == 0;
}

static int check_deal(const struct rp_token2_header *header, struct rp_error *error)
{
    const struct rp_token2_deal *deal = &header->deal;
    if (deal_is_off(deal))
        return 0;
    bool nested = deal->bundle > 0 && deal->tier > 0 && deal->step > 0 &&
                  deal->tier % deal->bundle == 0 && deal->step % deal->tier == 0 &&
                  deal->window >= deal->step && deal->window <= 1u << 20 &&
                  deal->window % deal->step == 0;
    bool costs = deal->k > 0 && deal->k < 1u << 24 && deal->w <= 1u << 24 && deal->b > 0 &&
                 deal->b <= 64 && deal->h <= deal->b && rp_gcd_u64(deal->h, deal->b) == 1;
    wide row = (wide)deal->b * deal->k * header->seq_len +
               (wide)deal->b * header->seq_len * header->seq_len;
    if (nested && costs && deal->order < RP_DEAL_ORDERS && deal->zero == 0 &&
        row * deal->step < COUNT_END)
        return 0;
    return RP_TOKEN_DAMAGED(error,
                            ": deal %" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%u,%" PRIu32
                            ",%" PRIu32 ",%u,%u has no meaning",
                            deal->window, deal->step, deal->tier, deal->bundle, deal->order,
                            deal->k, deal->w, deal->h, deal->b);
}

/* ---- sources --------------------------------------------------------------------------------- */

static int check_source(const struct rp_token2 *token, uint32_t j, struct rp_error *error)
{
    const struct rp_planner_token_source *source = &token->sources[j];
    const struct rp_source_state *state = &source->state;
    uint32_t group = token->header.group;
    if (state->documents < group || state->documents % group != 0 || state->before % group != 0 ||
        source->documents_next % group != 0 || source->documents_next >= COUNT_END ||
        state->documents > source->documents_next || state->before > state->documents ||
        (state->before > 0) != (state->epoch > 0))
        return RP_TOKEN_DAMAGED(error,
                                ", source %s: %" PRIu64 " documents in epoch %" PRIu32 ", %" PRIu64
                                " before and %" PRIu64 " after it",
                                source->name, state->documents, state->epoch, state->before,
                                source->documents_next);
    if (state->position >= state->documents / group || state->pass == RP_COUNT_MAX)
        return RP_TOKEN_DAMAGED(error,
                                ", source %s: position %" PRIu64 " of pass %u; %" PRIu64
                                " documents in groups of %" PRIu32,
                                source->name, state->position, state->pass, state->documents,
                                group);
    if (state->credit <= -CREDIT_END || state->credit >= CREDIT_END)
        return RP_TOKEN_DAMAGED(error, ", source %s: a credit of %" PRId64, source->name,
                                state->credit);
    if (state->tokens >= COUNT_END || state->taken > state->tokens || state->taken % group != 0 ||
        state->withheld > state->tokens ||
        state->tokens > (wide)(state->taken / group) * RP_PIECE_TOKENS_MAX)
        return RP_TOKEN_DAMAGED(
            error, ", source %s: %" PRIu64 " documents of %" PRIu64 " tokens, %" PRIu64 " withheld",
            source->name, state->taken, state->tokens, state->withheld);
    if (group > 1 &&
        (source->too_long == RP_TOO_LONG_CUT || source->too_long == RP_TOO_LONG_TRUNCATE))
        return RP_TOKEN_DAMAGED(error, ", source %s: too_long %u with groups", source->name,
                                source->too_long);
    return 0;
}

static int check_names(const struct rp_token2 *token, struct rp_error *error)
{
    uint32_t count = token->header.source_count;
    const char **sorted = rp_calloc(count, sizeof *sorted);
    int code = 0;
    if (!sorted)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the names in a token");
    for (uint32_t j = 0; j < count; j++)
        sorted[j] = token->sources[j].name;
    qsort(sorted, count, sizeof *sorted, rp_text_compare);
    for (uint32_t j = 1; j < count && code == 0; j++)
        if (strcmp(sorted[j - 1], sorted[j]) == 0)
            code = RP_TOKEN_DAMAGED(error, ": two of its sources have the name %s", sorted[j]);
    free(sorted);
    return code;
}

static int check_sources(const struct rp_token2 *token, struct rp_error *error)
{
    wide_signed credits = 0;
    uint64_t divisor = 0;
    for (uint32_t j = 0; j < token->header.source_count; j++) {
        int code = check_source(token, j, error);
        if (code < 0)
            return code;
        credits += token->sources[j].state.credit;
        divisor = rp_gcd_u64(token->sources[j].weight, divisor);
    }
    if (credits != 0)
        return RP_TOKEN_DAMAGED(error, ": the sum of its credits is not 0");
    if (divisor != 1)
        return RP_TOKEN_DAMAGED(error, ": its weights are not reduced, or all are 0");
    return check_names(token, error);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int check_piece(const struct rp_token2 *token, const struct rp_item_piece *piece,
                       const char *what, uint32_t index, struct rp_error *error)
{
    const struct rp_token2_header *header = &token->header;
    if (piece->source >= header->source_count || piece->zero != 0)
        return RP_TOKEN_DAMAGED(error, ": %s %" PRIu32 " is of source %u of %" PRIu32, what, index,
                                piece->source, header->source_count);
    const struct rp_source_state *state = &token->sources[piece->source].state;
    bool is_now = piece->epoch == state->epoch;
    uint64_t documents = is_now ? state->documents : state->before;
    if (piece->epoch > state->epoch || (is_now && piece->pass > state->pass) ||
        (is_now && piece->pass == state->pass && state->position == 0) ||
        piece->pass == RP_COUNT_MAX || piece->item >= documents / header->group)
        return RP_TOKEN_DAMAGED(error,
                                ": %s %" PRIu32 " is item %" PRIu64 " of epoch %" PRIu32
                                ", pass %u, which source %s has not read",
                                what, index, piece->item, piece->epoch, piece->pass,
                                token->sources[piece->source].name);
    if (piece->length == 0 || piece->length > RP_PIECE_TOKENS_MAX ||
        piece->offset > RP_PIECE_TOKENS_MAX - piece->length ||
        piece->length + piece->offset > header->longest || (header->group > 1 && piece->offset > 0))
        return RP_TOKEN_DAMAGED(error,
                                ": %s %" PRIu32 " has %" PRIu32 " tokens from %" PRIu32 " on", what,
                                index, piece->length, piece->offset);
    return 0;
}

static int check_pool(const struct rp_token2 *token, struct rp_error *error)
{
    const struct rp_snapshot *snapshot = &token->snapshot;
    for (uint32_t i = 0; i < snapshot->pool_count; i++) {
        const struct rp_pool_entry *entry = &snapshot->pool[i];
        int code = check_piece(token, &entry->piece, "pool entry", i, error);
        if (code < 0)
            return code;
        if (entry->rows < 2 || entry->turn > TURN_MAX)
            return RP_TOKEN_DAMAGED(
                error, ": pool entry %" PRIu32 " has turn %" PRIu32 " of %" PRIu32 " rows", i,
                entry->turn, entry->rows);
    }
    if (snapshot->pool_count == 0 ? snapshot->pool_row != 0 : snapshot->pool_row >= snapshot->row)
        return RP_TOKEN_DAMAGED(error, ": pool_row is %" PRIu64 " before row %" PRIu64,
                                snapshot->pool_row, snapshot->row);
    return 0;
}

/* Rows are in order of opening, and every piece of a row was placed after the row was opened. */
static int check_open_rows(const struct rp_token2 *token, struct rp_error *error)
{
    const struct rp_snapshot *snapshot = &token->snapshot;
    uint64_t placed = snapshot->counts.placed, opened_min = 0, left = snapshot->open_piece_count;
    for (uint32_t i = 0; i < snapshot->open_count; i++) {
        const struct rp_open_row_state *row = &snapshot->open[i];
        if (row->opened_at < opened_min || row->opened_at >= placed || row->pieces == 0 ||
            left > placed - row->opened_at)
            return RP_TOKEN_DAMAGED(error,
                                    ": open row %" PRIu32 " of %" PRIu32
                                    " pieces was opened at %" PRIu64 " of %" PRIu64
                                    " placed pieces",
                                    i, row->pieces, row->opened_at, placed);
        opened_min = row->opened_at + 1;
        left -= row->pieces;
    }
    for (uint32_t i = 0; i < snapshot->open_piece_count; i++) {
        int code = check_piece(token, &snapshot->open_pieces[i], "piece of an open row", i, error);
        if (code < 0)
            return code;
    }
    return 0;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Tokens that wait, of each source at most those that it gave and did not withhold. */
static int check_waiting(const struct rp_token2 *token, wide *waiting, struct rp_error *error)
{
    const struct rp_snapshot *snapshot = &token->snapshot;
    uint32_t count = token->header.source_count;
    uint64_t *of = rp_calloc(count, sizeof *of);
    int code = 0;
    if (!of)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the sums of a token");
    for (uint64_t i = 0; i < rp_snapshot_pieces(snapshot); i++) {
        const struct rp_item_piece *piece = rp_snapshot_piece(snapshot, i);
        of[piece->source] += piece->length; /* no overflow: pieces are below 2^27 */
    }
    *waiting = 0;
    for (uint32_t j = 0; j < count && code == 0; j++) {
        const struct rp_source_state *state = &token->sources[j].state;
        *waiting += of[j];
        if (of[j] > state->tokens - state->withheld)
            code = RP_TOKEN_DAMAGED(
                error, ", source %s: %" PRIu64 " tokens wait, of %" PRIu64 " less %" PRIu64,
                token->sources[j].name, of[j], state->tokens, state->withheld);
    }
    free(of);
    return code;
}

static int check_sums(const struct rp_token2 *token, struct rp_error *error)
{
    const struct rp_stream_counts *counts = &token->header.counts;
    wide waiting = 0, tokens = 0, taken = 0, withheld = 0;
    int code = check_waiting(token, &waiting, error);
    if (code < 0)
        return code;
    for (uint32_t j = 0; j < token->header.source_count; j++) {
        tokens += token->sources[j].state.tokens;
        taken += token->sources[j].state.taken;
        withheld += token->sources[j].state.withheld;
    }
    wide lost = (wide)counts->truncated + counts->dropped;
    if (counts->tokens_read >= COUNT_END ||
        counts->tokens_read != counts->emitted + lost + counts->left_out + waiting)
        return RP_TOKEN_DAMAGED(error,
                                ": %" PRIu64 " tokens were read; %" PRIu64 " emitted, %" PRIu64
                                " truncated, %" PRIu64 " dropped, %" PRIu64
                                " left out and the waiting ones are not as many",
                                counts->tokens_read, counts->emitted, counts->truncated,
                                counts->dropped, counts->left_out);
    /* Truncated and dropped are also tokens that were lost at a boundary, after they were taken.
     * Those, tokens that were left out, and rows that were skipped are withheld. */
    wide lost_later = tokens + lost - counts->tokens_read;
    if (tokens + lost < counts->tokens_read || lost_later > lost ||
        withheld < lost_later + counts->left_out ||
        withheld - lost_later - counts->left_out > counts->emitted)
        return RP_TOKEN_DAMAGED(error,
                                ": the tokens of its sources are not those that were read less "
                                "%" PRIu64 " truncated and %" PRIu64 " dropped",
                                counts->truncated, counts->dropped);
    if (taken + counts->empty > counts->documents || counts->documents >= COUNT_END ||
        counts->passed_over >= COUNT_END || counts->placed > taken / token->header.group ||
        (token->header.longest > 0) != (tokens > 0) || token->header.longest > counts->tokens_read)
        return RP_TOKEN_DAMAGED(
            error,
            ": %" PRIu64 " documents, %" PRIu64 " of them empty, %" PRIu64
            " pieces placed, a longest piece of %" PRIu32 " tokens: its sources say otherwise",
            counts->documents, counts->empty, counts->placed, token->header.longest);
    return 0;
}

int rp_token2_check(const struct rp_token2 *token, struct rp_error *error)
{
    const struct rp_token2_header *header = &token->header;
    int code = check_rows(header, error);
    if (code == 0)
        code = check_fixed(header, error);
    if (code == 0)
        code = check_deal(header, error);
    if (code == 0)
        code = check_position(header, error);
    if (code == 0)
        code = check_sources(token, error);
    for (uint32_t i = 0; i < token->snapshot.fifo_count && code == 0; i++)
        code = check_piece(token, &token->snapshot.fifo[i], "FIFO piece", i, error);
    if (code == 0)
        code = check_pool(token, error);
    if (code == 0)
        code = check_open_rows(token, error);
    return code < 0 ? code : check_sums(token, error);
}
