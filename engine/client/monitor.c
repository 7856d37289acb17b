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

/* Offsets in a state token (engine/plan/STREAM.md, section 8). */
#define TOKEN_MAGIC "RPSTATE"
enum {
    TOKEN_VERSION_AT = 8,
    TOKEN_SAMPLED_AT = 16, /* the fingerprint of the corpus */
    TOKEN_SAMPLED_BYTES = 16,
    TOKEN_STREAM_AT = 48, /* from the seed to the number of sources; num_epochs may change */
    TOKEN_STREAM_BYTES = 40,
    TOKEN_NEXT_ROW_AT = 96,
    TOKEN_BYTES_MIN = 120,
    TOKEN_WITH_DIGEST = 3, /* since this version the plan digest precedes the hash */
    HASH_BYTES = 16,
};

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
    for (uint32_t i = 0; i < g->rows; i++)
        if (rows[i].row != header->first_row + i)
            return compare_row(header->first_row + i, rows[i].row);
    return (struct found){FINE, 0, 0};
}

static bool is_token(const uint8_t *state, size_t bytes)
{
    return bytes >= TOKEN_BYTES_MIN && memcmp(state, TOKEN_MAGIC, sizeof TOKEN_MAGIC) == 0;
}

static bool has_digest(const uint8_t *token)
{
    return rp_load_u32(token + TOKEN_VERSION_AT) == TOKEN_WITH_DIGEST;
}

bool rp_client_token_digest(const uint8_t *token, size_t bytes, struct rp_hash128 *digest)
{
    if (!is_token(token, bytes) || !has_digest(token))
        return false;
    *digest = rp_hash128_load(token + bytes - 2 * HASH_BYTES);
    return true;
}

/* The token after the batch is of the stream of the token before it, and its plan digest has
 * changed if and only if there are rows between them. */
static bool is_next_token(const uint8_t *was, size_t was_bytes, const uint8_t *is, size_t is_bytes,
                          uint64_t next_row)
{
    if (!is_token(was, was_bytes))
        return true; /* no earlier token to compare with */
    if (!is_token(is, is_bytes) || rp_load_u64(is + TOKEN_NEXT_ROW_AT) != next_row ||
        memcmp(was + TOKEN_SAMPLED_AT, is + TOKEN_SAMPLED_AT, TOKEN_SAMPLED_BYTES) != 0 ||
        memcmp(was + TOKEN_STREAM_AT, is + TOKEN_STREAM_AT, TOKEN_STREAM_BYTES) != 0)
        return false;
    if (!has_digest(was) || !has_digest(is))
        return true;
    bool moves = rp_load_u64(was + TOKEN_NEXT_ROW_AT) != next_row;
    bool changes = memcmp(was + was_bytes - 2 * HASH_BYTES, is + is_bytes - 2 * HASH_BYTES,
                          HASH_BYTES) != 0;
    return moves == changes;
}

static struct found check(const struct rp_client *client, const struct rp_geometry *g,
                          const uint8_t *slot, const struct rp_slot_header *header)
{
    uint64_t begin = g->base_row + header->batch * g->rows * g->world;
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
        "nothing of this batch was delivered; load the last saved state and restart the engine "
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
