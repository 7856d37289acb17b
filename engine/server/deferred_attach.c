/* SPDX-License-Identifier: Apache-2.0 */
#include "server/deferred_attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

#define DEFERRED_MAX 64u /* each keeps two state tokens */

int rp_peers_defer_attach(struct rp_peers *peers, struct rp_connection *connection,
                          const struct rp_request *request, const void *token,
                          struct rp_far_row *far, struct rp_error *error)
{
    RP_ASSERT(far->progress == RP_FAR_OPEN && !connection->seat);
    if (connection->deferred) {
        RP_ASSERT(far == &connection->deferred->far);
        connection->awaits = RP_AWAITS_ROW;
        return 0;
    }
    if (peers->deferred_count == DEFERRED_MAX)
        return rp_fail(error, -RP_E_BUSY, "try again later, or bring a state token",
                       "%u trainers wait for rows that are far from the engine's row",
                       DEFERRED_MAX);
    struct rp_deferred_attach *deferred = malloc(sizeof *deferred + request->state_bytes);
    if (!deferred)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a trainer's request");
    deferred->request = *request;
    deferred->far = *far;
    if (request->state_bytes)
        memcpy(deferred->token, token, request->state_bytes);
    *far = (struct rp_far_row){0};
    connection->awaits = RP_AWAITS_ROW;
    connection->deferred = deferred;
    peers->deferred_count++;
    return 0;
}

void rp_engine_forget_deferred(struct rp_engine *engine, struct rp_connection *connection)
{
    struct rp_deferred_attach *deferred = connection->deferred;
    if (!deferred)
        return;
    RP_ASSERT(engine->peers.deferred_count > 0);
    rp_far_row_forget(&engine->stream.planner, &deferred->far);
    free(deferred);
    connection->deferred = NULL;
    connection->awaits = RP_AWAITS_NOTHING;
    engine->peers.deferred_count--;
}

void rp_engine_forget_far(struct rp_engine *engine)
{
    struct rp_connection *connection;
    for (uint32_t i = 0; (connection = rp_peers_next(&engine->peers, &i));)
        if (connection->deferred)
            rp_far_row_expire(&engine->stream.planner, &connection->deferred->far);
    rp_far_row_forget(&engine->stream.planner, &engine->saving.saver.far);
    rp_fd_wake(engine->stream.planner.done_fd);
}

void rp_engine_plan_far(struct rp_engine *engine)
{
    struct rp_error error;
    struct rp_far_row *sooner = rp_far_row_sooner(NULL, &engine->saving.saver.far);
    struct rp_connection *connection;
    for (uint32_t i = 0; (connection = rp_peers_next(&engine->peers, &i));)
        if (connection->deferred)
            sooner = rp_far_row_sooner(sooner, &connection->deferred->far);
    if (rp_far_planner_serve(&engine->stream.planner, sooner, &error) < 0)
        rp_log(RP_LOG_WARNING, "cannot plan to rows that are far away: %s", error.message);
}
