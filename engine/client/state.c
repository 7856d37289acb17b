/* SPDX-License-Identifier: Apache-2.0 */
/* state.c — where a client stands: its state token and next row, and what it has counted. */
#include <string.h>

#include "client/core.h"
#include "client/sized.h"

#define RP_COUNTS_REQUIRED RP_SIZE_WITH(rp_client_counts, struct_size)

static size_t copy_token(const uint8_t *token, size_t bytes, void *buffer, size_t capacity)
{
    if (buffer && capacity >= bytes)
        memcpy(buffer, token, bytes);
    return bytes;
}

size_t rp_client_state(const struct rp_client *client, void *buffer, size_t capacity)
{
    return copy_token(client->state, client->state_bytes, buffer, capacity);
}

size_t rp_client_state_before(const struct rp_client *client, void *buffer, size_t capacity)
{
    return copy_token(client->before, client->before_bytes, buffer, capacity);
}

uint64_t rp_client_next_row(const struct rp_client *client)
{
    return client->next_row;
}

int rp_client_counts(const struct rp_client *client, struct rp_client_counts *counts)
{
    int code = rp_sized_check(counts->struct_size, RP_COUNTS_REQUIRED, "rp_client_counts", NULL);
    if (code == 0)
        rp_sized_write(counts, &client->counts, sizeof client->counts);
    return code;
}
