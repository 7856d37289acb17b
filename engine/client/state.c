/* SPDX-License-Identifier: Apache-2.0 */
/* state.c — a client's position, that is its state token and next row, and its counts; and the form
 * of a token. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/hash.h"
#include "client/core.h"
#include "client/sized.h"

#define RP_COUNTS_REQUIRED RP_SIZE_WITH(rp_client_counts, struct_size)

enum {
    TOKEN_BYTES_MIN = 104 + 16, /* header and hash of the shorter kind (STREAM.md section 8) */
    VERSION_AT = 8,
    LENGTH_AT = 12,
    STREAM_2_VERSION = 4, /* 1 to 3 are of stream version 1 */
};

#define DAMAGED(error, ...)                                                                        \
    rp_fail(error, -RP_E_CORRUPT,                                                                  \
            "the run is unchanged; take another state token or an older checkpoint",               \
            "state token" __VA_ARGS__)

/* ---- tokens ---------------------------------------------------------------------------------- */

void rp_client_keep_token(struct rp_client *client, const uint8_t *token, size_t bytes,
                          uint64_t lease, uint64_t number)
{
    const struct rp_kept_token *newest = rp_client_newest(client);
    if (lease != 0 || newest->lease != 0 || newest->bytes == 0) /* else it replaces the newest */
        client->newest = (client->newest + 1) % RP_TOKENS_KEPT;
    struct rp_kept_token *kept = &client->kept[client->newest];
    memcpy(kept->token, token, bytes);
    kept->bytes = bytes;
    kept->lease = lease;
    kept->number = number;
}

void rp_client_advance(struct rp_client *client, const uint8_t *slot,
                       const struct rp_slot_header *header, uint64_t lease)
{
    const struct rp_geometry *g = &client->current->view.geometry;
    rp_client_keep_token(client, slot + header->state_offset, header->state_bytes, lease,
                         header->batch);
    client->next_row = header->next_row;
    uint64_t rows = (uint64_t)header->rows * g->world;
    uint64_t begin = header->first_row - (uint64_t)g->rank * header->rows;
    client->attach_row = begin + rows;
    client->step_row = header->micro_batch + 1 == header->micro_batches
                           ? client->attach_row
                           : begin - header->micro_batch * rows;
    client->lost_ns = 0;
}

int rp_client_reserve_tokens(struct rp_client *client, size_t bytes, struct rp_error *error)
{
    if (bytes <= client->token_capacity)
        return 0;
    for (unsigned i = 0; i < RP_TOKENS_KEPT; i++) {
        uint8_t *token = realloc(client->kept[i].token, bytes);
        if (!token)
            return rp_fail(error, -ENOMEM, NULL, "a state token of %zu bytes: out of memory",
                           bytes);
        client->kept[i].token = token;
    }
    client->token_capacity = bytes;
    return 0;
}

static size_t copy_token(const struct rp_kept_token *kept, void *buffer, size_t capacity)
{
    if (buffer && kept->bytes > 0 && capacity >= kept->bytes)
        memcpy(buffer, kept->token, kept->bytes);
    return kept->bytes;
}

size_t rp_client_state(const struct rp_client *client, void *buffer, size_t capacity)
{
    pthread_mutex_lock(rp_client_lock(client));
    size_t bytes = copy_token(rp_client_newest(client), buffer, capacity);
    pthread_mutex_unlock(rp_client_lock(client));
    return bytes;
}

size_t rp_client_state_before(const struct rp_client *client, void *buffer, size_t capacity)
{
    pthread_mutex_lock(rp_client_lock(client));
    unsigned before = (client->newest + RP_TOKENS_KEPT - 1) % RP_TOKENS_KEPT;
    size_t bytes = copy_token(&client->kept[before], buffer, capacity);
    pthread_mutex_unlock(rp_client_lock(client));
    return bytes;
}

size_t rp_client_state_after(const struct rp_client *client, const struct rp_batch *batch,
                             void *buffer, size_t capacity)
{
    size_t bytes = 0;
    pthread_mutex_lock(rp_client_lock(client));
    for (unsigned i = 0; i < RP_TOKENS_KEPT && bytes == 0; i++) {
        const struct rp_kept_token *kept = &client->kept[i];
        if (kept->lease != 0 && kept->lease == batch->lease && kept->number == batch->number)
            bytes = copy_token(kept, buffer, capacity);
    }
    pthread_mutex_unlock(rp_client_lock(client));
    return bytes;
}

int rp_client_check_state(const void *state, size_t bytes, struct rp_error *error)
{
    const uint8_t *token = state;
    if (bytes < TOKEN_BYTES_MIN)
        return DAMAGED(error, ": %zu bytes; even an empty one has %d", bytes, TOKEN_BYTES_MIN);
    if (memcmp(token, "RPSTATE", 8) != 0)
        return DAMAGED(error, ": these bytes are not a state token");
    uint32_t version = rp_load_u32(token + VERSION_AT), length = rp_load_u32(token + LENGTH_AT);
    if (length != bytes)
        return DAMAGED(error, ": it says that it has %" PRIu32 " bytes; %zu are there", length,
                       bytes);
    size_t hashed = bytes - sizeof(struct rp_hash128);
    if (!rp_hash128_equal(rp_hash128(token, hashed), rp_hash128_load(token + hashed)))
        return DAMAGED(error, ": its bytes have another hash than the one at its end");
    if (version < 1 || version > STREAM_2_VERSION)
        return rp_fail(error, -RP_E_VERSION, "use the ringpack that wrote it",
                       "state token: version %" PRIu32 "; this library reads versions 1 to %d",
                       version, STREAM_2_VERSION);
    return version == STREAM_2_VERSION ? 2 : 1;
}

int rp_client_stage_ended(const struct rp_client *client)
{
    return client->stage_ended;
}

static uint64_t read_row(const struct rp_client *client, const uint64_t *row)
{
    pthread_mutex_lock(rp_client_lock(client));
    uint64_t found = *row;
    pthread_mutex_unlock(rp_client_lock(client));
    return found;
}

uint64_t rp_client_next_row(const struct rp_client *client)
{
    return read_row(client, &client->next_row);
}

uint64_t rp_client_step_row(const struct rp_client *client)
{
    return read_row(client, &client->step_row);
}

int rp_client_counts(const struct rp_client *client, struct rp_client_counts *counts)
{
    int code = rp_sized_check(counts->struct_size, RP_COUNTS_REQUIRED, "rp_client_counts", NULL);
    if (code < 0)
        return code;
    pthread_mutex_lock(rp_client_lock(client));
    rp_sized_write(counts, &client->counts, sizeof client->counts);
    pthread_mutex_unlock(rp_client_lock(client));
    return 0;
}
