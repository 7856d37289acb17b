/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c — from a run name to a mapped ring, the first time and after each death of the
 * engine. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "client/core.h"
#include "client/message.h"
#include "shm/socket.h"

/* The pause between two tries to join: the shortest, which doubles up to the longest. */
#define RP_RETRY_MIN_NS 5000000u
#define RP_RETRY_MAX_NS 200000000u

/* ---- fork ------------------------------------------------------------------------------------ */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rp_client *list;

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (struct rp_client *client = list; client; client = client->next)
        pthread_mutex_lock(&client->lock);
}

static void after_fork_in_parent(void)
{
    for (struct rp_client *client = list; client; client = client->next)
        pthread_mutex_unlock(&client->lock);
    pthread_mutex_unlock(&list_lock);
}

static void after_fork_in_child(void)
{
    for (struct rp_client *client = list; client; client = client->next) {
        if (client->socket >= 0)
            close(client->socket);
        client->socket = -1;
        client->forked = true;
    }
    after_fork_in_parent();
}

static int fork_handlers_code;
static void install_fork_handlers(void)
{
    fork_handlers_code = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

int rp_client_enlist(struct rp_client *client, struct rp_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handlers);
    if (fork_handlers_code)
        return rp_fail(error, -fork_handlers_code, NULL, "pthread_atfork: %s",
                       strerror(fork_handlers_code));
    pthread_mutex_lock(&list_lock);
    client->next = list;
    list = client;
    pthread_mutex_unlock(&list_lock);
    return 0;
}

void rp_client_delist(struct rp_client *client)
{
    pthread_mutex_lock(&list_lock);
    struct rp_client **link = &list;
    while (*link && *link != client)
        link = &(*link)->next;
    if (*link)
        *link = client->next;
    pthread_mutex_unlock(&list_lock);
}

/* ---- attach ---------------------------------------------------------------------------------- */

static int timeout_ms(uint64_t ns)
{
    uint64_t ms = rp_div_up(ns, 1000000u);
    return ms > INT32_MAX ? -1 : (int)ms;
}

static int send_attach(const struct rp_client *client, int fd, struct rp_error *error)
{
    struct rp_request request = rp_client_request(RP_REQUEST_ATTACH, client->run);
    bool again = client->attaches > 0;
    const char *contract = again ? rp_contract_text(&client->contract) : client->expected;
    size_t contract_bytes = again ? rp_contract_bytes(&client->contract)
                                  : client->options.expected_bytes;
    const struct rp_kept_token *state = rp_client_newest(client);
    size_t body_bytes = state->bytes + contract_bytes;
    char *body = malloc(body_bytes + 1);
    if (!body)
        return rp_fail(error, -ENOMEM, NULL, "attaching: out of memory");
    memcpy(body, state->token, state->bytes);
    memcpy(body + state->bytes, contract, contract_bytes);
    request.rank = client->options.rank;
    request.world = client->options.world;
    request.rows = client->options.rows;
    request.seq_len = client->options.seq_len;
    request.replica = client->options.replica;
    request.replicas = client->options.replicas;
    request.next_row = client->attach_row;
    request.step_row = again ? client->step_row : RP_NEXT_ROW_ANY;
    request.state_bytes = (uint32_t)state->bytes;
    request.contract_bytes = (uint32_t)contract_bytes;
    request.expects = !again && contract_bytes > 0;
    const struct rp_message message = {
        .header = &request, .header_bytes = sizeof request, .body = body, .body_bytes = body_bytes};
    int code = rp_socket_send(fd, &message, error);
    free(body);
    return code;
}

/* The new ring must be of this client's rank, and its first batch must be at this client's row. */
static int check_continuation(const struct rp_client *client, const struct rp_ring_view *view,
                              uint64_t row, struct rp_error *error)
{
    if (view->geometry.rank != client->options.rank)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION,
                       "the ring of rank %" PRIu32 " expected, of rank %" PRIu32 " found",
                       client->options.rank, view->geometry.rank);
    if (client->attaches > 0 && row != client->attach_row)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_VERSION,
                       "the new engine begins at row %" PRIu64 ", row %" PRIu64 " was expected",
                       row, client->attach_row);
    return 0;
}

/* The first attach is at `row`. Rows of padding after the stream are numbered as well, but the
 * state token and next_row stay at the end of the last row. */
static void take_first_row(struct rp_client *client, const struct rp_reply *reply)
{
    uint64_t row = reply->first_row, state_row = row;
    const struct rp_kept_token *state = rp_client_newest(client);
    (void)rp_client_token_row(state->token, state->bytes, &state_row);
    client->attach_row = row;
    client->step_row = reply->step_row;
    client->next_row = rp_min_u64(row, state_row);
}

/* Make the mapping the current one. Only the first attach sets the client's position. */
static int adopt(struct rp_client *client, struct rp_mapping *mapping, int fd,
                 const struct rp_client_reply *reply, struct rp_error *error)
{
    const struct rp_geometry *g = &mapping->view.geometry;
    size_t contract_bytes = reply->head.contract_bytes;
    size_t state_bytes = reply->head.text_bytes - contract_bytes; /* check_reply */
    int code = rp_client_take_contract(client, &mapping->view, reply->text + state_bytes,
                                       contract_bytes, error);
    if (code == 0)
        code = check_continuation(client, &mapping->view, reply->head.first_row, error);
    mapping->held = rp_calloc(g->slots, sizeof *mapping->held);
    if (code == 0 && !mapping->held)
        code = rp_fail(error, -ENOMEM, NULL, "attaching: out of memory");
    if (code < 0)
        return code;
    pthread_mutex_lock(&client->lock);
    code = rp_client_reserve_tokens(client, rp_max_u64(g->state_bytes, state_bytes), error);
    if (code == 0) {
        if (rp_client_newest(client)->bytes == 0)
            rp_client_keep_token(client, (const uint8_t *)reply->text, state_bytes, 0, 0);
        client->geometry = *g;
        if (client->attaches == 0)
            take_first_row(client, &reply->head);
        mapping->number = ++client->attaches;
        mapping->older = client->mappings;
        client->mappings = client->current = mapping;
        client->socket = fd;
    }
    pthread_mutex_unlock(&client->lock);
    return code;
}

static int open_ring(struct rp_client *client, int fd, struct rp_client_reply *reply,
                     struct rp_error *error)
{
    struct rp_mapping *mapping = rp_calloc(1, sizeof *mapping);
    if (!mapping)
        return rp_fail(error, -ENOMEM, NULL, "attaching: out of memory");
    int fds[2] = {reply->fds[0], reply->fds[1]};
    reply->fds[0] = reply->fds[1] = -1; /* the view takes them */
    int code = rp_ring_view_open(&mapping->view, fds[0], fds[1], reply->head.first_batch, error);
    if (code == 0) {
        mapping->view.replica = client->options.replica;
        mapping->view.next_row = reply->head.first_row;
        code = adopt(client, mapping, fd, reply, error);
        if (code < 0)
            rp_ring_view_close(&mapping->view);
    }
    if (code < 0) {
        free(mapping->held);
        free(mapping);
    }
    return code;
}

static uint64_t time_left(uint64_t deadline_ns)
{
    uint64_t now = rp_now_ns();
    return deadline_ns > now ? deadline_ns - now : 0;
}

/* The engine may have to plan to this client's row before it replies. The first attach waits for
 * the reply until its deadline. Later attaches are part of a call of rp_client_next, whose timeout
 * may be 0, so they wait for restart_timeout_ns instead. */
static int await_welcome(const struct rp_client *client, int fd, uint64_t deadline_ns,
                         struct rp_client_reply *reply, struct rp_error *error)
{
    bool is_first = client->attaches == 0;
    uint64_t patience = is_first ? time_left(deadline_ns) : client->options.restart_timeout_ns;
    int code = rp_client_receive_reply(fd, RP_REPLY_WELCOME, timeout_ms(patience), reply, error);
    if (code != -RP_E_TIMEOUT)
        return code;
    double seconds = (double)(is_first ? client->options.connect_timeout_ns : patience) /
                     RP_SECOND_NS;
    if (is_first)
        return rp_fail(error, code,
                       "if its log says that it plans to the row of this trainer, raise the "
                       "connect timeout; else the log names the cause of the delay",
                       "run `%s`: its engine did not place this trainer within %.3g s", client->run,
                       seconds);
    /* treated as an engine that is not there: the caller may try again */
    return rp_fail(error, -RP_E_GONE, RP_HINT_LOG, "the engine did not reply within %.3g s",
                   seconds);
}

static int connect_and_attach(struct rp_client *client, uint64_t deadline_ns,
                              struct rp_error *error)
{
    int fd = rp_socket_connect_within(client->run_dir, client->run, time_left(deadline_ns), error);
    if (fd < 0)
        return fd;
    struct rp_client_reply reply;
    int code = send_attach(client, fd, error);
    if (code == 0)
        code = await_welcome(client, fd, deadline_ns, &reply, error);
    if (code == 0) {
        code = open_ring(client, fd, &reply, error);
        rp_client_close_reply(&reply);
    }
    if (code < 0)
        close(fd);
    return code;
}

/* One try to join an engine. */
struct attempt {
    int code;
    struct rp_error failure; /* set if code < 0 */
    bool was_cut_short;      /* the deadline came before an engine could reply */
};

static struct attempt try_to_join(struct rp_client *client, uint64_t deadline_ns)
{
    struct attempt attempt;
    bool is_short = time_left(deadline_ns) < RP_RETRY_MAX_NS;
    attempt.code = connect_and_attach(client, deadline_ns, &attempt.failure);
    attempt.was_cut_short = is_short && attempt.code == -RP_E_TIMEOUT;
    return attempt;
}

bool rp_client_may_retry(int code)
{
    return code == -RP_E_GONE || code == -RP_E_BUSY || code == -RP_E_STOPPED;
}

int rp_client_join(struct rp_client *client, uint64_t deadline_ns, struct rp_error *error)
{
    struct attempt attempt = try_to_join(client, deadline_ns);
    uint64_t pause_ns = RP_RETRY_MIN_NS;
    while (rp_client_may_retry(attempt.code) && time_left(deadline_ns) > 0) {
        rp_sleep_ns(rp_min_u64(pause_ns, time_left(deadline_ns)));
        pause_ns = rp_min_u64(2 * pause_ns, RP_RETRY_MAX_NS);
        struct attempt next = try_to_join(client, deadline_ns);
        if (next.was_cut_short)
            break; /* the earlier failure says more than a timeout */
        attempt = next;
    }
    if (attempt.code < 0 && error)
        *error = attempt.failure;
    return attempt.code;
}

void rp_client_drop_unused(struct rp_client *client, struct rp_mapping *mapping)
{
    if (mapping == client->current || mapping->leases > 0)
        return;
    struct rp_mapping **link = &client->mappings;
    while (*link != mapping)
        link = &(*link)->older;
    *link = mapping->older;
    rp_ring_view_close(&mapping->view);
    free(mapping->held);
    free(mapping);
}

static void leave(struct rp_client *client)
{
    struct rp_mapping *left = client->current;
    client->current = NULL;
    if (left)
        rp_client_drop_unused(client, left);
    if (client->socket >= 0)
        close(client->socket);
    client->socket = -1;
}

void rp_client_leave(struct rp_client *client)
{
    pthread_mutex_lock(&client->lock);
    leave(client);
    pthread_mutex_unlock(&client->lock);
}

void rp_client_leave_if_closed(struct rp_client *client)
{
    if (client->life == RP_CLIENT_CLOSED && !client->in_call && client->leases == 0)
        leave(client);
}
