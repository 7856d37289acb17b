/* SPDX-License-Identifier: Apache-2.0 */
/* server.c — builds the parts of the engine, then runs one loop until the stop: deliver, listen,
 * save.
 *
 * The trial write of the checkpoint directory ends before the flow begins, and the journal has the
 * start before the engine is ready. Trainers that find the socket earlier wait: no trainer is
 * accepted before the engine is ready, so no trainer has a batch of a refused start. */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "base/stop.h"
#include "server/attach.h"
#include "server/shutdown.h"
#include "server/connections.h"
#include "server/loop.h"
#include "server/journal.h"
#include "server/revalidate.h"
#include "server/notify.h"
#include "server/probe.h"
#include "server/read_mode.h"
#include "server/rejoin.h"
#include "server/rings.h"
#include "server/save.h"
#include "server/server.h"
#include "server/rate_samples.h"
#include "server/sizes.h"
#include "server/start.h"
#include "server/stat.h"

/* The longest sleep of an idle loop: checks without an event of their own are made this often. */
#define PARK_MS 100
#define EVENTS_MAX 64 /* that one epoll_wait returns */
/* Deliver steps between two polls of the sockets while there is always something to deliver. */
#define STEPS_PER_POLL 64u

/* ---- opening --------------------------------------------------------------------------------- */

static int keep_config_text(struct rp_engine *engine, struct rp_error *error)
{
    engine->config_text = rp_config_kept_text(engine->config);
    return engine->config_text ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory at start");
}

static int open_directory(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    struct rp_saving *saving = &engine->saving;
    uint64_t history_rows;
    int code = rp_engine_check_resume(engine, error);
    if (code < 0 || !c->checkpoint_dir)
        return code;
    const struct rp_checkpoint_place place = {.path = c->checkpoint_dir,
                                              .copy_path = c->checkpoint_mirror_dir,
                                              .keep = c->checkpoint_keep};
    code = rp_checkpoint_dir_begin(&saving->checkpoints, &place, error);
    if (code < 0)
        return code;
    saving->checkpoint_path = realpath(c->checkpoint_dir, NULL); /* once: later the disk may hang */
    if (!rp_mul_u64(c->checkpoint_keep_every, c->global_batch_size, &history_rows))
        history_rows = UINT64_MAX;
    rp_checkpoint_keep_every(saving->checkpoints, history_rows);
    return rp_checkpoint_dir_scrub(saving->checkpoints, c->checkpoint_scrub_seconds, error);
}

static void choose_generation(struct rp_delivery *delivery)
{
    if (getrandom(&delivery->generation, sizeof delivery->generation, 0) !=
        sizeof delivery->generation)
        delivery->generation = rp_now_ns();
}

/* Rows before the start are numbered as well: a consumer may be further back. */
static int number_batches(struct rp_delivery *delivery, uint64_t start_row, struct rp_error *error)
{
    const struct rp_config *c = delivery->config;
    int code = rp_numbering_open(&delivery->numbering, c->batches.stages, c->batches.count, error);
    if (code == 0)
        code = rp_numbering_open(&delivery->trial, c->batches.stages, c->batches.count, error);
    if (code == 0)
        rp_numbering_begin(&delivery->numbering, start_row);
    return code;
}

/* Make the tables: of rings, seats, connections, counts of masks and sums of steps. */
static int make_tables(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    struct rp_delivery *delivery = &engine->delivery;
    struct rp_peers *peers = &engine->peers;
    uint32_t seat_count = c->rank_count * c->consumers_per_rank,
             most = seat_count + RP_OTHER_PEERS_MAX;
    peers->connections = rp_calloc(most, sizeof *peers->connections);
    delivery->rings = rp_calloc(c->rank_count, sizeof *delivery->rings);
    delivery->seats = rp_calloc(seat_count, sizeof *delivery->seats);
    engine->stream.mask_counts = rp_calloc(c->source_count, sizeof *engine->stream.mask_counts);
    delivery->steps = rp_sums_make();
    if (!delivery->rings || !delivery->seats || !delivery->steps || !engine->stream.mask_counts ||
        !peers->connections)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u batch rings", c->rank_count);
    delivery->ring_count = c->rank_count;
    delivery->seat_count = seat_count;
    peers->connection_count = most;
    for (uint32_t i = 0; i < most; i++)
        peers->connections[i].fd = -1;
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        delivery->rings[r].data.fd = -1;
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        delivery->seats[s] = (struct rp_seat){.ring = &delivery->rings[s / c->consumers_per_rank],
                                              .replica = s % c->consumers_per_rank};
    return 0;
}

static int open_rings(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    struct rp_delivery *delivery = &engine->delivery;
    choose_generation(delivery);
    int code = number_batches(delivery, engine->stream.start_row, error);
    if (code == 0 && c->drop_last)
        code = rp_plan_check_steps(engine->stream.plan, &delivery->numbering, error);
    if (code < 0)
        return code;
    delivery->geometry = rp_engine_geometry(c, engine->stream.corpus, engine->stream.plan);
    uint32_t sections = rp_engine_sections(c, engine->stream.plan);
    if (rp_geometry_layout(&delivery->geometry, sections, c->token_dtype) == 0)
        return rp_fail(error, -RP_E_CONFIG, "lower batch_size, seq_len or prefetch_factor",
                       "a batch ring of %u slots of %u x %u tokens is too large to address",
                       c->prefetch_factor, delivery->geometry.rows, delivery->geometry.seq_len);
    uint64_t batch = rp_numbering_batch(&delivery->numbering, engine->stream.start_row);
    code = make_tables(engine, error);
    for (uint32_t r = 0; r < delivery->ring_count && code >= 0; r++) {
        code = rp_stop_check(error); /* a node may have thousands of ranks */
        if (code >= 0)
            code = rp_engine_make_ring(engine, r, RP_ALL_SEATS, batch, error);
    }
    return code;
}

static int open_socket(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_listener *listener = &engine->peers.listener;
    int code = rp_listener_open(listener, engine->config->run_dir, engine->config->run, error);
    return code < 0 ? code : rp_loop_watch(&engine->loop, listener->fd, RP_WATCH_LISTENER, 0);
}

static int open_flow(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    int code = rp_engine_open_flow(engine, error);
    if (code >= 0 && c->packer_cpus)
        rp_log(RP_LOG_INFO, "packers: %u, chosen for %u CPU%s %s %u trainer%s", c->packers,
               c->packer_cpus, c->packer_cpus == 1 ? "" : "s",
               c->cpus ? "of the engine only, and" : "shared with", engine->delivery.seat_count,
               engine->delivery.seat_count == 1 ? "" : "s");
    if (code >= 0)
        code = rp_engine_probe_row(engine, engine->stream.start_row, NULL, 0, error);
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}

static int open_engine(struct rp_engine *engine, struct rp_error *error)
{
    static int (*const steps[])(struct rp_engine *, struct rp_error *) = {
        keep_config_text,
        rp_engine_open_descriptors,
        open_directory,
        rp_engine_find_start,
        open_rings,
        open_socket, /* before the flow: a second engine of this name fails before it reads */
        rp_engine_settle_start,
        open_flow,
    };
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(steps) && code >= 0; i++)
        code = steps[i](engine, error);
    return code;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Reset an eventfd. */
static void drain(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
}

static void replace_packer(struct rp_engine *engine, uint32_t index)
{
    int code = rp_flow_replace_packer(engine->delivery.flow, index, engine->life.error);
    int pidfd = rp_flow_packer_pidfd(engine->delivery.flow, index);
    if (code < 0)
        rp_engine_fail(engine, code);
    else if (pidfd >= 0)
        (void)rp_loop_watch(&engine->loop, pidfd, RP_WATCH_PACKER, index);
}

static const char *signal_name(int ending) /* glibc has sigabbrev_np since 2.32 */
{
    return ending == SIGTERM ? "SIGTERM" : ending == SIGINT ? "SIGINT" : "SIGHUP";
}

static void serve_signal(struct rp_engine *engine)
{
    int ending;
    while ((ending = rp_loop_take_signal(&engine->loop)) > 0) {
        rp_log_event(RP_EVENT_stopping, "%s: stopping%s", signal_name(ending),
                     engine->saving.checkpoints ? " after a checkpoint" : "");
        rp_engine_begin_stop(engine, RP_SHUTDOWN_SIGNAL);
    }
}

static void serve_lifeline(struct rp_engine *engine)
{
    char bytes[64];
    ssize_t got = read(engine->options->lifeline_fd, bytes, sizeof bytes);
    if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN)))
        return;
    (void)epoll_ctl(engine->loop.epoll_fd, EPOLL_CTL_DEL, engine->options->lifeline_fd, NULL);
    rp_engine_lifeline_ended(engine);
}

static void serve_event(struct rp_engine *engine, const struct epoll_event *event)
{
    uint32_t index = (uint32_t)event->data.u64;
    switch ((enum rp_watch)(event->data.u64 >> 32)) {
    case RP_WATCH_WAKE:
        drain(engine->loop.wake_fd);
        break;
    case RP_WATCH_SIGNAL:
        serve_signal(engine);
        break;
    case RP_WATCH_LISTENER:
        rp_engine_accept(engine);
        break;
    case RP_WATCH_SAVER:
        drain(engine->saving.saver.done_fd);
        rp_engine_continue_save(engine);
        break;
    case RP_WATCH_LIFELINE:
        serve_lifeline(engine);
        break;
    case RP_WATCH_PLANNER:
        drain(engine->stream.planner.done_fd);
        rp_far_planner_continue(&engine->stream.planner);
        rp_engine_retry_deferred(engine);
        break;
    case RP_WATCH_CONNECTION:
        if (engine->peers.connections[index].fd >= 0)
            rp_engine_serve_connection(engine, &engine->peers.connections[index]);
        break;
    case RP_WATCH_PACKER:
        if (rp_delivery_runs(&engine->delivery))
            replace_packer(engine, index);
        break;
    }
}

static void poll_events(struct rp_engine *engine, int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(engine->loop.epoll_fd, events, EVENTS_MAX, timeout_ms);
    if (rp_delivery_runs(&engine->delivery))
        rp_flow_unpark(engine->delivery.flow);
    for (int i = 0; i < count; i++)
        serve_event(engine, &events[i]);
    if (engine->peers.accept_is_due)
        rp_engine_accept(engine);
    rp_engine_check_socket(engine);
    rp_engine_sample_rates(engine);
    rp_engine_log_read_mode(engine);
}

/* Warn if whole micro-batches of the last step are padding: the mean of a loss over no label is
 * 0/0. */
static void warn_of_padding(const struct rp_engine *engine)
{
    const struct rp_delivery *delivery = &engine->delivery;
    uint64_t tail = rp_delivery_lowest_tail(delivery);
    uint64_t after = rp_delivery_row(delivery, tail), end = rp_plan_row(engine->stream.plan);
    uint64_t rows = rp_numbering_of_batch(&delivery->numbering, tail - (tail > 0))->batch_rows /
                    engine->config->dp_world_size;
    uint64_t batches = after > end ? (after - end) / rows : 0;
    if (batches > 0)
        rp_log(RP_LOG_WARNING,
               "the last step has %" PRIu64 " micro-batches without a label, over all ranks: they "
               "are padding after the end of the stream; guard the mean of the loss, or leave the "
               "step out with drop_last",
               batches);
}

/* RP_FLOW_WORKED if there may be more to deliver at once. */
static int deliver(struct rp_engine *engine)
{
    struct rp_delivery *delivery = &engine->delivery;
    if (!rp_delivery_runs(delivery) || rp_life_has_failed(&engine->life))
        return RP_FLOW_IDLE;
    int step = rp_flow_deliver(delivery->flow, engine->life.error);
    if (step == RP_FLOW_RESTART)
        step = rp_engine_restart_flow(engine, engine->life.error);
    if (step < 0)
        rp_engine_fail(engine, step);
    if (step == RP_FLOW_ENDED && delivery->state != RP_DELIVERY_ENDED) {
        warn_of_padding(engine);
        delivery->state = RP_DELIVERY_ENDED;
    }
    return step;
}

/* Packer threads deliver while this one sleeps. */
static void sleep_until_event(struct rp_engine *engine)
{
    /* after a failure there is always something to deliver */
    bool may_sleep = !rp_delivery_runs(&engine->delivery) || rp_flow_park(engine->delivery.flow) ||
                     rp_life_has_failed(&engine->life);
    poll_events(engine, may_sleep ? PARK_MS : 0);
}

/* The flow has no batch to deliver: sleep until an event, and do the work that is left for this
 * time. Packer processes need this thread to spin for a while first. */
static void serve_idle(struct rp_engine *engine, uint32_t *spins)
{
    if (engine->config->packer_processes && rp_spin(spins, RP_SPIN_NS))
        return;
    *spins = 0;
    sleep_until_event(engine);
    if (rp_life_is_running(&engine->life))
        rp_engine_rewind(engine);
    if (rp_life_is_running(&engine->life))
        rp_delivery_skip_absent(&engine->delivery);
}

/* A token file was lost (its mapping cannot be read), or a revalidation has found a change. The
 * stages that met a lost file have ended, so no token of that file is delivered. */
static void fail_if_file_changed(struct rp_engine *engine)
{
    int code = rp_life_has_failed(&engine->life) ? 0 : rp_mapped_lost(engine->life.error);
    if (code == 0)
        code = rp_engine_poll_revalidation(engine);
    if (code < 0)
        rp_engine_fail(engine, code);
}

static void stop_rings(struct rp_delivery *delivery)
{
    for (uint32_t r = 0; r < delivery->ring_count; r++) {
        struct rp_ring *ring = &delivery->rings[r];
        if (ring->status == RP_RING_RUNNING && ring->data.data)
            rp_ring_set_status(ring, RP_RING_STOPPED, ring->tail, NULL);
    }
}

static void run(void *argument)
{
    struct rp_engine *engine = argument;
    uint32_t spins = 0;
    for (uint32_t steps = 0; !rp_life_is_done(&engine->life); steps++) {
        if (steps % STEPS_PER_POLL == 0)
            poll_events(engine, 0);
        fail_if_file_changed(engine);
        int step = deliver(engine);
        rp_engine_save_when_due(engine);
        if (step == RP_FLOW_WORKED)
            spins = 0;
        else
            serve_idle(engine, &spins);
        if (engine->peers.deferred_count && !rp_life_is_running(&engine->life))
            rp_engine_retry_deferred(engine);
        rp_engine_update_life(engine);
    }
    stop_rings(&engine->delivery);
}

static void say_ready(const struct rp_engine *engine)
{
    const struct rp_config *c = engine->config;
    rp_log_event(RP_EVENT_serving,
                 "serving run %s: ranks %u to %u of %u, rows of %u tokens, from row %" PRIu64,
                 c->run, c->rank_first, c->rank_first + c->rank_count - 1, c->dp_world_size,
                 engine->delivery.geometry.seq_len, engine->stream.start_row);
    if (engine->options->ready_fd >= 0) {
        ssize_t written = write(engine->options->ready_fd, "ready\n", 6);
        (void)written; /* the process that waits for it may be dead */
    }
    if (engine->options->observer)
        engine->options->observer->ready(engine->options->observer->context);
    if (engine->options->lifeline_fd < 0) /* else NOTIFY_SOCKET is about the process that owns us */
        rp_notify_ready();
}

static void init(struct rp_engine *engine, const struct rp_engine_options *options,
                 struct rp_error *error)
{
    const struct rp_config *config = options->config;
    *engine = (struct rp_engine){.options = options,
                                 .config = config,
                                 .life.error = error,
                                 .loop.epoll_fd = -1,
                                 .loop.ends_fd = -1,
                                 .loop.wake_fd = -1,
                                 .loop.signal_fd = -1,
                                 .saving = {.config = config, .saver.done_fd = -1},
                                 .stream = {.config = config,
                                            .accepts_weights = options->accept_weights,
                                            .planner.done_fd = -1},
                                 .delivery.config = config,
                                 .peers.listener = RP_LISTENER_CLOSED,
                                 .watching.started_ns = rp_now_ns()};
}

/* Serve from the start to the end of the loop. */
static void serve(struct rp_engine *engine)
{
    int code = open_engine(engine, engine->life.error);
    rp_stop_when(NULL); /* from here on the loop serves signals */
    if (code < 0) {
        rp_life_fail(&engine->life, code);
    } else {
        rp_life_transition(&engine->life, RP_LIFE_SERVE);
        rp_saving_journal_finish_start(&engine->saving);
        say_ready(engine);
        /* A lost file may end the first run at any place. The second run reports the loss, and
         * saves, unless the loss ends it as well. */
        if (!rp_mapped_guard(run, engine) && !rp_mapped_guard(run, engine))
            fail_if_file_changed(engine);
        rp_engine_stat_end(engine);
    }
    rp_engine_journal_close(engine);
    if (engine->loop.is_signalled)
        rp_loop_exit_at_signals(&engine->loop);
}

int rp_engine_run(const struct rp_engine_options *options, struct rp_error *error)
{
    struct rp_error local;
    struct rp_engine *engine = malloc(sizeof *engine); /* threads may outlive this call */
    if (!engine)
        return rp_fail(error, -ENOMEM, NULL, "out of memory at start");
    init(engine, options, error ? error : &local);
    rp_log_set_format(engine->config->log_format);
    serve(engine);
    bool is_closed = rp_engine_close(engine);
    enum rp_shutdown shutdown = engine->life.shutdown;
    int code = engine->life.code;
    if (code == 0 && engine->life.stage_ended)
        code = RP_ENGINE_STAGE_ENDED;
    if (options->was_stopped)
        *options->was_stopped = shutdown == RP_SHUTDOWN_SIGNAL || shutdown == RP_SHUTDOWN_REQUEST;
    if (is_closed)
        free(engine);
    return code;
}
