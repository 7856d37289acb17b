/* SPDX-License-Identifier: Apache-2.0 */
/* token_verify.c — check that a plan could have written this state token.
 *
 * rp_state_match (token_contract.c) has compared the header with the plan before: a difference
 * there is another config or corpus. Here the lanes are checked: a difference is damage or forgery.
 * The plan does not change before both have succeeded.
 *
 * Invariant: every number that is later used as an index, subtracted, or used as the bound of a
 * loop is checked here against corpus and config, and the counts are checked against each other. So
 * planning continues from a verified token without further checks. */
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "plan/token_records.h"

__extension__ typedef unsigned __int128 wide; /* sums of forged 64-bit numbers do not overflow */

/* The lane that is being checked, and the sums over its records. */
struct check {
    const struct rp_plan *plan;
    uint64_t epochs; /* num_epochs of the token */
    const struct rp_lane *lane;
    uint32_t number; /* the lane's */
    struct rp_state_reader *reader;
    struct rp_error *error;
    struct rp_state_lane record;

    wide documents_min, documents_max, mixed, buffered;
    uint64_t opened_min;               /* the next open row's: rows are in order of opening */
    uint64_t fragments, fragments_max; /* counts over open rows: see check_open_rows */
    bool finished;                     /* all sources */
    bool ended;                        /* no further row of the lane has a fragment */
    bool has_last;                     /* the lane's last row before next_row has a fragment */
};

#define DAMAGED(check, format, ...)                                                                \
    RP_TOKEN_DAMAGED((check)->error, ", lane %" PRIu32 ": " format, (check)->number, __VA_ARGS__)

static int read_record(struct check *check, void *record, size_t bytes)
{
    if (rp_state_read(check->reader, record, bytes))
        return 0;
    return DAMAGED(check, "%zu bytes are left, a record of %zu is expected", check->reader->left,
                   bytes);
}

static int check_held(const struct check *check)
{
    const struct rp_plan_config *config = &check->plan->config;
    const struct rp_state_lane *record = &check->record;
    uint32_t fifo_max = config->packing == RP_PACKING_LOOKAHEAD ? config->window : 0;
    uint32_t open_max = config->packing == RP_PACKING_BEST_FIT ? config->window : 0;
    /* lookahead keeps room in the FIFO for the rest of the pending piece. */
    bool has_room = config->packing != RP_PACKING_LOOKAHEAD || record->pending == 0 ||
                    record->fifo < fifo_max;
    if (record->fifo > fifo_max || record->pending > 1 || record->open_rows > open_max ||
        !has_room || record->zero != 0)
        return DAMAGED(check,
                       "%" PRIu32 " pieces in the FIFO, %" PRIu32 " pending, %" PRIu32
                       " open rows; at most %" PRIu32 ", 1%s, %" PRIu32 " are possible",
                       record->fifo, record->pending, record->open_rows, fifo_max,
                       fifo_max > 0 ? " (in the place of one of the FIFO)" : "", open_max);
    return 0;
}

/* A run may end earlier than planned, but not before a position that was read. */
static int check_reached(const struct check *check, uint32_t source,
                         const struct rp_state_cursor *cursor)
{
    uint64_t asked = check->plan->config.num_epochs;
    uint64_t reached = cursor->epoch + (cursor->position > 0 ? 1 : 0);
    char hint[160];
    if (asked == 0 || reached <= asked)
        return 0;
    snprintf(hint, sizeof hint,
             "the run is unchanged; set num_epochs to %" PRIu64
             " or more, or continue from an older state",
             reached);
    return rp_fail(check->error, -RP_E_MISMATCH, hint,
                   "num_epochs differs: the state has %" PRIu64 ", this run has %" PRIu64
                   ", but source %s is in its epoch number %" PRIu64 " already",
                   check->epochs, asked,
                   rp_plan_source_word(&check->plan->sources[source], source).text, reached);
}

static int check_cursor(struct check *check, uint32_t source)
{
    uint64_t epochs = check->epochs;
    struct rp_state_cursor cursor;
    int failed = read_record(check, &cursor, sizeof cursor);
    if (failed < 0)
        return failed;
    if (epochs > 0 && cursor.epoch > epochs)
        return DAMAGED(check, "source %" PRIu32 " is in epoch %" PRIu64 " of %" PRIu64, source,
                       cursor.epoch, epochs);
    struct rp_order order = check->lane->piece_source.cursors[source].order;
    bool finished = epochs > 0 && cursor.epoch == epochs;
    uint64_t positions = 1; /* the position of a finished source is 0 */
    if (!finished) {
        rp_order_enter(&order, cursor.epoch);
        positions = order.documents;
    }
    if (cursor.position >= positions)
        return DAMAGED(check, "source %" PRIu32 " is at position %" PRIu64 " of %" PRIu64, source,
                       cursor.position, positions);

    uint64_t fewest = rp_order_documents_min(&order);
    uint64_t most = order.lanes == 1 ? fewest : order.lane_units * order.unit_documents;
    check->documents_min += (wide)cursor.epoch * fewest + cursor.position;
    check->documents_max += (wide)cursor.epoch * most + cursor.position;
    check->mixed += cursor.mixed;
    check->finished = check->finished && finished;
    return check_reached(check, source, &cursor);
}

/* A piece must be the end of the part of its document that long_doc leaves, because
 * packing takes tokens only from the front. */
static int check_tail(const struct check *check, const char *what, uint32_t index,
                      const struct rp_state_piece *piece)
{
    const struct rp_plan *plan = check->plan;
    uint64_t document = piece->document, offset = piece->offset, length = piece->length;
    uint32_t source = piece->source;
    if (source >= plan->source_count || document >= plan->sources[source].documents)
        return DAMAGED(check,
                       "%s %" PRIu32 " is document %" PRIu64 " of source %" PRIu32
                       ", which does not exist",
                       what, index, document, source);
    uint64_t stored = plan->sources[source].length(plan->sources[source].lengths, document);
    if (stored == RP_LENGTH_BAD)
        return rp_fail(check->error, -RP_E_CORRUPT, "repair or rebuild this source's index",
                       "source %s: the index entry of document %" PRIu64 " is damaged",
                       rp_plan_source_word(&plan->sources[source], source).text, document);
    uint64_t kept = rp_length_kept(&plan->config, stored);
    if (length == 0 || offset > kept || length != kept - offset)
        return DAMAGED(check,
                       "%s %" PRIu32 " is %" PRIu64 " tokens from %" PRIu64
                       " on of document %" PRIu64 " of source %" PRIu32 ", which has %" PRIu64,
                       what, index, length, offset, document, source, kept);
    return 0;
}

/* may_be_cut: the piece may begin at any token. Otherwise only full rows were taken from its
 * document, so it begins at a multiple of seq_len. */
static int check_piece(struct check *check, const char *what, uint32_t index, bool may_be_cut,
                       uint64_t length_min, uint64_t length_max)
{
    uint32_t seq_len = check->plan->config.seq_len;
    struct rp_state_piece piece;
    int failed = read_record(check, &piece, sizeof piece);
    if (failed < 0)
        return failed;
    if (piece.zero != 0 || (piece.offset % seq_len != 0 && !may_be_cut))
        return DAMAGED(check,
                       "%s %" PRIu32 " begins at token %" PRIu64
                       " of its document; expected a multiple of %" PRIu32,
                       what, index, piece.offset, seq_len);
    if (piece.length < length_min || piece.length > length_max)
        return DAMAGED(check,
                       "%s %" PRIu32 " has %" PRIu64 " tokens; expected %" PRIu64 " to %" PRIu64,
                       what, index, piece.length, length_min, length_max);
    check->buffered += piece.length;
    return check_tail(check, what, index, &piece);
}

static int check_pieces(struct check *check)
{
    const struct rp_plan_config *config = &check->plan->config;
    bool is_fifo = config->packing == RP_PACKING_LOOKAHEAD,
         cuts = config->row_gap == RP_ROW_GAP_SPLIT;
    int failed = 0;
    for (uint32_t i = 0; i < check->record.fifo && failed == 0; i++)
        failed = check_piece(check, "FIFO piece", i, i == 0 && cuts, 1, config->seq_len);
    if (check->record.pending > 0 && failed == 0)
        failed = check_piece(check, "pending piece", 0, !is_fifo,
                             is_fifo ? (uint64_t)config->seq_len + 1 : 1, UINT64_MAX);
    return failed;
}

static int check_open_row(struct check *check, uint32_t index)
{
    const struct rp_plan_config *config = &check->plan->config;
    uint64_t placed = check->record.counts.placed;
    struct rp_state_open_row row;
    int failed = read_record(check, &row, sizeof row);
    if (failed < 0)
        return failed;
    if (row.opened_at < check->opened_min || row.opened_at >= placed || row.zero != 0)
        return DAMAGED(check,
                       "open row %" PRIu32 " was opened at %" PRIu64 "; expected %" PRIu64
                       " or more, and less than the %" PRIu64 " documents placed",
                       index, row.opened_at, check->opened_min, placed);
    check->opened_min = row.opened_at + 1;
    check->fragments_max = rp_min_u64(check->fragments_max,
                                      placed - row.opened_at + check->fragments);
    check->fragments += row.fragments;
    if (row.fragments == 0 || row.fragments >= config->max_docs_per_row)
        return DAMAGED(check,
                       "open row %" PRIu32 " has %" PRIu32 " fragments; expected 1 to %" PRIu32,
                       index, row.fragments, config->max_docs_per_row - 1);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < row.fragments; i++) {
        struct rp_fragment fragment;
        failed = read_record(check, &fragment, sizeof fragment);
        const struct rp_state_piece piece = {fragment.document, fragment.offset, fragment.length,
                                             fragment.source, 0};
        if (failed == 0)
            failed = check_tail(check, "fragment", i, &piece);
        if (failed < 0)
            return failed;
        tokens += fragment.length;
    }
    if (tokens >= config->seq_len)
        return DAMAGED(check,
                       "open row %" PRIu32 " has %" PRIu64 " tokens; expected less than %" PRIu32,
                       index, tokens, config->seq_len);
    check->buffered += tokens;
    return 0;
}

/* The first open row is not too old, and every document of an open row was placed after the row was
 * opened. rp_state_bytes_max depends on both. */
static int check_open_rows(struct check *check)
{
    uint64_t placed = check->record.counts.placed;
    uint64_t age_max = (uint64_t)RP_AGE_MAX_WINDOWS * check->plan->config.window;
    check->opened_min = placed - rp_min_u64(placed, age_max);
    check->fragments_max = UINT64_MAX;
    for (uint32_t i = 0; i < check->record.open_rows; i++) {
        int failed = check_open_row(check, i);
        if (failed < 0)
            return failed;
    }
    if (check->fragments > check->fragments_max)
        return DAMAGED(check,
                       "its open rows have %" PRIu64
                       " fragments, more than documents were placed since they were opened",
                       check->fragments);
    return 0;
}

static int check_counts(struct check *check, uint64_t next_row)
{
    const struct rp_plan_config *config = &check->plan->config;
    const struct rp_lane_counts *counts = &check->record.counts;

    wide given_up = (wide)counts->truncated + counts->dropped;
    if (counts->tokens_read != counts->emitted + given_up + check->buffered)
        return DAMAGED(check,
                       "%" PRIu64 " tokens were read; %" PRIu64 " emitted, %" PRIu64
                       " truncated, %" PRIu64 " dropped and the buffered ones are not as many",
                       counts->tokens_read, counts->emitted, counts->truncated, counts->dropped);
    if (counts->documents < check->documents_min || counts->documents > check->documents_max ||
        counts->empty > counts->documents || counts->placed > counts->documents)
        return DAMAGED(check,
                       "%" PRIu64 " documents were read, %" PRIu64 " empty, %" PRIu64
                       " placed: the sources' positions say otherwise",
                       counts->documents, counts->empty, counts->placed);
    if ((counts->truncated > 0 && config->long_doc != RP_LONG_DOC_TRUNCATE) ||
        (counts->dropped > 0 && config->long_doc != RP_LONG_DOC_DROP) ||
        (counts->placed > 0 && config->packing != RP_PACKING_BEST_FIT) ||
        check->mixed > counts->tokens_read - given_up)
        return DAMAGED(
            check,
            "%" PRIu64 " tokens truncated, %" PRIu64 " dropped, %" PRIu64
            " documents placed, or the mixing's tokens: not possible with these parameters",
            counts->truncated, counts->dropped, counts->placed);

    wide capacity = (wide)counts->emitted + counts->padding;
    uint64_t rows = rp_rows_of_lane(check->number, config->lanes, next_row);
    check->ended = check->finished && check->buffered == 0;
    check->has_last = capacity / config->seq_len == rows;
    if (capacity % config->seq_len != 0 || capacity / config->seq_len > rows ||
        (!check->has_last && !check->ended))
        return DAMAGED(check,
                       "%" PRIu64 " tokens emitted and %" PRIu64
                       " of padding do not make the %" PRIu64 " rows before row %" PRIu64,
                       counts->emitted, counts->padding, rows, next_row);
    return 0;
}

static int check_lane(struct check *check, uint64_t next_row)
{
    int failed = read_record(check, &check->record, sizeof check->record);
    if (failed == 0)
        failed = check_held(check);
    for (uint32_t s = 0; s < check->plan->source_count && failed == 0; s++)
        failed = check_cursor(check, s);
    if (failed == 0)
        failed = check_pieces(check);
    if (failed == 0)
        failed = check_open_rows(check);
    return failed < 0 ? failed : check_counts(check, next_row);
}

int rp_state_verify(struct rp_state_reader reader, const struct rp_state_header *header,
                    const struct rp_plan *plan, struct rp_error *error)
{
    uint64_t next_row = header->next_row;
    bool ended = true, has_last = next_row == 0;
    for (uint32_t lane = 0; lane < plan->config.lanes; lane++) {
        struct check check = {
            .plan = plan,
            .epochs = header->num_epochs,
            .lane = &plan->lanes[lane],
            .number = lane,
            .reader = &reader,
            .error = error,
            .finished = true,
        };
        int failed = check_lane(&check, next_row);
        if (failed < 0)
            return failed;
        ended = ended && check.ended;
        if (next_row > 0 && (next_row - 1) % plan->config.lanes == lane)
            has_last = check.has_last;
    }
    if (ended && !has_last)
        return RP_TOKEN_DAMAGED(error, ": row %" PRIu64 " is after the end of the stream",
                                next_row);
    if (reader.left > 0)
        return RP_TOKEN_DAMAGED(error, ": %zu bytes too many after the last lane", reader.left);
    return 0;
}
