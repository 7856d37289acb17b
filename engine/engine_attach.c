/* SPDX-License-Identifier: Apache-2.0 */
/* engine_attach — trainers come, go, and say where they want to go on.
 *
 * A trainer that begins where its ring stands gets the ring as it is. In every other case the flow
 * is stopped, rings are made anew and the flow is started at the row asked for: planning to it
 * costs 30-60 ns a document and no I/O, and what was prefetched is only read again. While other
 * trainers are attached a ring can move only within their numbering (base + k * batch_size *
 * dp_world_size); alone, a trainer may go to any row, and unattached rings move along, because all
 * ranks of a job go on from the same row.
 *
 * Invariant: a ring that had a trainer is never handed to the next one: the old one may still read
 * its leases. The new ring gets copies of the batches that were not released. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine_parts.h"

/* ---- plans and rings ------------------------------------------------------------------------- */

int rp_engine_probe_row(struct rp_engine *engine, uint64_t row, const void *token, size_t bytes,
                        struct rp_error *error)
{
    bool accept = engine->options->accept_weights;
    const void *best = engine->zero_state;
    size_t best_bytes = engine->zero_bytes;
    if (token) {
        int code = rp_plan_load(engine->probe, token, bytes, accept, error);
        if (code < 0)
            return code;
        if (rp_plan_row(engine->probe) != row)
            return rp_fail(error, -RP_E_MISMATCH, "present the state token unchanged",
                           "the state token stands at row %" PRIu64 ", the trainer at row %" PRIu64,
                           rp_plan_row(engine->probe), row);
        return 0;
    }
    if (engine->start_row <= row) {
        best = engine->start_state;
        best_bytes = engine->start_bytes;
    }
    uint64_t position = row >= engine->base_row ? (row - engine->base_row) / engine->batch_rows : 0;
    size_t kept_bytes;
    uint64_t kept_row;
    const void *kept = row >= engine->base_row && engine->flow
                           ? rp_flow_state_at(engine->flow, position, &kept_bytes, &kept_row)
                           : NULL;
    if (kept && kept_row <= row) {
        best = kept;
        best_bytes = kept_bytes;
    }
    int code = rp_plan_load(engine->probe, best, best_bytes, accept, error);
    if (code >= 0)
        code = rp_plan_seek(engine->probe, row, error);
    return code;
}

static int copy_unreleased(const struct rp_ring *from, struct rp_ring *to, uint64_t batch)
{
    if (from->data.fd < 0 || batch < from->release || batch >= from->tail)
        return 0;
    for (uint64_t k = batch; k < from->tail; k++)
        memcpy(rp_ring_slot(to, k), rp_ring_slot(from, k), to->geometry.slot_bytes);
    rp_ring_publish(to, from->tail);
    return 1;
}

int rp_engine_renew_ring(struct rp_engine *engine, uint32_t ring, uint64_t batch,
                         struct rp_error *error)
{
    struct rp_geometry geometry = engine->geometry;
    geometry.rank = engine->config->rank_first + ring;
    geometry.base_row = engine->base_row;
    struct rp_ring *old = &engine->rings[ring], fresh;
    int code = rp_ring_create(&fresh, &geometry, engine->identity, engine->generation, batch,
                              error);
    if (code < 0)
        return code;
    if (old->geometry.base_row == engine->base_row)
        (void)copy_unreleased(old, &fresh, batch);
    rp_ring_close(old);
    *old = fresh;
    engine->had_trainer[ring] = false;
    return 0;
}

static uint64_t lowest_tail(const struct rp_engine *engine)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t r = 0; r < engine->ring_count; r++)
        lowest = rp_min_u64(lowest, engine->rings[r].tail);
    return lowest;
}

static int load_from_probe(struct rp_engine *engine, struct rp_plan *plan, void *token,
                           struct rp_error *error)
{
    size_t bytes = rp_plan_save(engine->probe, token);
    return plan ? rp_plan_load(plan, token, bytes, false, error) : 0;
}

int rp_engine_start_flow(struct rp_engine *engine, struct rp_error *error)
{
    uint64_t batch = lowest_tail(engine);
    void *token = rp_calloc(1, engine->state_bytes_max);
    int code = token ? load_from_probe(engine, engine->plan, token, error) : -ENOMEM;
    if (code >= 0)
        code = load_from_probe(engine, engine->scout, token, error);
    free(token);
    if (code < 0)
        return code;
    code = rp_flow_start(engine->flow, engine->plan, engine->scout, engine->base_row, batch,
                         engine->rings, error);
    if (code < 0)
        return code;
    engine->flow_running = true;
    engine->flow_ended = false;
    for (uint32_t i = 0; i < engine->config->packers; i++) {
        int pidfd = rp_flow_packer_pidfd(engine->flow, i);
        if (pidfd >= 0)
            (void)rp_engine_watch(engine, pidfd, RP_WATCH_PACKER, i);
    }
    return 0;
}

void rp_engine_stop_flow(struct rp_engine *engine)
{
    rp_engine_finish_copy(engine);
    rp_flow_stop(engine->flow); /* closes pidfds, which leaves the epoll set */
    engine->flow_running = false;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static bool others_attached(const struct rp_engine *engine, uint32_t ring)
{
    for (uint32_t r = 0; r < engine->ring_count; r++)
        if (r != ring && engine->rings[r].control.fd >= 0)
            return true;
    return false;
}

/* The row at which the flow has to begin for every ring to get its next batch. */
static uint64_t flow_row(const struct rp_engine *engine)
{
    return engine->base_row + lowest_tail(engine) * engine->batch_rows;
}

/* Start the flow again after rings have changed. */
static int restart_flow(struct rp_engine *engine, struct rp_error *error)
{
    int code = rp_engine_probe_row(engine, flow_row(engine), NULL, 0, error);
    if (code == -RP_E_USAGE) /* among the tail rows behind the last one: the probe stands at the
                                stream's end */
        code = 0;
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}

/* All rings to `row`, in a numbering that has a step boundary there. The probe stands at it. The
 * numbering begins whole steps below the row, because ranks of one job are some micro-batches apart:
 * after a restart one that is behind may attach when another has already moved the rings. */
static int move_all(struct rp_engine *engine, uint64_t row, uint64_t *batch_out,
                    struct rp_error *error)
{
    rp_engine_stop_flow(engine);
    engine->base_row = row % engine->config->global_batch_size;
    *batch_out = (row - engine->base_row) / engine->batch_rows;
    rp_flow_forget_states(engine->flow);
    int code = 0;
    for (uint32_t r = 0; r < engine->ring_count && code >= 0; r++)
        code = rp_engine_renew_ring(engine, r, *batch_out, error);
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}

/* One ring to micro-batch `batch` of the present numbering. */
static int move_one(struct rp_engine *engine, uint32_t ring, uint64_t batch, struct rp_error *error)
{
    rp_engine_stop_flow(engine);
    int code = rp_engine_renew_ring(engine, ring, batch, error);
    return code < 0 ? code : restart_flow(engine, error);
}

/* Make ring `ring` stand at `row`; *batch_out is its number. The ring has no trainer now. */
static int place_ring(struct rp_engine *engine, uint32_t ring, const struct rp_request *request,
                      const void *token, uint64_t *batch_out, struct rp_error *error)
{
    struct rp_ring *r = &engine->rings[ring];
    uint64_t row = request->next_row;
    uint64_t ahead = row - engine->base_row;
    bool numbered = row == RP_NEXT_ROW_ANY ||
                    (row >= engine->base_row && ahead % engine->batch_rows == 0);
    uint64_t batch = row == RP_NEXT_ROW_ANY ? r->release : ahead / engine->batch_rows;
    if (token) { /* a token of another stream is refused even if its row is at hand */
        int code = rp_engine_probe_row(engine, row, token, request->state_bytes, error);
        if (code < 0)
            return code;
    }
    *batch_out = batch;
    bool at_hand = numbered && batch >= r->release && batch <= r->tail;
    if (at_hand)
        return engine->had_trainer[ring] ? move_one(engine, ring, batch, error) : 0;
    if (others_attached(engine, ring)) {
        if (!numbered)
            return rp_fail(
                error, -RP_E_BUSY, "let all ranks go on from the same row: detach the others first",
                "row %" PRIu64 " does not begin a micro-batch of the run that other ranks are in "
                "(base row %" PRIu64 ", %" PRIu64 " rows each)",
                row, engine->base_row, engine->batch_rows);
        return move_one(engine, ring, batch, error);
    }
    if (!token) {
        int code = rp_engine_probe_row(engine, row, NULL, 0, error);
        if (code < 0)
            return code;
    }
    return move_all(engine, row, batch_out, error);
}

/* ---- requests -------------------------------------------------------------------------------- */

void rp_engine_reply(struct rp_engine *engine, struct rp_connection *connection, uint32_t kind,
                     int code, const char *text)
{
    struct rp_reply reply = {.magic = RP_MESSAGE_MAGIC,
                             .abi_version = RP_ABI_VERSION,
                             .kind = kind,
                             .code = code,
                             .text_bytes = (uint32_t)strlen(text),
                             .generation = engine->generation};
    if (rp_socket_send(connection->fd, &reply, sizeof reply, text, reply.text_bytes, NULL, 0,
                       NULL) < 0)
        rp_engine_close_connection(engine, connection);
}

static void refuse(struct rp_engine *engine, struct rp_connection *connection,
                   const struct rp_error *error)
{
    char text[sizeof error->message + sizeof error->hint + 2];
    snprintf(text, sizeof text, "%s\n%s", error->message, error->hint);
    rp_log(RP_LOG_WARNING, "refused a trainer (pid %d): %s", connection->pid, error->message);
    rp_engine_reply(engine, connection, RP_REPLY_REFUSED, error->code, text);
    rp_engine_close_connection(engine, connection);
}

static int check_number(const char *what, uint64_t engines, uint64_t trainers,
                        struct rp_error *error)
{
    if (trainers == 0 || trainers == engines)
        return 0;
    return rp_fail(error, -RP_E_MISMATCH, "start the engine and the trainer with the same value",
                   "%s: the engine has %" PRIu64 ", the trainer expects %" PRIu64, what, engines,
                   trainers);
}

static int check_attach(struct rp_engine *engine, const struct rp_request *request,
                        struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    uint32_t ring = request->rank - c->rank_first;
    if (request->rank < c->rank_first || ring >= engine->ring_count)
        return rp_fail(error, -RP_E_USAGE,
                       "attach with a rank that this node serves (option `ranks`)",
                       "rank %u: this engine serves ranks %u to %u of %u", request->rank,
                       c->rank_first, c->rank_first + engine->ring_count - 1, c->dp_world_size);
    if (engine->rings[ring].control.fd >= 0)
        return rp_fail(error, -RP_E_BUSY, "each rank has one trainer; stop the other one first",
                       "rank %u is taken by a live trainer", request->rank);
    int code = check_number("dp_world_size", c->dp_world_size, request->world, error);
    if (code >= 0)
        code = check_number("batch_size", c->batch_size, request->rows, error);
    if (code >= 0)
        code = check_number("seq_len", c->seq_len, request->seq_len, error);
    struct rp_hash128 none = {0, 0};
    bool same = rp_hash128_equal(request->identity, none) ||
                rp_hash128_equal(request->identity, engine->identity) ||
                engine->options->accept_weights;
    if (code >= 0 && !same && request->state_bytes == 0)
        code = rp_fail(error, -RP_E_MISMATCH,
                       "restart the engine with the config and corpus it had",
                       "the stream the trainer has read is not the one this engine serves");
    return code;
}

/* The state token at the ring's next batch, so that the trainer can tell its state before the first
 * batch. */
static const void *welcome_state(struct rp_engine *engine, uint64_t batch,
                                 const struct rp_request *request, const void *token, size_t *bytes)
{
    uint64_t next_row;
    if (token) {
        *bytes = request->state_bytes;
        return token;
    }
    const void *kept = rp_flow_state_at(engine->flow, batch, bytes, &next_row);
    if (kept)
        return kept;
    uint64_t row = engine->base_row + batch * engine->batch_rows;
    *bytes = engine->start_bytes;
    return row == engine->start_row ? engine->start_state : NULL;
}

/* A trainer that goes on from a token need not know at which row that stands. */
static int take_row_of_token(struct rp_request *request, const void *token, struct rp_error *error)
{
    struct rp_state_info info;
    int code = rp_state_info(token, request->state_bytes, &info, error);
    if (code >= 0)
        request->next_row = info.next_row;
    return code;
}

static void attach_trainer(struct rp_engine *engine, struct rp_connection *connection,
                           struct rp_request *request, const void *token)
{
    struct rp_error error = {0};
    uint64_t batch = 0;
    uint32_t ring = request->rank - engine->config->rank_first;
    int code = check_attach(engine, request, &error);
    if (code >= 0 && engine->phase != RP_ENGINE_RUNNING)
        code = rp_fail(&error, -RP_E_BUSY, NULL, "the engine is stopping");
    if (code >= 0 && token && request->next_row == RP_NEXT_ROW_ANY)
        code = take_row_of_token(request, token, &error);
    if (code >= 0)
        code = place_ring(engine, ring, request, token, &batch, &error);
    if (code >= 0)
        code = rp_ring_attach_trainer(&engine->rings[ring], batch, &error);
    if (code < 0) {
        refuse(engine, connection, &error);
        return;
    }
    size_t state_bytes = 0;
    const void *state = welcome_state(engine, batch, request, token, &state_bytes);
    struct rp_reply reply = {.magic = RP_MESSAGE_MAGIC,
                             .abi_version = RP_ABI_VERSION,
                             .kind = RP_REPLY_WELCOME,
                             .text_bytes = state ? (uint32_t)state_bytes : 0,
                             .first_batch = batch,
                             .generation = engine->generation};
    int fds[2] = {engine->rings[ring].data.fd, engine->rings[ring].control.fd};
    connection->is_trainer = true;
    connection->ring = ring;
    engine->had_trainer[ring] = engine->ever_trained[ring] = true;
    if (rp_socket_send(connection->fd, &reply, sizeof reply, state, reply.text_bytes, fds, 2,
                       NULL) < 0) {
        rp_engine_close_connection(engine, connection);
        return;
    }
    rp_log(RP_LOG_INFO, "rank %u attached (pid %d) at row %" PRIu64, request->rank, request->pid,
           engine->base_row + batch * engine->batch_rows);
}

static void serve_request(struct rp_engine *engine, struct rp_connection *connection,
                          const uint8_t *message, size_t bytes)
{
    struct rp_request request;
    struct rp_error error = {0};
    if (bytes < sizeof request ||
        (memcpy(&request, message, sizeof request), request.magic) != RP_MESSAGE_MAGIC) {
        rp_log(RP_LOG_WARNING, "closed a connection that does not speak ringpack's protocol");
        rp_engine_close_connection(engine, connection);
        return;
    }
    connection->pid = request.pid;
    if (request.abi_version != RP_ABI_VERSION) {
        (void)rp_fail(&error, -RP_E_VERSION,
                      "use the client library and the program of one release",
                      "shared-memory version: the engine has %u, the trainer %u", RP_ABI_VERSION,
                      request.abi_version);
        refuse(engine, connection, &error);
    } else if (request.kind == RP_REQUEST_ATTACH && request.state_bytes == bytes - sizeof request) {
        attach_trainer(engine, connection, &request,
                       request.state_bytes ? message + sizeof request : NULL);
    } else if (request.kind == RP_REQUEST_STAT) {
        char *text = rp_engine_stat(engine);
        rp_engine_reply(engine, connection, RP_REPLY_TEXT, 0, text ? text : "{}");
        free(text);
    } else if (request.kind == RP_REQUEST_STOP && engine->phase == RP_ENGINE_RUNNING) {
        connection->asks = RP_REQUEST_STOP;
        engine->phase = RP_ENGINE_STOPPING;
        engine->save_wanted = engine->checkpoints != NULL;
    } else if (request.kind == RP_REQUEST_CHECKPOINT && engine->checkpoints) {
        connection->asks = RP_REQUEST_CHECKPOINT;
        engine->save_wanted = true;
    } else {
        (void)rp_fail(&error, -RP_E_USAGE,
                      "a checkpoint needs checkpoint_dir in the engine's config",
                      "the engine cannot do what was asked (request %u)", request.kind);
        refuse(engine, connection, &error);
    }
}

/* ---- connections ----------------------------------------------------------------------------- */

void rp_engine_serve_connection(struct rp_engine *engine, struct rp_connection *connection)
{
    int fds[2];
    if (connection->is_trainer) {
        char doorbells[64]; /* what they say is nothing: the loop reads release words anyway */
        ssize_t got = recv(connection->fd, doorbells, sizeof doorbells, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            rp_engine_close_connection(engine, connection);
        return;
    }
    uint8_t *message = malloc(RP_MESSAGE_BYTES_MAX);
    int64_t bytes = message ? rp_socket_receive(connection->fd, message, RP_MESSAGE_BYTES_MAX, fds,
                                                0, NULL)
                            : 0;
    for (int i = 0; message && bytes > 0 && i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]); /* nobody has a reason to send us descriptors */
    if (bytes > 0 && !connection->asks)
        serve_request(engine, connection, message, (size_t)bytes);
    else if (bytes != -EAGAIN && bytes != -RP_E_TIMEOUT)
        rp_engine_close_connection(engine, connection);
    free(message);
}

void rp_engine_accept(struct rp_engine *engine)
{
    for (;;) {
        int fd = rp_listener_accept(&engine->listener, NULL);
        if (fd < 0)
            return;
        uint32_t index = 0;
        while (index < RP_CONNECTIONS_MAX && engine->connections[index].fd >= 0)
            index++;
        if (index == RP_CONNECTIONS_MAX ||
            rp_engine_watch(engine, fd, RP_WATCH_CONNECTION, index) < 0) {
            close(fd);
            continue;
        }
        engine->connections[index] = (struct rp_connection){.fd = fd};
    }
}

void rp_engine_close_connection(struct rp_engine *engine, struct rp_connection *connection)
{
    if (connection->fd < 0)
        return;
    close(connection->fd);
    connection->fd = -1;
    if (!connection->is_trainer)
        return;
    struct rp_ring *ring = &engine->rings[connection->ring];
    (void)rp_ring_poll_release(ring); /* its last word, before the page goes */
    rp_ring_detach_trainer(ring);
    rp_log(RP_LOG_INFO, "rank %u detached (pid %d) at row %" PRIu64,
           engine->config->rank_first + connection->ring, connection->pid,
           engine->base_row + ring->release * engine->batch_rows);
}
