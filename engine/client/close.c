/* SPDX-License-Identifier: Apache-2.0 */
/* close.c — the call that takes batches, and the end of a client while other threads use it.
 *
 * A call that takes batches uses the current mapping without `lock`, so there is one at a time: a
 * second one is refused. The end of this call in a closed client, or the release of its last lease,
 * leaves the engine. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "client/core.h"

int rp_client_begin_call(struct rp_client *client, struct rp_error *error)
{
    pthread_mutex_lock(&client->lock);
    bool closed = client->life != RP_CLIENT_OPEN, in_call = client->in_call;
    client->in_call = in_call || !closed;
    pthread_mutex_unlock(&client->lock);
    if (closed)
        return rp_fail(error, -RP_E_USAGE, "attach another client",
                       "rank %" PRIu32 ": this client was closed", client->options.rank);
    if (in_call)
        return rp_fail(error, -RP_E_CONCURRENT,
                       "let one thread at a time take batches; any thread may release them",
                       "rank %" PRIu32 ": another thread is inside a call of this client",
                       client->options.rank);
    return 0;
}

bool rp_client_is_closed(struct rp_client *client)
{
    pthread_mutex_lock(&client->lock);
    bool closed = client->life != RP_CLIENT_OPEN;
    pthread_mutex_unlock(&client->lock);
    return closed;
}

void rp_client_end_call(struct rp_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->in_call = false;
    rp_client_leave_if_closed(client);
    pthread_mutex_unlock(&client->lock);
}

void rp_client_close(struct rp_client *client)
{
    if (client->forked)
        return;
    pthread_mutex_lock(&client->lock);
    if (client->life == RP_CLIENT_OPEN)
        client->life = RP_CLIENT_CLOSED;
    bool is_idle = !client->in_call;
    rp_client_leave_if_closed(client);
    pthread_mutex_unlock(&client->lock);
    if (is_idle)
        rp_client_digest_end(client);
}

void rp_client_free(struct rp_client *client)
{
    rp_client_leave(client);
    rp_client_delist(client);
    pthread_mutex_destroy(&client->lock);
    free(client->run);
    free(client->run_dir);
    free(client->digest.path);
    free(client->expected);
    for (unsigned i = 0; i < RP_TOKENS_KEPT; i++)
        free(client->kept[i].token);
    free(client->contract_text);
    free(client);
}

void rp_client_detach(struct rp_client *client)
{
    if (!client || client->forked)
        return; /* a child did not inherit the mappings; other memory may be at their addresses */
    rp_client_digest_end(client);
    pthread_mutex_lock(&client->lock);
    client->life = RP_CLIENT_DETACHED;
    bool last = client->leases == 0;
    pthread_mutex_unlock(&client->lock);
    if (last)
        rp_client_free(client);
    /* else it stays open: the engine may reuse the slots as soon as the socket is closed */
}
