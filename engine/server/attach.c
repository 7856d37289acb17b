/* SPDX-License-Identifier: Apache-2.0 */
/* attach.c — serves the requests of peers: attach, stat, checkpoint, stop.
 *
 * Invariants:
 *
 *   - Each message of a peer is checked here before any use of it. A message that is no request of
 *     this protocol ends the connection without an answer. A request gets one answer, or the end of
 *     its connection.
 *   - A seat is ATTACHED if and only if one connection has it (rp_engine_check_seats).
 *   - The connections of consumers that died before a request came are closed before that request
 *     is served, so that a rollback finds their seats absent. A consumer is dead if its connection
 *     or, by its pidfd, its process has ended.
 *   - Each connection is in one of the conditions of struct rp_connection. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/attach.h"
#include "server/connections.h"
#include "server/live_records.h"
#include "server/locate.h"
#include "server/deferred_attach.h"
#include "server/loop.h"
#include "server/probe.h"
#include "server/rejoin.h"
#include "server/save.h"
#include "server/seats.h"
#include "server/shutdown.h"
#include "server/stat.h"
#include "shm/peer.h"

/* More than a socket's buffer holds, so that the connection's end after them is read as well. */
#define DOORBELLS_AT_ONCE 1024u
#define REFUSAL_LOG_NS 10000000000u /* at least this long between two log lines of one refusal */

/* ---- requests -------------------------------------------------------------------------------- */

/* A trainer that is refused again for the same reason is logged at intervals. */
static bool must_log_refusal(struct rp_logged_refusal *last, int32_t pid, const char *reason)
{
    struct rp_logged_refusal now = {pid, rp_hash64(reason, strlen(reason)), rp_now_ns()};
    if (last->logged_ns && last->pid == pid && last->reason_hash == now.reason_hash &&
        now.logged_ns - last->logged_ns < REFUSAL_LOG_NS)
        return false;
    *last = now;
    return true;
}

static void refuse(struct rp_engine *engine, struct rp_connection *connection,
                   const struct rp_error *error)
{
    char text[RP_ENGINE_TEXT_BYTES];
    rp_engine_error_text(error, text);
    if (must_log_refusal(&engine->peers.refusal, connection->pid, error->message))
        rp_log_event(RP_EVENT_refused, "refused a trainer (pid %d): %s", connection->pid,
                     error->message);
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

/* The files of the corpus are in no contract, because a copy of the corpus has other files. So a
 * trainer's expectation of them is compared here. */
static int check_files(const struct rp_stream *stream, const struct rp_contract *expected,
                       struct rp_error *error)
{
    struct rp_field field;
    const char *files = stream->corpus_files;
    if (!rp_record_find(&expected->stream, "corpus_files", &field) || !*files ||
        (field.value_bytes == strlen(files) && !memcmp(field.value, files, field.value_bytes)))
        return 0;
    return rp_fail(error, -RP_E_MISMATCH,
                   "the run is unchanged; if both have one corpus, expect its whole contract, as "
                   "`ringpack config contract` prints it",
                   "corpus_files differs: the trainer has %.*s, the engine has %s",
                   (int)field.value_bytes, field.value, files);
}

/* After the state token a trainer sends the contract that it has or, when it attaches for the first
 * time, the fields that it expects. */
static int check_contract(struct rp_stream *stream, const struct rp_request *request,
                          const uint8_t *body, struct rp_error *error)
{
    const char *text = (const char *)body + request->state_bytes;
    bool expects = request->expects != 0;
    bool has_row = !expects && request->next_row != RP_NEXT_ROW_ANY;
    struct rp_contract_sides sides = {expects ? RP_AT_ATTACH : RP_AT_REATTACH, "the trainer",
                                      "the engine", stream->config->weight_unit,
                                      has_row ? request->next_row : 0};
    struct rp_contract had;
    struct rp_error damage;
    if (request->contract_bytes == 0)
        return 0;
    if (rp_contract_open(&had, text, request->contract_bytes, &damage) < 0)
        return rp_fail(error, -RP_E_PROTOCOL,
                       "use the client library and the program of one release",
                       "the trainer's contract: %s", damage.message);
    int code = rp_contract_compare(&had, &stream->contract, &sides, error);
    sides.records_from = RP_RECORDS_OF_TOKEN;
    if (code < 0 && !expects && request->state_bytes > 0 &&
        rp_contract_compare(&had, &stream->contract, &sides, &damage) == 0 &&
        rp_plan_has_records_of(stream->probe, body, request->state_bytes))
        code = 0; /* the trainer has its contract from before the records */
    return code == 0 && expects ? check_files(stream, &had, error) : code;
}

static int check_attach(struct rp_engine *engine, const struct rp_request *request,
                        struct rp_seat **seat_out, struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    uint32_t ring = request->rank - c->rank_first;
    if (request->rank < c->rank_first || ring >= engine->delivery.ring_count)
        return rp_fail(
            error, -RP_E_USAGE, "attach with a rank that this node serves (option `ranks`)",
            "rank %u: this engine serves ranks %u to %u of %u", request->rank, c->rank_first,
            c->rank_first + engine->delivery.ring_count - 1, c->dp_world_size);
    if (request->replica >= c->consumers_per_rank)
        return rp_fail(
            error, -RP_E_USAGE,
            "start the engine with as many `consumers_per_rank` as trainers read each ring",
            "replica %u of rank %u: this engine serves %u, counted from 0", request->replica,
            request->rank, c->consumers_per_rank);
    *seat_out = &engine->delivery.seats[ring * c->consumers_per_rank + request->replica];
    if (rp_seat_is_attached(*seat_out)) {
        char name[RP_SEAT_NAME_BYTES];
        return rp_fail(
            error, -RP_E_BUSY,
            "stop that trainer first; option `consumers_per_rank` lets several read one rank",
            "%s is taken by a live trainer, process %" PRId32, rp_seat_name(*seat_out, name),
            rp_seat_connection(&engine->peers, *seat_out)->pid);
    }
    int code = check_number("consumers_per_rank", c->consumers_per_rank, request->replicas, error);
    if (code >= 0)
        code = check_number("dp_world_size", c->dp_world_size, request->world, error);
    if (code >= 0)
        code = check_number("batch_size", c->batch_size, request->rows, error);
    if (code >= 0)
        code = check_number("seq_len", engine->delivery.geometry.seq_len, request->seq_len, error);
    return code;
}

/* The state before the trainer's first batch, so that it has a state before it takes that batch.
 * Written to `scratch` if neither the trainer nor the flow has the token. */
static struct rp_row_state welcome_state(struct rp_engine *engine, uint64_t batch,
                                         const struct rp_request *request, const void *token,
                                         void *scratch)
{
    struct rp_row_state state = {token, request->state_bytes, request->next_row};
    if (!state.token)
        state = rp_flow_state_at(engine->delivery.flow, batch);
    if (state.token || rp_engine_probe_batch(engine, batch, NULL) < 0)
        return state;
    state.bytes = rp_plan_save(engine->stream.probe, scratch);
    state.token = state.bytes > 0 ? scratch : NULL;
    return state;
}

/* A trainer that sends a token need not name a row: the token's row is the requested one. */
static int take_row_of_token(struct rp_request *request, const void *token, struct rp_error *error)
{
    struct rp_state_info info;
    int code = rp_state_info(token, request->state_bytes, &info, error);
    if (code >= 0)
        request->next_row = info.next_row;
    return code;
}

/* Check the request, and attach the trainer to its seat, at its row; -EINPROGRESS: the row is far.
 * If the flow cannot be started again the engine fails. */
static int place_trainer(struct rp_engine *engine, struct rp_request *request, const void *token,
                         struct rp_seat **seat_out, uint64_t *batch_out, struct rp_error *error)
{
    bool names_row = request->next_row != RP_NEXT_ROW_ANY,
         ran = rp_delivery_runs(&engine->delivery);
    int code = check_attach(engine, request, seat_out, error);
    if (code >= 0 && rp_life_is_ending(&engine->life))
        code = rp_fail(error, -RP_E_BUSY, NULL, "the engine is stopping");
    if (code >= 0 && token && !names_row)
        code = take_row_of_token(request, token, error);
    if (code < 0)
        return code;
    int64_t batch = rp_engine_rejoin(engine, *seat_out, request, names_row, token, error);
    if (ran && !rp_delivery_runs(&engine->delivery)) {
        RP_ASSERT(batch < 0);
        *engine->life.error = *error;
        rp_engine_fail(engine, (int)batch);
    }
    *batch_out = (uint64_t)batch;
    return batch < 0 ? (int)batch : 0;
}

static int welcome(struct rp_engine *engine, const struct rp_connection *connection, uint64_t batch,
                   const struct rp_request *request, const void *token)
{
    size_t contract_bytes = rp_contract_bytes(&engine->stream.contract);
    uint64_t state_room = rp_max_u64(engine->stream.state_bytes_max, request->state_bytes);
    uint8_t *body = rp_calloc(1, state_room + contract_bytes);
    if (!body)
        return -ENOMEM;
    const struct rp_row_state state = welcome_state(engine, batch, request, token, body);
    size_t state_bytes = state.token ? state.bytes : 0;
    RP_ASSERT(state_bytes <= state_room);
    if (state.token && state.token != body)
        memcpy(body, state.token, state_bytes);
    memcpy(body + state_bytes, rp_contract_text(&engine->stream.contract), contract_bytes);
    struct rp_reply reply = {.magic = RP_MESSAGE_MAGIC,
                             .abi_version = RP_ABI_VERSION,
                             .kind = RP_REPLY_WELCOME,
                             .text_bytes = (uint32_t)(state_bytes + contract_bytes),
                             .contract_bytes = (uint32_t)contract_bytes,
                             .first_batch = batch,
                             .first_row = rp_delivery_row(&engine->delivery, batch),
                             .step_row = rp_delivery_step_row(&engine->delivery, batch),
                             .generation = engine->delivery.generation};
    const struct rp_seat *seat = connection->seat;
    int fds[2] = {seat->ring->data.fd, seat->ring->seats[seat->replica].control.fd};
    const struct rp_message message = {.header = &reply,
                                       .header_bytes = sizeof reply,
                                       .body = body,
                                       .body_bytes = reply.text_bytes,
                                       .fds = fds,
                                       .fd_count = 2};
    int code = rp_socket_send(connection->fd, &message, NULL);
    free(body);
    return code;
}

/* Read the doorbells of a consumer, and close the connection if it has ended. */
static void serve_doorbells(struct rp_engine *engine, struct rp_connection *connection)
{
    char doorbell[64]; /* its bytes have no meaning: the loop, now awake, reads the release words */
    ssize_t got = 1;
    for (unsigned rung = 0; got > 0 && rung < DOORBELLS_AT_ONCE; rung++)
        got = recv(connection->fd, doorbell, sizeof doorbell, MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    rp_engine_close_connection(engine, connection);
    rp_engine_check_seats(engine);
}

/* A child may hold the socket of a consumer that died, so that its connection does not end. */
static bool outlives_its_consumer(const struct rp_connection *connection)
{
    const struct rp_seat *seat = connection->fd >= 0 ? connection->seat : NULL;
    return seat && rp_peer_has_ended(seat->ring->seats[seat->replica].reader_fd);
}

/* Close the connections of dead consumers, also those whose epoll events have not been served. Each
 * attach does it, so no system call is made for a living consumer: thousands may attach. */
static void reap_dead_connections(struct rp_engine *engine)
{
    uint32_t ended[RP_ENDED_MAX], count, closed;
    do {
        count = rp_loop_ended(&engine->loop, ended);
        closed = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct rp_connection *connection = &engine->peers.connections[ended[i]];
            if (connection->fd < 0 || !connection->seat)
                continue;
            serve_doorbells(engine, connection);
            if (outlives_its_consumer(connection)) {
                rp_engine_close_connection(engine, connection);
                rp_engine_check_seats(engine);
            }
            closed += connection->fd < 0;
        }
    } while (count == RP_ENDED_MAX && closed); /* a copy of a socket may be in a child */
}

/* The seat is attached: give it to the connection, and send WELCOME. */
static void begin_serving(struct rp_engine *engine, struct rp_connection *connection,
                          struct rp_seat *seat, uint64_t batch, const struct rp_request *request,
                          const void *token)
{
    char name[RP_SEAT_NAME_BYTES];
    RP_ASSERT(connection->fd >= 0 && !connection->seat && rp_seat_is_attached(seat));
    connection->seat = seat;
    connection->first_batch = batch;
    int pidfd = rp_peer_open(connection->fd);
    rp_ring_set_reader(seat->ring, seat->replica, pidfd);
    rp_engine_check_seats(engine);
    uint32_t index = (uint32_t)(connection - engine->peers.connections);
    if (rp_loop_watch_end(&engine->loop, connection->fd, pidfd, index) < 0 ||
        welcome(engine, connection, batch, request, token) < 0) {
        rp_engine_close_connection(engine, connection);
        return;
    }
    rp_log_event(RP_EVENT_attached, "%s attached (pid %d) at row %" PRIu64,
                 rp_seat_name(seat, name), connection->pid,
                 rp_delivery_row(&engine->delivery, batch));
}

/* Attach the trainer, refuse it, or keep its request until its row has been planned to. */
static void attach_trainer(struct rp_engine *engine, struct rp_connection *connection,
                           const struct rp_request *request, const void *token)
{
    struct rp_error error = {0};
    struct rp_far_row fresh = {0};
    struct rp_request placed = *request;
    struct rp_seat *seat = NULL;
    uint64_t batch = 0;
    reap_dead_connections(engine);
    engine->stream.far = connection->deferred ? &connection->deferred->far : &fresh;
    int code = place_trainer(engine, &placed, token, &seat, &batch, &error);
    bool is_far = code == -EINPROGRESS;
    if (is_far)
        code = rp_peers_defer_attach(&engine->peers, connection, request, token, engine->stream.far,
                                     &error);
    if (code < 0)
        refuse(engine, connection, &error);
    else if (!is_far)
        begin_serving(engine, connection, seat, batch, &placed, token);
    engine->stream.far = NULL;
    rp_far_row_forget(&engine->stream.planner, &fresh);
}

void rp_engine_retry_deferred(struct rp_engine *engine)
{
    struct rp_connection *connection;
    for (uint32_t i = 0; (connection = rp_peers_next(&engine->peers, &i));) {
        struct rp_deferred_attach *deferred = connection->deferred;
        if (!deferred || (!rp_far_row_is_due(&deferred->far) && rp_life_is_running(&engine->life)))
            continue;
        connection->awaits = RP_AWAITS_NOTHING;
        attach_trainer(engine, connection, &deferred->request,
                       deferred->request.state_bytes ? deferred->token : NULL);
        if (connection->awaits != RP_AWAITS_ROW)
            rp_engine_forget_deferred(engine, connection);
    }
    rp_engine_plan_far(engine);
}

/* Is the request of this protocol version and for this run? */
static int check_header(const struct rp_config *config, const struct rp_request *request,
                        struct rp_error *error)
{
    if (request->abi_version != RP_ABI_VERSION)
        return rp_fail(error, -RP_E_VERSION,
                       "use the client library and the program of one release",
                       "shared-memory version: the engine has %u, the trainer %u", RP_ABI_VERSION,
                       request->abi_version);
    if (strncmp(request->run, config->run, sizeof request->run) != 0)
        return rp_fail(error, -RP_E_MISMATCH,
                       "its socket was moved or linked to another name: remove that name",
                       "run %.64s: the engine behind its name serves run %s", request->run,
                       config->run);
    return 0;
}

/* Send the text (NULL: an empty one), or refuse the request if there is an error. */
static void answer(struct rp_engine *engine, struct rp_connection *connection,
                   const struct rp_error *error, const char *text)
{
    if (error)
        refuse(engine, connection, error);
    else
        rp_engine_reply(engine, connection, RP_REPLY_TEXT, 0, text ? text : "");
}

/* Can the engine serve this kind of request now? `body_bytes` bytes follow the request. */
static int check_kind(const struct rp_engine *engine, const struct rp_request *request,
                      uint64_t body_bytes, struct rp_error *error)
{
    bool is_whole = (uint64_t)request->state_bytes + request->contract_bytes == body_bytes;
    bool can_serve = false;
    switch ((enum rp_request_kind)request->kind) {
    case RP_REQUEST_STAT:
    case RP_REQUEST_STOP:
        can_serve = true;
        break;
    case RP_REQUEST_ATTACH:
        can_serve = is_whole;
        break;
    case RP_REQUEST_LOCATE:
    case RP_REQUEST_WEIGHTS:
        can_serve = is_whole && request->contract_bytes == 0;
        break;
    case RP_REQUEST_CHECKPOINT:
        can_serve = rp_engine_may_save(engine);
        if (!can_serve && rp_life_is_ending(&engine->life)) /* the last save has begun */
            return rp_fail(error, -RP_E_BUSY, NULL, "the engine is stopping");
        if (!can_serve)
            return rp_fail(error, -RP_E_USAGE, "start it with a checkpoint_dir",
                           "this engine has no checkpoint_dir, and so saves no checkpoint");
        break;
    }
    return can_serve ? 0
                     : rp_fail(error, -RP_E_USAGE,
                               "use the client library and the program of one release",
                               "the engine does not know this request (%u)", request->kind);
}

static void serve_attach(struct rp_engine *engine, struct rp_connection *connection,
                         const struct rp_request *request, const uint8_t *body)
{
    struct rp_error error = {0};
    if (check_contract(&engine->stream, request, body, &error) < 0) {
        refuse(engine, connection, &error);
        return;
    }
    attach_trainer(engine, connection, request, request->state_bytes ? body : NULL);
    rp_engine_plan_far(engine);
}

static void serve_request(struct rp_engine *engine, struct rp_connection *connection,
                          const struct rp_request *request, const uint8_t *body,
                          uint64_t body_bytes)
{
    struct rp_error error = {0};
    char *text = NULL;
    int code = check_header(engine->config, request, &error);
    if (code >= 0)
        code = check_kind(engine, request, body_bytes, &error);
    if (code < 0) {
        refuse(engine, connection, &error);
        return;
    }
    switch ((enum rp_request_kind)request->kind) {
    case RP_REQUEST_ATTACH:
        serve_attach(engine, connection, request, body);
        break;
    case RP_REQUEST_LOCATE:
        code = rp_engine_locate(&engine->stream, body, body_bytes, &text, &error);
        answer(engine, connection, code < 0 ? &error : NULL, text);
        break;
    case RP_REQUEST_WEIGHTS:
        code = rp_engine_set_record(engine, body, body_bytes, &text, &error);
        answer(engine, connection, code < 0 ? &error : NULL, text);
        break;
    case RP_REQUEST_STAT:
        text = rp_engine_stat(engine);
        answer(engine, connection, NULL, text ? text : "{}");
        break;
    case RP_REQUEST_STOP:
        connection->awaits = RP_AWAITS_END;
        if (!rp_life_is_ending(&engine->life))
            rp_engine_begin_stop(engine, RP_SHUTDOWN_REQUEST);
        break;
    case RP_REQUEST_CHECKPOINT:
        connection->awaits = RP_AWAITS_NEXT_SAVE;
        rp_saving_want(&engine->saving);
        break;
    }
    free(text);
}

/* A message of another protocol gets no answer. A request of another version of this one, which may
 * have another size, does. */
static void serve_message(struct rp_engine *engine, struct rp_connection *connection,
                          const uint8_t *message, size_t bytes)
{
    struct rp_request request = {0};
    memcpy(&request, message, rp_min_u64(bytes, sizeof request));
    bool is_whole = bytes >= sizeof request || request.abi_version != RP_ABI_VERSION;
    if (request.magic != RP_MESSAGE_MAGIC || !is_whole) {
        rp_log(RP_LOG_WARNING, "closed a connection that does not speak ringpack's protocol");
        rp_engine_close_connection(engine, connection);
        return;
    }
    connection->pid = request.pid;
    serve_request(engine, connection, &request, message + rp_min_u64(bytes, sizeof request),
                  bytes - rp_min_u64(bytes, sizeof request));
}

/* ---- connections ----------------------------------------------------------------------------- */

void rp_engine_serve_connection(struct rp_engine *engine, struct rp_connection *connection)
{
    int fds[2];
    RP_ASSERT(connection->fd >= 0);
    if (connection->seat) {
        serve_doorbells(engine, connection);
        return;
    }
    uint8_t *message;
    int64_t bytes = rp_socket_receive_message(connection->fd, &message, fds, 0, NULL);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]); /* no request has descriptors */
    if (bytes > 0 && connection->awaits == RP_AWAITS_NOTHING)
        serve_message(engine, connection, message, (size_t)bytes);
    else if (bytes != -EAGAIN && bytes != -RP_E_TIMEOUT)
        rp_engine_close_connection(engine, connection);
    free(message);
}
