/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.c — does each batch continue the one before it?
 *
 * The ring's header is checked when a batch is taken (shm/ring_view.c). The checks here compare
 * other words: the rows of the batch as the packer wrote them, the state token after it as the
 * planner wrote it, and this trainer's own position. So a batch that is in the wrong slot, is of
 * another stream, or is given twice is noticed, whichever of these words is wrong. */
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "client/core.h"

/* Where a state token has its facts: another place in each version of the stream (STREAM.md section
 * 8, STREAM2.md section 12.2), and a token says which it is by its version. */
#define TOKEN_MAGIC "RPSTATE"
#define TOKEN_VERSION_AT 8u
#define HASH_BYTES 16u
struct token_form {
    uint32_t bytes_min, row_at, next_row_at; /* row_at: of the row before which its digest stands */
    struct {
        uint32_t at, bytes;
    } fixed[4]; /* that no two tokens of a stream differ in */
};
static const struct token_form form_of_plans = {
    .bytes_min = 120,
    .row_at = 96,
    .next_row_at = 96,
    .fixed = {{16, 16}, {48, 40}}}; /* fingerprint; from the seed to the number of sources */
static const struct token_form form_of_calendars = {
    .bytes_min = 336,
    .row_at = 32,
    .next_row_at = 24,
    .fixed = {{16, 8}, {112, 16}, {244, 4}, {252, 8}}}; /* seed, tokenizer, group, bos_id, eos_id */
enum { TOKEN_WITH_DIGEST = 3, TOKEN_OF_CALENDAR = 4 };

enum finding { FINE, GAP, REPEAT, FOREIGN };

struct found {
    enum finding finding;
    uint64_t expected, row; /* if FOREIGN, both are the first row of the batch */
};

static struct found compare_row(uint64_t expected, uint64_t row)
{
    return (struct found){row == expected ? FINE : row > expected ? GAP : REPEAT, expected, row};
}

/* Each row says which one it is. */
static struct found check_rows(const struct rp_geometry *g, const uint8_t *slot,
                               const struct rp_slot_header *header)
{
    const struct rp_row_info *rows =
        (const struct rp_row_info *)(const void *)(slot + g->sections[RP_SECTION_ROWS].offset);
    for (uint32_t i = 0; i < header->rows; i++)
        if (rows[i].row != header->first_row + i)
            return compare_row(header->first_row + i, rows[i].row);
    return (struct found){FINE, 0, 0};
}

/* NULL: it is no token. */
static const struct token_form *form_of(const uint8_t *token, size_t bytes)
{
    if (bytes < form_of_plans.bytes_min || memcmp(token, TOKEN_MAGIC, sizeof TOKEN_MAGIC) != 0)
        return NULL;
    uint32_t version = rp_load_u32(token + TOKEN_VERSION_AT);
    if (version < TOKEN_OF_CALENDAR)
        return &form_of_plans;
    bool is_calendar = version == TOKEN_OF_CALENDAR && bytes >= form_of_calendars.bytes_min;
    return is_calendar ? &form_of_calendars : NULL;
}

bool rp_client_token_row(const uint8_t *token, size_t bytes, uint64_t *row)
{
    const struct token_form *form = form_of(token, bytes);
    if (form)
        *row = rp_load_u64(token + form->next_row_at);
    return form != NULL;
}

bool rp_client_token_digest(const uint8_t *token, size_t bytes, struct rp_hash128 *digest)
{
    const struct token_form *form = form_of(token, bytes);
    if (!form || rp_load_u32(token + TOKEN_VERSION_AT) < TOKEN_WITH_DIGEST)
        return false;
    *digest = rp_hash128_load(form == &form_of_plans ? token + bytes - 2 * HASH_BYTES : token + 48);
    return true;
}

static bool has_same_stream(const struct token_form *form, const uint8_t *was, const uint8_t *is)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(form->fixed); i++)
        if (memcmp(was + form->fixed[i].at, is + form->fixed[i].at, form->fixed[i].bytes) != 0)
            return false;
    return true;
}

/* The token after the batch is of the stream of the token before it, and its plan digest has
 * changed if and only if there are rows between them. */
static bool is_next_token(const uint8_t *was, size_t was_bytes, const uint8_t *is, size_t is_bytes,
                          uint64_t next_row)
{
    const struct token_form *form = form_of(was, was_bytes);
    struct rp_hash128 before, after;
    if (!form)
        return true; /* no earlier token to compare with */
    if (form_of(is, is_bytes) != form || rp_load_u64(is + form->next_row_at) != next_row ||
        !has_same_stream(form, was, is))
        return false;
    if (!rp_client_token_digest(was, was_bytes, &before) ||
        !rp_client_token_digest(is, is_bytes, &after))
        return true;
    bool moves = rp_load_u64(was + form->row_at) != rp_load_u64(is + form->row_at);
    return moves != rp_hash128_equal(before, after);
}

static struct found check(const struct rp_client *client, const struct rp_geometry *g,
                          const uint8_t *slot, const struct rp_slot_header *header)
{
    uint64_t begin = header->first_row - (uint64_t)g->rank * header->rows;
    const struct rp_kept_token *state = rp_client_newest(client);
    struct found found = compare_row(client->attach_row, begin);
    if (found.finding == FINE)
        found = check_rows(g, slot, header);
    if (found.finding == FINE &&
        !is_next_token(state->token, state->bytes, slot + header->state_offset, header->state_bytes,
                       header->next_row))
        found = (struct found){FOREIGN, header->first_row, header->first_row};
    return found;
}

static int fail(const struct found *found, struct rp_error *error)
{
    static const char hint[] =
        "no part of this batch was delivered; load the last saved state and restart the engine "
        "with it; `ringpack audit` compares the states";
    if (found->finding == FOREIGN)
        return rp_fail(error, -RP_E_PROTOCOL, hint,
                       "monitor: the batch at row %" PRIu64 " is of another stream, or its state "
                       "does not continue the state before it",
                       found->row);
    return rp_fail(error, -RP_E_PROTOCOL, hint,
                   "monitor: row %" PRIu64 " was expected, row %" PRIu64 " was found: %s",
                   found->expected, found->row,
                   found->finding == GAP ? "the rows between them are missing"
                                         : "a row would be given twice");
}

int rp_client_monitor(struct rp_client *client, const struct rp_geometry *g, const uint8_t *slot,
                      const struct rp_slot_header *header, struct rp_error *error)
{
    if (client->options.monitor == RP_MONITOR_OFF)
        return 0;
    struct found found = check(client, g, slot, header);
    if (found.finding == FINE)
        return 0;
    if (!client->has_refused) {
        client->counts.gaps += found.finding == GAP;
        client->counts.repeats += found.finding == REPEAT;
        client->counts.foreign += found.finding == FOREIGN;
    }
    client->has_refused = client->options.monitor == RP_MONITOR_FAIL;
    return client->has_refused ? fail(&found, error) : 0;
}
