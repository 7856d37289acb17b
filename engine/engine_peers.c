/* SPDX-License-Identifier: Apache-2.0 */
/* engine_peers — what the other parts of the engine stand on: what the loop is woken by, who is
 * connected, and how the end begins. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine_parts.h"

#define ABSENT_WAIT_MINUTES 10u /* a long step, or until somebody starts the next rank by hand */

int rp_engine_watch(struct rp_engine *engine, int fd, enum rp_watch watch, uint32_t index)
{
    /* who waits for a descriptor, or died and is not replaced, must not keep the loop awake */
    uint32_t once = watch == RP_WATCH_LISTENER || watch == RP_WATCH_PACKER ? EPOLLET : 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | once,
                                .data.u64 = (uint64_t)watch << 32 | index};
    return epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

void rp_engine_begin_stop(struct rp_engine *engine)
{
    if (engine->phase != RP_ENGINE_DONE)
        engine->phase = RP_ENGINE_STOPPING;
    engine->save_wanted = engine->checkpoints != NULL;
}

void rp_engine_error_text(const struct rp_error *error, char text[RP_ENGINE_TEXT_BYTES])
{
    snprintf(text, RP_ENGINE_TEXT_BYTES, "%s\n%s", error->message, error->hint);
}

void rp_engine_fail(struct rp_engine *engine, int code)
{
    char text[RP_ENGINE_TEXT_BYTES];
    rp_engine_error_text(engine->error, text);
    rp_log(RP_LOG_ERROR, "%s", engine->error->message);
    engine->exit_code = code;
    for (uint32_t r = 0; r < engine->ring_count; r++)
        if (engine->rings[r].data.data) /* it could not be made: that is then the failure */
            rp_ring_set_status(&engine->rings[r], RP_RING_FAILED, (uint64_t)(int64_t)code, text);
    engine->failed_ns = rp_now_ns();
    if (engine->phase == RP_ENGINE_RUNNING)
        engine->phase = RP_ENGINE_FAILED;
}

/* ---- seats ----------------------------------------------------------------------------------- */

const char *rp_seat_name(const struct rp_seat *seat, char text[RP_SEAT_NAME_BYTES])
{
    const struct rp_ring *ring = seat->ring;
    if (ring->replicas == 1)
        snprintf(text, RP_SEAT_NAME_BYTES, "rank %" PRIu32, ring->geometry.rank);
    else
        snprintf(text, RP_SEAT_NAME_BYTES, "rank %" PRIu32 ", replica %" PRIu32,
                 ring->geometry.rank, seat->replica);
    return text;
}

int32_t rp_seat_pid(const struct rp_engine *engine, const struct rp_seat *seat)
{
    for (uint32_t i = 0; i < RP_CONNECTIONS_MAX; i++)
        if (engine->connections[i].fd >= 0 && engine->connections[i].seat == seat)
            return engine->connections[i].pid;
    return 0;
}

bool rp_engine_is_attended(const struct rp_engine *engine, const struct rp_ring *ring)
{
    for (uint32_t s = 0; s < engine->seat_count; s++)
        if ((!ring || engine->seats[s].ring == ring) && rp_seat_is_taken(&engine->seats[s]))
            return true;
    return false;
}

bool rp_engine_is_waiting(const struct rp_engine *engine)
{
    for (uint32_t s = 0; s < engine->seat_count && !engine->flow_ended; s++) {
        const struct rp_seat *seat = &engine->seats[s];
        bool has_none = rp_seat_stands(seat) >= seat->ring->tail;
        if (rp_seat_is_taken(seat) && (has_none || rp_ring_is_awaited(seat->ring, seat->replica)))
            return true;
    }
    return false;
}

bool rp_seat_fills_ring(const struct rp_seat *seat)
{
    return rp_seat_stands(seat) + seat->ring->geometry.slots == seat->ring->tail;
}

/* ---- connections ----------------------------------------------------------------------------- */

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

void rp_engine_accept(struct rp_engine *engine)
{
    struct rp_error error;
    int fd;
    while ((fd = rp_listener_accept(&engine->listener, &error)) >= 0) {
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
    bool waited = engine->accepts_later;
    engine->accepts_later = fd != -EAGAIN;
    if (engine->accepts_later && !waited)
        rp_log(RP_LOG_WARNING, "%s: who has connected waits", error.message);
}

void rp_engine_close_connection(struct rp_engine *engine, struct rp_connection *connection)
{
    if (connection->fd < 0)
        return;
    close(connection->fd);
    connection->fd = -1;
    struct rp_seat *seat = connection->seat;
    if (!seat)
        return;
    char name[RP_SEAT_NAME_BYTES];
    (void)rp_ring_poll_release(seat->ring); /* its last word, before the page goes */
    seat->had_all = seat->ring->status == RP_RING_END && rp_seat_stands(seat) == seat->ring->tail;
    rp_ring_detach_trainer(seat->ring, seat->replica);
    rp_log(RP_LOG_INFO, "%s detached (pid %d) at row %" PRIu64, rp_seat_name(seat, name),
           connection->pid, engine->base_row + rp_seat_stands(seat) * engine->batch_rows);
}

/* End every connection but those that wait for the end of all of it, or these. */
void rp_engine_close_connections(struct rp_engine *engine, bool waiting)
{
    for (uint32_t i = 0; engine->connections && i < RP_CONNECTIONS_MAX; i++) {
        struct rp_connection *connection = &engine->connections[i];
        if (connection->fd < 0 || (connection->asks == RP_REQUEST_STOP) != waiting)
            continue;
        char text[RP_ENGINE_TEXT_BYTES] = "stopped";
        if (engine->exit_code < 0)
            rp_engine_error_text(engine->error, text);
        if (waiting)
            rp_engine_reply(engine, connection,
                            engine->exit_code < 0 ? RP_REPLY_REFUSED : RP_REPLY_TEXT,
                            engine->exit_code, text);
        if (connection->fd >= 0) /* a reply that could not be sent has closed it */
            close(connection->fd);
    }
}

/* Has the last trainer of the seat come in the newest return and had everything? It need not come
 * again. (It does if all go back to the state from which it came: that cannot be told from a return
 * in which the others are late. So no checkpoint counts on it while it is in doubt.) */
static bool is_done(const struct rp_engine *engine, const struct rp_seat *seat)
{
    return seat->had_all && seat->came_in > 0 && seat->came_in == engine->returns;
}

/* Who has not been here may have had everything from the engine before this one, or be in a long
 * step: he is waited for, but not for ever. */
bool rp_engine_has_delivered_all(struct rp_engine *engine)
{
    const struct rp_seat *missing = NULL;
    bool was_used = false, is_used = !engine->flow_ended;
    for (uint32_t s = 0; s < engine->seat_count && !is_used; s++) {
        const struct rp_seat *seat = &engine->seats[s];
        bool is_known = seat->ever_trained && !seat->guessed;
        is_used = rp_seat_is_taken(seat) || (is_known && rp_seat_stands(seat) < seat->ring->tail);
        was_used |= seat->ever_trained;
        missing = missing || is_known || is_done(engine, seat) ? missing : seat;
    }
    if (is_used || !was_used) {
        engine->left_ns = 0;
        return false;
    }
    if (!missing)
        return true;
    if (engine->left_ns == 0) {
        char name[RP_SEAT_NAME_BYTES];
        engine->left_ns = rp_now_ns();
        rp_log(RP_LOG_INFO,
               "the stream has ended, and %s has not attached: waiting %u minutes for it",
               rp_seat_name(missing, name), ABSENT_WAIT_MINUTES);
    }
    return rp_now_ns() - engine->left_ns >= ABSENT_WAIT_MINUTES * 60 * 1000000000ull;
}
