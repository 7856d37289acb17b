/* SPDX-License-Identifier: Apache-2.0 */
/* client.c — a trainer takes batches and releases them; it waits while an engine is replaced.
 *
 *   next      Take a published batch. Until one is published: spin, sleep on `tail`, check the
 *             socket. If the engine is dead, attach to its successor at this client's row.
 *             Batches that the dead engine had published are taken first: they are complete,
 *             because `tail` grows only after the slot is written.
 *
 *   release   Leases are released in any order, and the ring needs them in order: the release
 *             watermark advances over the slots on which no lease is held.
 *
 * state.c has the client's position. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "client/core.h"
#include "client/sized.h"
#include "shm/socket.h"

#define RP_LIVENESS_NS 100000000u    /* between two checks of a sleeper that the engine lives */
#define RP_STOPPED_PAUSE_NS 5000000u /* before the next attach, if a successor was stopping */

/* One more result, as enum rp_next, inside this file: the engine is gone, its ring is empty. */
enum { NEXT_LOST = 0 };

/* The size of the fields that client.h calls "required". */
#define RP_BATCH_REQUIRED RP_SIZE_WITH(rp_batch, sections)

static int refuse_child(const struct rp_client *client, struct rp_error *error)
{
    if (!client->forked)
        return 0;
    return rp_fail(error, -RP_E_USAGE,
                   "attach in the process that uses the batches (spawn instead of fork)",
                   "this client was attached by process %ld; a forked child has none of its memory",
                   (long)client->pid);
}

static uint64_t deadline_after(uint64_t begin_ns, uint64_t timeout_ns)
{
    uint64_t deadline_ns;
    return rp_add_u64(begin_ns, timeout_ns, &deadline_ns) ? deadline_ns : UINT64_MAX;
}

/* ---- attach ---------------------------------------------------------------------------------- */

int rp_client_attach(struct rp_client **client_out, const struct rp_client_options *options,
                     struct rp_error *error)
{
    *client_out = NULL;
    struct rp_client *client = rp_calloc(1, sizeof *client);
    if (!client)
        return rp_fail(error, -ENOMEM, NULL, "attaching: out of memory");
    client->pid = getpid();
    client->socket = -1;
    client->next_row = client->attach_row = RP_NEXT_ROW_ANY;
    pthread_mutex_init(&client->lock, NULL);
    int code = rp_client_copy_options(client, options, error);
    if (code == 0)
        code = rp_client_digest_check(client, error);
    if (code == 0)
        code = rp_client_enlist(client, error);
    if (code == 0)
        code = rp_client_join(
            client, deadline_after(rp_now_ns(), client->options.connect_timeout_ns), error);
    if (code == 0)
        code = rp_client_digest_begin(client, error);
    if (code < 0)
        rp_client_free(client);
    else
        *client_out = client;
    return code;
}

const struct rp_geometry *rp_client_geometry(const struct rp_client *client)
{
    return &client->geometry;
}

/* ---- next ------------------------------------------------------------------------------------ */

/* Advance the watermark over slots without a lease; ring the doorbell if the engine waits. */
static void give_back(struct rp_client *client, struct rp_mapping *mapping)
{
    struct rp_ring_view *view = &mapping->view;
    uint64_t release = view->release;
    while (release != view->next && mapping->held[release & (view->geometry.slots - 1)] == 0)
        release++;
    if (release == view->release || mapping != client->current)
        return;
    if (rp_ring_view_release(view, release) && client->socket >= 0) {
        ssize_t sent = send(client->socket, "r", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent; /* a full socket has doorbells already; rp_client_next finds a dead engine */
    }
}

/* Record a lease on a slot that was just taken, and advance the client's state past it. With `lock`
 * held. */
static void lend(struct rp_client *client, const uint8_t *slot, const struct rp_slot_header *header)
{
    struct rp_mapping *mapping = client->current;
    const struct rp_geometry *g = &mapping->view.geometry;
    mapping->held[header->batch & (g->slots - 1)] = header->batch + 1;
    mapping->leases++;
    client->leases++;
    rp_client_advance(client, slot, header, mapping->number);
    client->counts.batches++;
    client->counts.rows += header->rows;
    client->counts.tokens += header->tokens_real;
}

/* Pass over a batch of a step that is skipped: the slot is free again. With `lock` held. */
static void pass_over(struct rp_client *client, const uint8_t *slot,
                      const struct rp_slot_header *header)
{
    client->current->passed = header->batch + 1;
    rp_client_advance(client, slot, header, 0);
    give_back(client, client->current);
}

/* The reason why the ring will publish no more batches, as the result of rp_client_next. */
static int judge_closed(const struct rp_ring_view *view, struct rp_error *error)
{
    char text[sizeof(((struct rp_ring_engine *)0)->message) + 1];
    int64_t code = (int64_t)view->end;
    rp_ring_view_message(view, text, sizeof text);
    switch (view->status) {
    case RP_RING_END:
        return RP_NEXT_END;
    case RP_RING_FAILED:
        return rp_client_fail_text(error, code < 0 && code > -6000 ? (int)code : -RP_E_GONE,
                                   "the engine: ", text);
    case RP_RING_QUARANTINED:
        return rp_client_fail_text(error, -RP_E_PROTOCOL, "the engine: ", text);
    default:
        return NEXT_LOST;
    }
}

/* The trainer holds leases on all slots, so no batch can follow until the oldest is released: an
 * error, unless the engine is dead, or batches that were passed over take some of the slots. In
 * both cases the client attaches again, and gets a new ring that begins at its row. */
static int judge_full(const struct rp_client *client, uint64_t oldest, struct rp_error *error)
{
    if (rp_socket_hung_up(client->socket) || client->current->passed > oldest)
        return NEXT_LOST;
    return rp_fail(error, -RP_E_USAGE,
                   "release the oldest batch first, or give the batch ring more slots",
                   "rank %" PRIu32 ": batch %" PRIu64
                   " is still on lease, and the ring holds %" PRIu32 " batches from there on",
                   client->options.rank, oldest, client->current->view.geometry.slots);
}

/* A try to take a batch. */
struct taking {
    struct rp_batch batch; /* if it was taken */
    bool is_passed;        /* it was, and passed over */
    bool is_full;          /* no batch can come before `oldest` is released */
    uint64_t oldest;
};

/* Take the next slot: as rp_ring_view_take, or the error of the monitor. Under one lock the client
 * is not closed, the batch counts as taken, and the caller's struct has it: whoever closes the
 * client knows then which batch was the last one. */
static int take_slot(struct rp_client *client, struct taking *taking, struct rp_batch *batch,
                     struct rp_error *error)
{
    const uint8_t *slot;
    struct rp_slot_header header;
    struct rp_ring_view *view = &client->current->view;
    pthread_mutex_lock(&client->lock);
    bool closed = client->life != RP_CLIENT_OPEN; /* since this call began */
    int code = closed ? RP_RING_EMPTY : rp_ring_view_take(view, &slot, &header, error);
    taking->oldest = view->release; /* another thread may be releasing it */
    taking->is_full = !closed && view->next - taking->oldest == view->geometry.slots;
    int checked = code == RP_RING_TAKEN
                      ? rp_client_monitor(client, &view->geometry, slot, &header, error)
                      : 0;
    if (checked < 0) { /* it is refused again at each call, and never released */
        rp_ring_view_put_back(view);
    } else if (code == RP_RING_TAKEN) {
        taking->batch = rp_client_batch_of(client, slot, &header);
        taking->is_passed = header.skips_step;
        if (taking->is_passed) {
            pass_over(client, slot, &header);
        } else {
            lend(client, slot, &header);
            rp_sized_write(batch, &taking->batch, sizeof taking->batch);
        }
    }
    pthread_mutex_unlock(&client->lock);
    return checked < 0 ? checked : code;
}

/* Take a batch if there is one, without waiting. */
static int try_take(struct rp_client *client, struct rp_batch *batch, struct rp_error *error)
{
    if (!client->current)
        return NEXT_LOST;
    struct taking taking;
    int code;
    do {
        code = take_slot(client, &taking, batch, error);
        if (code == RP_RING_TAKEN)
            rp_client_digest_add(client, &taking.batch);
    } while (code == RP_RING_TAKEN && taking.is_passed);
    if (code == RP_RING_TAKEN)
        return RP_NEXT_BATCH;
    if (code == RP_RING_CLOSED) {
        code = judge_closed(&client->current->view, error);
        client->stage_ended = code == RP_NEXT_END &&
                              rp_ring_view_ends_stage(&client->current->view);
        return code;
    }
    if (code == RP_RING_EMPTY)
        return taking.is_full ? judge_full(client, taking.oldest, error) : RP_NEXT_EMPTY;
    return code;
}

/* Why the client searches for a successor, as `lost_ns` and `current` show. The client always
 * joins; before that:
 *
 *                      lost_ns   current   before it joins
 *   ENGINE_LOST        0         set       restart_timeout_ns begins: lost_ns is set
 *   SUCCESSOR_LOST     set       set       a pause; or a failure, if restart_timeout_ns is over
 *   NO_SUCCESSOR_YET   set       NULL      no step
 */
enum search_reason {
    ENGINE_LOST,      /* the engine is gone, and the client finds that now */
    SUCCESSOR_LOST,   /* the successor died before it delivered a batch */
    NO_SUCCESSOR_YET, /* an earlier call found no successor by its deadline */
};

static enum search_reason search_reason(const struct rp_client *client)
{
    if (client->lost_ns == 0)
        return ENGINE_LOST;
    return client->current ? SUCCESSOR_LOST : NO_SUCCESSOR_YET;
}

/* Attach to the successor: 0, -RP_E_TIMEOUT if no successor appears by the caller's deadline, or a
 * final failure. restart_timeout_ns is the time from the engine's death to the next batch, over any
 * number of calls, and of successors that stop before they deliver one. */
static int join_successor(struct rp_client *client, uint64_t deadline_ns, struct rp_error *error)
{
    enum search_reason reason = search_reason(client);
    if (reason == ENGINE_LOST)
        client->lost_ns = rp_now_ns();
    rp_client_leave(client);
    uint64_t restart_timeout_ns = client->options.restart_timeout_ns;
    uint64_t give_up_ns = deadline_after(client->lost_ns, restart_timeout_ns);
    if (reason == SUCCESSOR_LOST) {
        if (rp_now_ns() >= give_up_ns)
            return rp_fail(error, -RP_E_GONE, "look at the engine's log",
                           "the engine died at row %" PRIu64
                           " and no successor delivered a batch within %.3g s",
                           client->next_row, (double)restart_timeout_ns / RP_SECOND_NS);
        rp_sleep_ns(RP_STOPPED_PAUSE_NS);
    }
    int code = rp_client_join(client, rp_min_u64(deadline_ns, give_up_ns), error);
    if (code == 0)
        client->counts.reattaches++;
    if (!rp_client_may_retry(code))
        return code;
    if (rp_now_ns() < give_up_ns)
        return -RP_E_TIMEOUT;
    return rp_fail_context(error, code,
                           "the engine died at row %" PRIu64 " and no successor came within %.3g s",
                           client->next_row, (double)restart_timeout_ns / RP_SECOND_NS);
}

/* Wait for the next batch, as the caller does since begin_ns. `found` is the result of the last
 * try: RP_NEXT_EMPTY or NEXT_LOST. */
static int wait_for_next(struct rp_client *client, int found, uint64_t begin_ns, uint64_t deadline,
                         struct rp_batch *batch, struct rp_error *error)
{
    for (;;) {
        uint64_t now = rp_now_ns();
        if (found == RP_NEXT_EMPTY && now < deadline) {
            rp_ring_view_waits_since(&client->current->view, begin_ns);
            rp_ring_view_wait(&client->current->view, rp_min_u64(deadline - now, RP_LIVENESS_NS));
            found = try_take(client, batch, error);
        }
        if (found == RP_NEXT_EMPTY && rp_socket_hung_up(client->socket)) {
            found = try_take(client, batch, error); /* it may have published before it hung up */
            if (found == RP_NEXT_EMPTY)
                found = NEXT_LOST;
        }
        if (found == NEXT_LOST) {
            int code = join_successor(client, deadline, error);
            if (code < 0)
                return code == -RP_E_TIMEOUT ? RP_NEXT_EMPTY : code;
            found = try_take(client, batch, error);
        }
        bool nothing = found == RP_NEXT_EMPTY ||
                       found == NEXT_LOST; /* the successor may be gone too */
        if (!nothing)
            return found;
        if (rp_now_ns() >= deadline || rp_client_is_closed(client))
            return RP_NEXT_EMPTY; /* the caller's next call reports that the client is closed */
    }
}

/* Count a wait that has ended with a batch. It may have begun in an earlier call. */
static void note_wait(struct rp_client *client)
{
    rp_ring_view_waited(&client->current->view, client->waited_ns);
    client->waited_ns = 0;
}

static int check_call(const struct rp_client *client, const struct rp_batch *batch,
                      struct rp_error *error)
{
    int code = refuse_child(client, error);
    return code < 0 ? code
                    : rp_sized_check(batch->struct_size, RP_BATCH_REQUIRED, "rp_batch", error);
}

/* Check the call, write the heartbeat that the engine sees, and try to take a batch. */
static int visit(struct rp_client *client, uint64_t now, struct rp_batch *batch,
                 struct rp_error *error)
{
    int code = check_call(client, batch, error);
    if (code < 0)
        return code;
    if (client->current)
        rp_ring_view_beat(&client->current->view, now);
    code = try_take(client, batch, error);
    if (code == RP_NEXT_BATCH && client->waited_ns > 0)
        note_wait(client);
    return code;
}

/* Take a batch in a call that has begun, and end the call. */
static int take_and_end(struct rp_client *client, struct rp_batch *batch, struct rp_error *error)
{
    int code = visit(client, rp_now_ns(), batch, error);
    rp_client_end_call(client);
    return code == NEXT_LOST ? RP_NEXT_EMPTY : code;
}

int rp_client_take(struct rp_client *client, struct rp_batch *batch, struct rp_error *error)
{
    int code = rp_client_begin_call(client, error);
    return code < 0 ? code : take_and_end(client, batch, error);
}

static int next_in_call(struct rp_client *client, int64_t timeout_ns, struct rp_batch *batch,
                        struct rp_error *error)
{
    uint64_t begin = rp_now_ns();
    int code = visit(client, begin, batch, error);
    if (code != RP_NEXT_EMPTY && code != NEXT_LOST)
        return code;
    uint64_t deadline = timeout_ns < 0 ? UINT64_MAX : begin + (uint64_t)timeout_ns;
    code = wait_for_next(client, code, begin - client->waited_ns, deadline, batch, error);
    uint64_t waited_ns = rp_now_ns() - begin;
    pthread_mutex_lock(&client->lock);
    client->counts.waits++;
    client->counts.wait_ns += waited_ns;
    pthread_mutex_unlock(&client->lock);
    client->waited_ns += waited_ns;
    if (client->current)
        rp_ring_view_waits_since(&client->current->view, 0);
    if (code == RP_NEXT_BATCH)
        note_wait(client);
    return code;
}

int rp_client_next(struct rp_client *client, int64_t timeout_ns, struct rp_batch *batch,
                   struct rp_error *error)
{
    int code = rp_client_begin_call(client, error);
    if (code < 0)
        return code;
    code = next_in_call(client, timeout_ns, batch, error);
    rp_client_end_call(client);
    return code;
}

/* ---- release --------------------------------------------------------------------------------- */

static struct rp_mapping *find_lease(const struct rp_client *client, const struct rp_batch *batch)
{
    for (struct rp_mapping *mapping = client->mappings; mapping; mapping = mapping->older) {
        uint64_t slot = batch->number & (mapping->view.geometry.slots - 1);
        if (mapping->number == batch->lease && mapping->held[slot] == batch->number + 1)
            return mapping;
    }
    return NULL;
}

int rp_client_release(struct rp_client *client, const struct rp_batch *batch)
{
    if (client->forked)
        return -RP_E_USAGE;
    pthread_mutex_lock(&client->lock);
    struct rp_mapping *mapping = find_lease(client, batch);
    bool last = false;
    if (mapping) {
        mapping->held[batch->number & (mapping->view.geometry.slots - 1)] = 0;
        mapping->leases--;
        client->leases--;
        give_back(client, mapping);
        rp_client_drop_unused(client, mapping);
        last = client->life == RP_CLIENT_DETACHED && client->leases == 0;
        rp_client_leave_if_closed(client);
    }
    pthread_mutex_unlock(&client->lock);
    if (last)
        rp_client_free(client);
    return mapping ? 0 : -RP_E_USAGE;
}

int rp_client_holds(const struct rp_client *client, const struct rp_batch *batch)
{
    if (client->forked)
        return 0;
    pthread_mutex_lock(rp_client_lock(client));
    bool held = find_lease(client, batch) != NULL;
    pthread_mutex_unlock(rp_client_lock(client));
    return held;
}

int rp_client_step(struct rp_client *client, const struct rp_batch *done, struct rp_batch *batch,
                   struct rp_error *error)
{
    int code = check_call(client, batch, error);
    if (code < 0)
        return code;
    int begun = rp_client_begin_call(client, error);
    if (begun == -RP_E_CONCURRENT)
        return begun;
    code = rp_client_release(client, done); /* also of a closed client */
    if (code == 0)
        return begun < 0 ? begun : take_and_end(client, batch, error);
    if (begun == 0)
        rp_client_end_call(client);
    return rp_fail(error, code, "give each lease to one call of step or release",
                   "batch %" PRIu64 " is not on lease", done->number);
}
