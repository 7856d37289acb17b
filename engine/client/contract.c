/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c — the contract of a trainer with the engines that it meets (base/contract.h).
 *
 * Invariant: from the first WELCOME on the client has a contract, and every later engine agrees
 * with it in each field that may not differ at a re-attachment. The client keeps the newest
 * contract; once it has one with the full fingerprint of the corpus, it keeps none without: an
 * engine has that fingerprint only if its corpus was indexed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/core.h"
#include "client/message.h"

/* Does a section have another type, or exist in only one of the two? */
static bool sections_differ(const struct rp_geometry *a, const struct rp_geometry *b)
{
    for (unsigned i = 0; i < RP_SECTION_ROOM; i++)
        if (a->sections[i].dtype != b->sections[i].dtype ||
            a->sections[i].bytes != b->sections[i].bytes)
            return true;
    return false;
}

/* Equal contracts mean equal batches. But a trainer could read beyond a section if an engine's ring
 * differed from its contract, so the shape of the ring is also compared. */
static int check_shape(const struct rp_geometry *was, const struct rp_geometry *is,
                       struct rp_error *error)
{
    if (was->rows == is->rows && was->seq_len == is->seq_len && was->world == is->world &&
        was->label_mode == is->label_mode && was->pad_id == is->pad_id &&
        was->micro_batches == is->micro_batches && !sections_differ(was, is) &&
        memcmp(was->sides, is->sides, sizeof was->sides) == 0)
        return 0;
    return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION,
                   "the engine's batches have another shape than its contract says");
}

static int compare(const struct rp_client *client, const struct rp_contract *found,
                   struct rp_error *error)
{
    bool has_token = rp_client_newest(client)->bytes > 0; /* the engine has compared it */
    const struct rp_contract_sides sides = {RP_AT_REATTACH, "the trainer", "the engine", 0,
                                            has_token ? RP_RECORDS_OF_TOKEN : client->attach_row};
    return client->contract_text ? rp_contract_compare(&client->contract, found, &sides, error) : 0;
}

static int keep(struct rp_client *client, const char *text, size_t bytes, struct rp_error *error)
{
    char *copy = malloc(bytes), *older = client->contract_text;
    struct rp_contract contract;
    if (!copy)
        return rp_fail(error, -ENOMEM, NULL, "a contract of %zu bytes: out of memory", bytes);
    memcpy(copy, text, bytes);
    int code = rp_contract_open(&contract, copy, bytes, error);
    if (code < 0) {
        free(copy);
        return code;
    }
    pthread_mutex_lock(&client->lock); /* other threads may read it */
    client->contract_text = copy;
    client->contract = contract;
    pthread_mutex_unlock(&client->lock);
    free(older);
    return 0;
}

int rp_client_take_contract(struct rp_client *client, const struct rp_ring_view *view,
                            const char *text, size_t bytes, struct rp_error *error)
{
    struct rp_contract found;
    struct rp_error damage;
    if (rp_contract_open(&found, text, bytes, &damage) < 0)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION, "the engine's contract: %s",
                       damage.message);
    if (!rp_hash128_equal(rp_contract_hash(&found), view->contract))
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION,
                       "the engine's contract and its batch ring have different hashes");
    int code = compare(client, &found, error);
    if (code == 0 && client->contract_text)
        code = check_shape(&client->geometry, &view->geometry, error);
    if (code < 0)
        return code;
    bool knows_less = client->contract_text && rp_contract_knows_whole(&client->contract) &&
                      !rp_contract_knows_whole(&found);
    return knows_less ? 0 : keep(client, text, bytes, error);
}

/* ---- queries of the trainer ------------------------------------------------------------------ */

void rp_client_identity(const struct rp_client *client, uint64_t identity[2])
{
    pthread_mutex_lock(rp_client_lock(client));
    struct rp_hash128 hash = rp_record_hash(&client->contract.stream);
    pthread_mutex_unlock(rp_client_lock(client));
    identity[0] = hash.low;
    identity[1] = hash.high;
}

size_t rp_client_contract(const struct rp_client *client, char *buffer, size_t capacity)
{
    pthread_mutex_lock(rp_client_lock(client));
    size_t bytes = rp_contract_bytes(&client->contract);
    if (buffer && capacity >= bytes)
        memcpy(buffer, rp_contract_text(&client->contract), bytes);
    pthread_mutex_unlock(rp_client_lock(client));
    return bytes;
}

int rp_contract_agree(const char *name, const char *text, size_t bytes, const char *other_name,
                      const char *other_text, size_t other_bytes, struct rp_error *error)
{
    const struct rp_contract_sides sides = {RP_ON_NODES, name, other_name, 0, 0};
    struct rp_contract one, other;
    int code = rp_contract_open(&one, text, bytes, error);
    if (code < 0)
        return rp_fail_context(error, code, "%s", name);
    code = rp_contract_open(&other, other_text, other_bytes, error);
    if (code < 0)
        return rp_fail_context(error, code, "%s", other_name);
    code = rp_contract_compare(&one, &other, &sides, error);
    if (code < 0)
        return code;
    return rp_contract_knows_whole(&one) && rp_contract_knows_whole(&other);
}
