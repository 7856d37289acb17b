/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token_format.c — the bytes of a state token: encoding, and decoding with every check of
 * form. planner_token_check.c has the checks of values.
 *
 * Records are copied as they are in memory: both are little-endian (base/bits.h), and no record has
 * padding (the assertions in planner_token_format.h). */
#include <errno.h>
#include <inttypes.h>

#include "base/mem.h"
#include "plan/v2/planner_token_format.h"

enum { HASH_BYTES = sizeof(struct rp_hash128) };

struct rp_deal rp_token2_deal_of(const struct rp_token2_deal *deal)
{
    return (struct rp_deal){
        .window = deal->window,
        .step = deal->step,
        .tier = deal->tier,
        .bundle = deal->bundle,
        .order = (enum rp_deal_order)deal->order,
        .cost.k = deal->k,
        .cost.w = deal->w,
        .cost.h = deal->h,
        .cost.b = deal->b,
    };
}

uint32_t rp_token2_flags(const struct rp_token2 *token)
{
    uint32_t flags = 0;
    for (uint32_t j = 0; j < token->header.source_count; j++)
        flags += token->sources[j].documents_next != token->sources[j].state.documents;
    return flags;
}

void rp_token2_free(struct rp_token2 *token)
{
    rp_snapshot_free(&token->snapshot);
    free(token->sources);
    free(token->history);
    memset(token, 0, sizeof *token);
}

/* ---- writing --------------------------------------------------------------------------------- */

struct writer {
    uint8_t *start, *at;
};

static void put(struct writer *writer, const void *record, size_t bytes)
{
    if (bytes > 0)
        memcpy(writer->at, record, bytes);
    writer->at += bytes;
}

/* Zero bytes up to a multiple of 8 after `since`. */
static void put_zeros(struct writer *writer, const uint8_t *since)
{
    size_t zeros = (size_t) - (writer->at - since) % 8;
    memset(writer->at, 0, zeros);
    writer->at += zeros;
}

static void put_source(struct writer *writer, const struct rp_planner_token_source *source)
{
    const uint8_t *start = writer->at;
    const struct rp_source_state *state = &source->state;
    bool differs = source->documents_next != state->documents;
    struct rp_token2_source record = {
        .sampled = source->prints.sampled,
        .full = source->prints.full,
        .selection = source->prints.selection,
        .documents = state->documents,
        .before = state->before,
        .position = state->position,
        .credit = state->credit,
        .tokens = state->tokens,
        .taken = state->taken,
        .withheld = state->withheld,
        .max_tokens = source->limits.max_tokens,
        .max_epochs = source->limits.max_epochs,
        .weight = source->weight,
        .epoch = state->epoch,
        .pass = state->pass,
        .on_exhausted = (uint8_t)source->limits.on_exhausted,
        .too_long = (uint8_t)source->too_long,
        .flags = (uint8_t)(source->drop_untrained | (differs ? RP_TOKEN_DOCUMENTS_DIFFER : 0)),
    };
    put(writer, &record, sizeof record);
    if (differs)
        put(writer, &source->documents_next, sizeof source->documents_next);
    uint8_t length = (uint8_t)strlen(source->name);
    put(writer, &length, 1);
    put(writer, source->name, length);
    put_zeros(writer, start);
}

static void put_open_rows(struct writer *writer, const struct rp_snapshot *snapshot)
{
    const struct rp_item_piece *pieces = snapshot->open_pieces;
    for (uint32_t i = 0; i < snapshot->open_count; i++) {
        const struct rp_open_row_state *row = &snapshot->open[i];
        struct rp_token2_open_row record = {row->opened_at, row->pieces, 0};
        put(writer, &record, sizeof record);
        put(writer, pieces, row->pieces * sizeof *pieces);
        pieces += row->pieces;
    }
}

size_t rp_token2_encode(const struct rp_token2 *token, void *bytes)
{
    struct writer writer = {bytes, bytes};
    const struct rp_snapshot *snapshot = &token->snapshot;
    put(&writer, &token->header, sizeof token->header);
    for (uint32_t j = 0; j < token->header.source_count; j++)
        put_source(&writer, &token->sources[j]);
    put(&writer, snapshot->fifo, snapshot->fifo_count * sizeof *snapshot->fifo);
    put(&writer, snapshot->pool, snapshot->pool_count * sizeof *snapshot->pool);
    put_open_rows(&writer, snapshot);
    const uint8_t *history = writer.at;
    put(&writer, token->history, token->history ? strlen(token->history) : 0);
    put_zeros(&writer, history);

    size_t hashed = (size_t)(writer.at - writer.start);
    rp_store_u32(writer.start + offsetof(struct rp_token2_header, bytes),
                 (uint32_t)(hashed + HASH_BYTES));
    rp_hash128_store(writer.at, rp_hash128(bytes, hashed));
    return hashed + HASH_BYTES;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at;
    size_t left;
    struct rp_error *error;
};

/* The next record, or an error if fewer bytes are left. */
static int take(struct reader *reader, void *record, size_t bytes)
{
    if (reader->left < bytes)
        return RP_TOKEN_DAMAGED(reader->error, ": %zu bytes are left, a record of %zu is expected",
                                reader->left, bytes);
    if (bytes > 0)
        memcpy(record, reader->at, bytes);
    reader->at += bytes;
    reader->left -= bytes;
    return 0;
}

static int take_zeros(struct reader *reader, size_t bytes)
{
    uint8_t zeros[8] = {0};
    static const uint8_t none[8];
    int code = take(reader, zeros, bytes);
    if (code < 0)
        return code;
    return memcmp(zeros, none, sizeof none) == 0
               ? 0
               : RP_TOKEN_DAMAGED(reader->error, ": bytes of its padding are not 0");
}

static int open_bytes(struct reader *reader, struct rp_token2_header *header, const void *bytes,
                      size_t count, struct rp_error *error)
{
    int code = rp_state_check_bytes(bytes, count, offsetof(struct rp_token2_header, seed),
                                    sizeof *header + HASH_BYTES, error);
    if (code < 0)
        return code;
    memset(header, 0, sizeof *header);
    memcpy(header, bytes, rp_min_u64(count, sizeof *header));
    uint32_t version = header->version;
    if (version != RP_TOKEN_VERSION_CALENDAR)
        return rp_fail(error, -RP_E_VERSION,
                       version < RP_TOKEN_VERSION_CALENDAR
                           ? "it continues as stream version 1, without keys of version 2"
                           : "use the ringpack that wrote it",
                       "state token: version %" PRIu32 "; a stream of version 2 has version %u",
                       version, RP_TOKEN_VERSION_CALENDAR);
    if (count < sizeof *header + HASH_BYTES)
        return RP_TOKEN_DAMAGED(error, ": %zu bytes; even an empty one has %zu", count,
                                sizeof *header + HASH_BYTES);
    *reader = (struct reader){(const uint8_t *)bytes + sizeof *header,
                              count - HASH_BYTES - sizeof *header, error};
    return 0;
}

static int take_source(struct reader *reader, struct rp_planner_token_source *source,
                       uint32_t number)
{
    struct rp_token2_source record;
    const uint8_t *start = reader->at;
    uint8_t length = 0;
    int code = take(reader, &record, sizeof record);
    if (code == 0)
        source->documents_next = record.documents;
    bool differs = code == 0 && (record.flags & RP_TOKEN_DOCUMENTS_DIFFER);
    if (differs)
        code = take(reader, &source->documents_next, sizeof source->documents_next);
    if (code == 0)
        code = take(reader, &length, 1);
    if (code == 0 && (length == 0 || length > RP_SOURCE_NAME_MAX))
        return RP_TOKEN_DAMAGED(reader->error,
                                ", source %" PRIu32 ": a name of %u bytes; expected 1 to %u",
                                number, length, RP_SOURCE_NAME_MAX);
    if (code == 0)
        code = take(reader, source->name, length);
    if (code == 0)
        code = take_zeros(reader, (size_t) - (reader->at - start) % 8);
    if (code < 0)
        return code;
    if (strlen(source->name) != length || (record.flags & 3) > RP_DROP_FRAGMENTS ||
        record.flags > 7 || record.too_long > RP_TOO_LONG_ERROR ||
        record.on_exhausted > RP_EXHAUSTED_ERROR ||
        differs != (source->documents_next != record.documents))
        return RP_TOKEN_DAMAGED(reader->error,
                                ", source %" PRIu32 ": flags %u, too_long %u, on_exhausted %u or "
                                "its name have no meaning",
                                number, record.flags, record.too_long, record.on_exhausted);
    source->prints = (struct rp_source_prints){record.sampled, record.full, record.selection};
    source->limits = (struct rp_limits){record.max_tokens, record.max_epochs,
                                        (enum rp_on_exhausted)record.on_exhausted};
    source->weight = record.weight;
    source->too_long = (enum rp_too_long)record.too_long;
    source->drop_untrained = (enum rp_drop_untrained)(record.flags & 3);
    source->state = (struct rp_source_state){
        .documents = record.documents,
        .before = record.before,
        .position = record.position,
        .credit = record.credit,
        .tokens = record.tokens,
        .taken = record.taken,
        .withheld = record.withheld,
        .epoch = record.epoch,
        .pass = record.pass,
    };
    return 0;
}

static int take_sources(struct reader *reader, struct rp_token2 *token)
{
    uint32_t count = token->header.source_count;
    if (count == 0 || count > RP_SOURCES_MAX ||
        count > reader->left / sizeof(struct rp_token2_source))
        return RP_TOKEN_DAMAGED(reader->error,
                                ": a table of %" PRIu32 " sources does not fit into it", count);
    token->sources = rp_calloc(count, sizeof *token->sources);
    if (!token->sources)
        return rp_fail(reader->error, -ENOMEM, NULL,
                       "no memory for the %" PRIu32 " sources of a token", count);
    int code = 0;
    for (uint32_t j = 0; j < count && code == 0; j++)
        code = take_source(reader, &token->sources[j], j);
    return code;
}

/* The pieces of all open rows; false if the rows do not fit into what is left. */
static bool count_open_pieces(struct reader reader, uint32_t rows, uint32_t *pieces)
{
    uint64_t sum = 0;
    reader.error = NULL;
    for (uint32_t i = 0; i < rows; i++) {
        struct rp_token2_open_row row;
        if (take(&reader, &row, sizeof row) < 0 ||
            row.pieces > reader.left / sizeof(struct rp_item_piece))
            return false;
        size_t bytes = row.pieces * sizeof(struct rp_item_piece);
        reader.at += bytes;
        reader.left -= bytes;
        sum += row.pieces;
    }
    *pieces = (uint32_t)sum; /* fewer than the token's bytes */
    return true;
}

static int take_waiting(struct reader *reader, struct rp_token2 *token)
{
    const struct rp_token2_header *header = &token->header;
    struct rp_snapshot *snapshot = &token->snapshot;
    size_t fifo_bytes = header->fifo_count * sizeof *snapshot->fifo;
    size_t pool_bytes = header->pool_count * sizeof *snapshot->pool;
    struct reader rows = *reader;
    bool fits = header->fifo_count <= reader->left / sizeof *snapshot->fifo &&
                header->pool_count <= (reader->left - fifo_bytes) / sizeof *snapshot->pool;
    if (fits) {
        rows.at += fifo_bytes + pool_bytes;
        rows.left -= fifo_bytes + pool_bytes;
        fits = count_open_pieces(rows, header->open_count, &snapshot->open_piece_count);
    }
    if (!fits)
        return RP_TOKEN_DAMAGED(reader->error,
                                ": %" PRIu32 " pieces in the FIFO, %" PRIu32
                                " in the pool and %" PRIu32 " open rows do not fit into it",
                                header->fifo_count, header->pool_count, header->open_count);
    snapshot->source_count = header->source_count;
    snapshot->fifo_count = header->fifo_count;
    snapshot->pool_count = header->pool_count;
    snapshot->open_count = header->open_count;
    int code = rp_snapshot_resize(snapshot, reader->error);
    if (code == 0)
        code = take(reader, snapshot->fifo, fifo_bytes);
    if (code == 0)
        code = take(reader, snapshot->pool, pool_bytes);
    struct rp_item_piece *pieces = snapshot->open_pieces;
    for (uint32_t i = 0; i < header->open_count && code == 0; i++) {
        struct rp_token2_open_row row;
        code = take(reader, &row, sizeof row);
        if (code == 0 && row.zero != 0)
            code = RP_TOKEN_DAMAGED(reader->error, ": bytes of open row %" PRIu32 " are not 0", i);
        if (code == 0)
            code = take(reader, pieces, row.pieces * sizeof *pieces);
        if (code == 0) {
            snapshot->open[i] = (struct rp_open_row_state){row.opened_at, row.pieces};
            pieces += row.pieces;
        }
    }
    return code;
}

static void fill_snapshot(struct rp_token2 *token)
{
    const struct rp_token2_header *header = &token->header;
    struct rp_snapshot *snapshot = &token->snapshot;
    for (uint32_t j = 0; j < header->source_count; j++)
        snapshot->sources[j] = token->sources[j].state;
    snapshot->row = header->window_first;
    snapshot->digest = header->digest;
    snapshot->pool_row = header->pool_row;
    snapshot->longest = header->longest;
    snapshot->stopped = header->stopped;
    snapshot->counts = header->counts;
}

/* The history ends the token: text of lines, then less than 8 zero bytes. */
static int take_history(struct reader *reader, struct rp_token2 *token)
{
    uint32_t bytes = token->header.history_bytes;
    uint32_t room = 8 * rp_token2_flags(token);
    room = room < RP_HISTORY_MAX ? RP_HISTORY_MAX - room : 0;
    if (bytes != reader->left || bytes % 8 != 0 || bytes > room)
        return RP_TOKEN_DAMAGED(reader->error,
                                ": a history of %" PRIu32 " bytes; %zu are left, and %" PRIu32
                                " are possible",
                                bytes, reader->left, room);
    token->history = rp_calloc(bytes + 1, 1);
    if (!token->history)
        return rp_fail(reader->error, -ENOMEM, NULL, "no memory for the history of a token");
    int code = take(reader, token->history, bytes);
    size_t text = strlen(token->history);
    for (size_t i = 0; i < bytes && code == 0; i++) {
        char c = token->history[i];
        bool fits = i < text ? (c >= ' ' && c <= '~') || c == '\n' : c == 0;
        if (!fits || text + 8 <= bytes || (text > 0 && token->history[text - 1] != '\n'))
            code = RP_TOKEN_DAMAGED(reader->error, ": its history is not text");
    }
    return code;
}

int rp_token2_decode(struct rp_token2 *token, const void *bytes, size_t count,
                     struct rp_error *error)
{
    struct reader reader = {0};
    memset(token, 0, sizeof *token);
    int code = open_bytes(&reader, &token->header, bytes, count, error);
    if (code == 0)
        code = take_sources(&reader, token);
    if (code == 0)
        code = take_waiting(&reader, token);
    if (code == 0) {
        fill_snapshot(token);
        code = take_history(&reader, token);
    }
    if (code == 0)
        code = rp_token2_check(token, error);
    if (code < 0)
        rp_token2_free(token);
    return code;
}
