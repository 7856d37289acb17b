/* SPDX-License-Identifier: Apache-2.0 */
/* connections.c — the connections of peers.
 *
 * Invariants:
 *
 *   - A slot of `connections` is free if and only if its fd is -1. Its other fields have no meaning
 *     then, and are set when the next peer is accepted.
 *   - A consumer detaches only here, in one step that cannot fail: its descriptor is closed, its
 *     last releases are read, its control page is unmapped, its seat's state changes.
 *   - Closing a descriptor takes it out of the epoll set. Events of it that epoll_wait has already
 *     returned find the slot free. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/connections.h"
#include "server/loop.h"
#include "server/deferred_attach.h"
#include "server/seats.h"

void rp_engine_error_text(const struct rp_error *error, char text[RP_ENGINE_TEXT_BYTES])
{
    snprintf(text, RP_ENGINE_TEXT_BYTES, "%s\n%s", error->message, error->hint);
}

void rp_engine_reply(struct rp_engine *engine, struct rp_connection *connection, uint32_t kind,
                     int code, const char *text)
{
    struct rp_reply reply = {.magic = RP_MESSAGE_MAGIC,
                             .abi_version = RP_ABI_VERSION,
                             .kind = kind,
                             .code = code,
                             .text_bytes = (uint32_t)strlen(text),
                             .generation = engine->delivery.generation};
    const struct rp_message message = {.header = &reply,
                                       .header_bytes = sizeof reply,
                                       .body = text,
                                       .body_bytes = reply.text_bytes};
    if (rp_socket_send(connection->fd, &message, NULL) < 0)
        rp_engine_close_connection(engine, connection);
}

/* Give the peer a connection, or close it. */
static void add_peer(struct rp_peers *peers, const struct rp_loop *loop, int fd)
{
    uint32_t index = 0;
    while (index < peers->connection_count && peers->connections[index].fd >= 0)
        index++;
    int code = index == peers->connection_count
                   ? -EUSERS
                   : rp_loop_watch(loop, fd, RP_WATCH_CONNECTION, index);
    if (code < 0 && !peers->turns_away)
        rp_log(RP_LOG_WARNING,
               "a new peer is turned away, of %" PRIu32 " that can be connected: %s",
               peers->connection_count, rp_strerror(code));
    peers->turns_away = code < 0;
    if (code < 0)
        close(fd);
    else
        peers->connections[index] = (struct rp_connection){.fd = fd};
}

void rp_engine_accept(struct rp_engine *engine)
{
    struct rp_peers *peers = &engine->peers;
    struct rp_error error;
    int fd;
    while ((fd = rp_listener_accept(&peers->listener, &error)) >= 0)
        add_peer(peers, &engine->loop, fd);
    bool waited = peers->accept_is_due;
    peers->accept_is_due = fd != -EAGAIN;
    if (peers->accept_is_due && !waited)
        rp_log(RP_LOG_WARNING, "%s: new peers have to wait until a descriptor is free",
               error.message);
}

void rp_engine_check_socket(struct rp_engine *engine)
{
    struct rp_listener *listener = &engine->peers.listener;
    if (rp_listener_check(listener, rp_now_ns()))
        return;
    struct rp_error error;
    bool had_names = listener->fd >= 0;
    rp_engine_accept(engine);
    if (rp_listener_renew(listener, &error) == 0) {
        (void)rp_loop_watch(&engine->loop, listener->fd, RP_WATCH_LISTENER, 0);
        rp_log(RP_LOG_WARNING, "the socket of run %s had been removed; there is a new one in %s",
               listener->run, listener->path);
    } else if (had_names) { /* logged once, tried again every second */
        rp_log(RP_LOG_WARNING,
               "the socket of run %s was removed, and no trainer can attach: %s; trying again",
               listener->run, error.message);
    }
}

static void close_descriptor(struct rp_connection *connection)
{
    RP_ASSERT(connection->fd >= 0);
    close(connection->fd);
    connection->fd = -1;
}

/* The last releases are in the control page, so they are read before it is unmapped. */
static void detach(struct rp_delivery *delivery, const struct rp_connection *connection,
                   bool migrates)
{
    struct rp_seat *seat = connection->seat;
    char name[RP_SEAT_NAME_BYTES];
    RP_ASSERT(connection->fd < 0 && rp_ring_is_taken(seat->ring, seat->replica));
    (void)rp_ring_poll_release(seat->ring);
    delivery->has_consumed |= rp_seat_position(seat) > connection->first_batch;
    RP_ASSERT(rp_seat_position(seat) >= seat->ring->release);
    bool consumed_all = seat->ring->status == RP_RING_END &&
                        rp_seat_position(seat) == seat->ring->tail;
    seat->waits = rp_seat_waits(seat);
    rp_ring_detach_trainer(seat->ring, seat->replica);
    if (migrates)
        rp_seat_transition(seat, RP_SEAT_MIGRATE);
    else
        rp_seat_transition(seat, consumed_all ? RP_SEAT_DETACH_CONSUMED : RP_SEAT_DETACH);
    if (!migrates && delivery->config->is_repeated) {
        rp_delivery_move_seat(delivery, seat); /* its next consumer begins a pass */
        delivery->is_to_rewind |= rp_seat_position(seat) > connection->first_batch ||
                                  seat->rollback_epoch > 0;
    }
    rp_log_event(RP_EVENT_detached, "%s detached (pid %d) at row %" PRIu64,
                 rp_seat_name(seat, name), connection->pid,
                 rp_delivery_row(delivery, rp_seat_position(seat)));
}

void rp_engine_close_connection(struct rp_engine *engine, struct rp_connection *connection)
{
    if (connection->fd < 0)
        return;
    rp_engine_forget_deferred(engine, connection);
    close_descriptor(connection);
    if (connection->seat)
        detach(&engine->delivery, connection, false);
}

void rp_delivery_migrate_consumer(struct rp_delivery *delivery, struct rp_connection *connection)
{
    RP_ASSERT(connection->seat);
    close_descriptor(connection);
    detach(delivery, connection, true);
}

static void close_peer(struct rp_engine *engine, struct rp_connection *connection)
{
    rp_engine_forget_deferred(engine, connection);
    if (connection->fd >= 0) /* a reply that could not be sent has closed it */
        close_descriptor(connection);
}

void rp_engine_close_connections(struct rp_engine *engine)
{
    struct rp_connection *connection;
    for (uint32_t i = 0; (connection = rp_peers_next(&engine->peers, &i));)
        if (connection->awaits != RP_AWAITS_END)
            close_peer(engine, connection);
}

void rp_engine_answer_stops(struct rp_engine *engine)
{
    const struct rp_engine_life *life = &engine->life;
    uint32_t kind = life->code < 0 ? RP_REPLY_REFUSED : RP_REPLY_TEXT;
    char text[RP_ENGINE_TEXT_BYTES] = "stopped";
    struct rp_connection *connection;
    if (life->code < 0)
        rp_engine_error_text(life->error, text);
    for (uint32_t i = 0; (connection = rp_peers_next(&engine->peers, &i));) {
        RP_ASSERT(connection->awaits == RP_AWAITS_END);
        rp_engine_reply(engine, connection, kind, life->code, text);
        close_peer(engine, connection);
    }
}
