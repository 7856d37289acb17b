/* SPDX-License-Identifier: Apache-2.0 */
/* server.c — builds everything, then turns one loop: deliver, listen, save, until it is told to
 * stop.
 *
 * Order at start: signals → checkpoint directory → start state (checkpoint, corpus, plans) → rings
 * → socket → flow → ready. The trial write of the directory ends before the flow begins, and the
 * journal has the start before the engine is ready. Trainers that find the socket earlier wait:
 * nobody is taken in before the engine is ready, and so none has got a batch of a start that is
 * refused. */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "base/stop.h"
#include "io/io.h"
#include "server/attach.h"
#include "server/caching.h"
#include "server/close.h"
#include "server/connections.h"
#include "server/events.h"
#include "server/journal.h"
#include "server/last_look.h"
#include "server/notify.h"
#include "server/probe.h"
#include "server/reading.h"
#include "server/recorder.h"
#include "server/rejoin.h"
#include "server/rings.h"
#include "server/save.h"
#include "server/seats.h"
#include "server/server.h"
#include "server/shutdown.h"
#include "server/signals.h"
#include "server/speed.h"
#include "server/start.h"
#include "server/stat.h"
#include "stream.h"

#define PARK_MS 100
#define FAILED_WAIT_NS 10000000000u /* as long as a trainer searches for its engine by default */
#define EVENTS_MAX 64
/* Deliver steps between two polls of the sockets while there is always something to deliver. */
#define STEPS_PER_POLL 64u

/* ---- opening --------------------------------------------------------------------------------- */

static int open_rings(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    engine->delivery.geometry = (struct rp_geometry){
        .rows = c->batch_size,
        .seq_len = c->seq_len,
        .max_docs_per_row = rp_plan_max_docs_per_row(engine->stream.plan),
        .world = c->dp_world_size,
        .micro_batches = (uint32_t)engine->delivery.micro_batches,
        .slots = c->prefetch_factor,
        .label_mode = c->label_mode,
        .pad_id = c->pad_id,
        .state_bytes = engine->stream.state_bytes_max};
    if (rp_geometry_layout(&engine->delivery.geometry, c->sections, c->token_dtype) == 0)
        return rp_fail(error, -RP_E_CONFIG, "lower batch_size, seq_len or prefetch_factor",
                       "a batch ring of %u slots of %u x %u tokens is too large to address",
                       c->prefetch_factor, c->batch_size, c->seq_len);
    engine->delivery.rings = rp_calloc(c->rank_count, sizeof *engine->delivery.rings);
    engine->delivery.seats = rp_calloc((size_t)c->rank_count * c->replicas,
                                       sizeof *engine->delivery.seats);
    engine->stream.mask_counts = rp_calloc(c->source_count, sizeof *engine->stream.mask_counts);
    engine->peers.connections = rp_calloc(RP_CONNECTIONS_MAX, sizeof *engine->peers.connections);
    for (uint32_t i = 0; engine->peers.connections && i < RP_CONNECTIONS_MAX; i++)
        engine->peers.connections[i].fd = -1;
    if (!engine->delivery.rings || !engine->delivery.seats || !engine->stream.mask_counts ||
        !engine->peers.connections)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u batch rings", c->rank_count);
    engine->delivery.ring_count = c->rank_count;
    engine->delivery.seat_count = c->rank_count * c->replicas;
    for (uint32_t r = 0; r < engine->delivery.ring_count; r++)
        engine->delivery.rings[r].data.fd = -1;
    for (uint32_t s = 0; s < engine->delivery.seat_count; s++)
        engine->delivery.seats[s] = (struct rp_seat){
            .ring = &engine->delivery.rings[s / c->replicas], .replica = s % c->replicas};
    uint64_t batch = (engine->stream.start_row - engine->delivery.base_row) /
                     engine->delivery.batch_rows;
    int code = 0;
    for (uint32_t r = 0; r < engine->delivery.ring_count && code >= 0; r++) {
        code = rp_stop_check(error); /* a node may have thousands of ranks */
        if (code >= 0)
            code = rp_engine_rebuild_ring(engine, r, RP_ALL_SEATS, batch, error);
    }
    return code;
}

static int open_flow(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    char why[RP_STREAM_WHY_BYTES];
    int code = rp_stream_choose_io(&engine->delivery.io, c, engine->stream.corpus, why, error);
    if (code >= 0)
        code = rp_engine_open_cache(engine, error);
    if (code < 0)
        return code;
    struct rp_flow_options options = {
        .corpus = engine->stream.corpus,
        .method = engine->delivery.io.method,
        .file_method = engine->delivery.io.file_method,
        .gives_way = engine->delivery.io.gives_way,
        .contents = engine->stream.contents,
        .cache = engine->delivery.cache,
        .next_use = engine->delivery.cache ? &engine->delivery.next_use : NULL,
        .readers = c->num_workers,
        .packers = c->packers,
        .io_depth = rp_io_choose_depth(engine->delivery.io.method, c->io_depth),
        .packer_processes = c->packer_processes,
        .verify_blocks = c->verify_blocks != RP_SWITCH_OFF,
        .token_limit = rp_stream_token_limit(c),
        .pad_id = c->pad_id,
        .world = c->dp_world_size,
        .rank_first = c->rank_first,
        .rank_count = c->rank_count,
        .rows = c->batch_size,
        .global_batch_rows = c->global_batch_size,
        .drop_last = c->drop_last,
        .prefetch_bytes = c->prefetch_bytes,
        .seq_len = c->seq_len,
        .state_bytes = engine->stream.state_bytes_max,
        .batch_slots = engine->delivery.geometry.slots,
        .other_descriptors = rp_engine_descriptors(c),
        .mask_counts = engine->stream.mask_counts,
        .truncates = c->long_doc == RP_LONG_DOC_TRUNCATE};
    rp_engine_choose_reading(engine, &options, why);
    if (c->packer_cpus)
        rp_log(RP_LOG_INFO, "packers: %u, chosen for %u CPU%s %s %u trainer%s", c->packers,
               c->packer_cpus, c->packer_cpus == 1 ? "" : "s",
               c->cpus ? "of the engine alone, and" : "shared with", engine->delivery.seat_count,
               engine->delivery.seat_count == 1 ? "" : "s");
    options.prefetch_bytes = rp_flow_prefetch_bytes(&options, engine->stream.plan,
                                                    engine->stream.start_row);
    code = rp_flow_open(&engine->delivery.flow, &options, engine->loop.wake_fd, error);
    if (code >= 0)
        code = rp_engine_probe_row(engine, engine->stream.start_row, NULL, 0, error);
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}

static int open_engine(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *c = engine->config;
    if (getrandom(&engine->delivery.generation, sizeof engine->delivery.generation, 0) !=
        sizeof engine->delivery.generation)
        engine->delivery.generation = rp_now_ns();
    engine->delivery.batch_rows = (uint64_t)c->batch_size * c->dp_world_size;
    engine->delivery.micro_batches = c->global_batch_size / engine->delivery.batch_rows;
    RP_ASSERT(engine->delivery.micro_batches * engine->delivery.batch_rows == c->global_batch_size);
    int code = rp_engine_open_descriptors(engine, error);
    if (code >= 0) /* before the directory is made, where it is not there */
        code = rp_engine_check_resume(engine, error);
    if (code >= 0 && c->checkpoint_dir)
        code = rp_checkpoint_dir_begin(&engine->saving.checkpoints, c->checkpoint_dir,
                                       c->checkpoint_keep, c->checkpoint_copy_dir, error);
    if (code >= 0 && engine->saving.checkpoints) /* once: later, the disk may hang */
        engine->saving.checkpoint_path = realpath(c->checkpoint_dir, NULL);
    uint64_t history_rows;
    if (!rp_mul_u64(c->checkpoint_keep_every, c->global_batch_size, &history_rows))
        history_rows = UINT64_MAX;
    if (code >= 0 && engine->saving.checkpoints)
        rp_checkpoint_keep_every(engine->saving.checkpoints, history_rows);
    if (code >= 0 && engine->saving.checkpoints)
        code = rp_checkpoint_dir_scrub(engine->saving.checkpoints, c->checkpoint_scrub_seconds,
                                       error);
    if (code >= 0)
        code = rp_engine_find_start(engine, error);
    if (code >= 0) {
        /* rows before the start are numbered, too: a consumer may be further back */
        engine->delivery.base_row = engine->stream.start_row % c->global_batch_size;
        code = open_rings(engine, error);
    }
    /* the name before the flow: a second engine of that name must not read anything */
    if (code >= 0)
        code = rp_listener_open(&engine->peers.listener, c->run_dir, c->run, error);
    if (code >= 0)
        code = rp_loop_watch(&engine->loop, engine->peers.listener.fd, RP_WATCH_LISTENER, 0);
    if (code >= 0)
        code = rp_saving_settle_start(&engine->saving, error);
    if (code >= 0) {
        rp_engine_journal_start(engine);
        code = open_flow(engine, error);
    }
    return code;
}

/* ---- running --------------------------------------------------------------------------------- */

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

static void serve_lifeline(struct rp_engine *engine)
{
    char bytes[64];
    ssize_t got = read(engine->options->lifeline_fd, bytes, sizeof bytes);
    if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN)))
        return;
    (void)epoll_ctl(engine->loop.epoll_fd, EPOLL_CTL_DEL, engine->options->lifeline_fd, NULL);
    rp_log_event(RP_EVENT_stopping, "the process that started this engine is gone: stopping");
    rp_engine_begin_stop(engine, RP_SHUTDOWN_LIFELINE);
}

static void serve_event(struct rp_engine *engine, const struct epoll_event *event)
{
    uint32_t index = (uint32_t)event->data.u64;
    switch ((enum rp_watch)(event->data.u64 >> 32)) {
    case RP_WATCH_WAKE:
        drain(engine->loop.wake_fd);
        break;
    case RP_WATCH_SIGNAL:
        rp_engine_serve_signal(engine);
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
        rp_engine_retry_placing(engine);
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

/* Trainers that wait at the old socket are taken in first: it is closed. */
static void look_after_names(struct rp_engine *engine)
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
    } else if (had_names) { /* said once, tried again every second */
        rp_log(RP_LOG_WARNING,
               "the socket of run %s was removed, and nobody can attach: %s; trying again",
               listener->run, error.message);
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
    if (engine->peers.accept_deferred)
        rp_engine_accept(engine);
    look_after_names(engine);
    rp_engine_note_pace(engine);
    rp_engine_note_reading(engine);
}

/* A checkpoint every so many steps, counted in what trainers consumed. */
static void save_when_due(struct rp_engine *engine)
{
    rp_engine_want_due_save(engine);
    if (engine->saving.is_wanted && rp_engine_begin_save(engine))
        engine->saving.is_wanted = false;
}

/* Are there batches for a consumer that is yet to attach? */
static bool is_to_come(const struct rp_seat *seat)
{
    bool has_none = seat->seat_state == RP_SEAT_VACANT ||
                    seat->seat_state == RP_SEAT_ABSENT_UNKNOWN;
    return has_none && rp_seat_position(seat) < seat->ring->tail &&
           !rp_ring_may_be_read(seat->ring, seat->replica);
}

/* A stream that failed in reading ahead has published batches before that. Consumers that are yet
 * to attach may still fetch them, from memory that nobody reads; those that are attached have them
 * mapped, and need no engine for it. */
static bool is_awaited(const struct rp_engine *engine)
{
    if (rp_now_ns() - engine->life.failed_ns >= FAILED_WAIT_NS)
        return false;
    RP_ASSERT(engine->life.life_state == RP_LIFE_FAILED);
    for (uint32_t s = 0; s < engine->delivery.seat_count; s++)
        if (is_to_come(&engine->delivery.seats[s]))
            return true;
    return false;
}

/* Micro-batches of the last step may be padding alone: the mean of a loss over no label is 0/0. */
static void tell_padding(const struct rp_engine *engine)
{
    uint64_t after = engine->delivery.base_row +
                     rp_delivery_lowest_tail(&engine->delivery) * engine->delivery.batch_rows;
    uint64_t end = rp_plan_row(engine->stream.plan);
    uint64_t batches = after > end ? (after - end) / engine->config->batch_size : 0;
    if (batches > 0)
        rp_log(RP_LOG_WARNING,
               "the last step has %" PRIu64 " micro-batches without a label, over all ranks: they "
               "are padding after the end of the stream; guard the mean of the loss, or leave the "
               "step out with drop_last",
               batches);
}

static void run_step(struct rp_engine *engine, uint32_t *idle)
{
    bool has_failed = rp_life_has_failed(&engine->life);
    int step = rp_delivery_runs(&engine->delivery) && !has_failed
                   ? rp_flow_deliver(engine->delivery.flow, engine->life.error)
                   : RP_FLOW_IDLE;
    if (step == RP_FLOW_RESTART)
        step = rp_engine_restart_flow(engine, engine->life.error);
    if (step < 0)
        rp_engine_fail(engine, step);
    if (step == RP_FLOW_ENDED && engine->delivery.state != RP_DELIVERY_ENDED) {
        tell_padding(engine);
        engine->delivery.state = RP_DELIVERY_ENDED;
    }
    save_when_due(engine);
    if (step == RP_FLOW_WORKED) {
        *idle = 0;
        return;
    }
    /* packer threads deliver while this one sleeps; processes need it */
    if (engine->config->packer_processes && rp_spin(idle, RP_SPIN_NS))
        return;
    *idle = 0;
    has_failed = rp_life_has_failed(&engine->life); /* then there is always something to deliver */
    bool parked = !rp_delivery_runs(&engine->delivery) || rp_flow_park(engine->delivery.flow) ||
                  has_failed;
    poll_events(engine, parked ? PARK_MS : 0);
    if (rp_life_is_running(&engine->life))
        rp_delivery_skip_absent(&engine->delivery);
}

/* The stages that met a lost file have ended, so no token of that file is delivered. */
static void fail_when_changed(struct rp_engine *engine)
{
    int code = rp_life_has_failed(&engine->life) ? 0 : rp_mapped_lost(engine->life.error);
    if (code == 0)
        code = rp_engine_follow_look(engine);
    if (code < 0)
        rp_engine_fail(engine, code);
}

static void run(void *argument)
{
    struct rp_engine *engine = argument;
    uint32_t idle = 0;
    for (uint32_t steps = 0; !rp_life_is_done(&engine->life); steps++) {
        if (steps % STEPS_PER_POLL == 0)
            poll_events(engine, 0);
        fail_when_changed(engine);
        run_step(engine, &idle);
        if (engine->peers.placing_count && !rp_life_is_running(&engine->life))
            rp_engine_retry_placing(engine);
        if (rp_life_is_running(&engine->life))
            rp_engine_stop_when_delivered(engine);
        if (engine->life.life_state == RP_LIFE_FAILED && !is_awaited(engine))
            rp_engine_begin_stop(engine, RP_SHUTDOWN_FAILURE);
        if (rp_life_is_ending(&engine->life) && rp_saving_is_idle(&engine->saving))
            rp_life_transition(&engine->life, RP_LIFE_END);
    }
    for (uint32_t r = 0; r < engine->delivery.ring_count; r++)
        if (engine->delivery.rings[r].status == RP_RING_RUNNING &&
            engine->delivery.rings[r].data.data)
            rp_ring_set_status(&engine->delivery.rings[r], RP_RING_STOPPED,
                               engine->delivery.rings[r].tail, NULL);
}

static void say_ready(const struct rp_engine *engine)
{
    const struct rp_config *c = engine->config;
    rp_log_event(RP_EVENT_serving,
                 "serving run %s: ranks %u to %u of %u, rows of %u tokens, from row %" PRIu64,
                 c->run, c->rank_first, c->rank_first + c->rank_count - 1, c->dp_world_size,
                 c->seq_len, engine->stream.start_row);
    if (engine->options->ready_fd >= 0) {
        ssize_t written = write(engine->options->ready_fd, "ready\n", 6);
        (void)written; /* the process that waits for it may be dead */
    }
    if (engine->options->observer)
        engine->options->observer->ready(engine->options->observer->context);
    if (engine->options->lifeline_fd < 0) /* else NOTIFY_SOCKET is about the process that owns us */
        rp_notify_ready();
}

/* What checkpoints keep of the config, without the rights that its URLs carry. */
static int keep_config_text(struct rp_engine *engine, struct rp_error *error)
{
    engine->config_text = rp_config_kept_text(engine->config);
    if (!engine->config_text)
        return rp_fail(error, -ENOMEM, NULL, "out of memory at start");
    return 0;
}

int rp_engine_run(const struct rp_engine_options *options, struct rp_error *error)
{
    struct rp_error local;
    const struct rp_config *config = options->config;
    struct rp_engine engine = {.options = options,
                               .config = config,
                               .life.error = error ? error : &local,
                               .loop.epoll_fd = -1,
                               .loop.wake_fd = -1,
                               .loop.signal_fd = -1,
                               .saving = {.config = config, .saver.done_fd = -1},
                               .stream = {.config = config,
                                          .accepts_weights = options->accept_weights,
                                          .planner.done_fd = -1},
                               .delivery.config = config,
                               .peers.listener = RP_LISTENER_CLOSED,
                               .watching.started_ns = rp_now_ns()};
    rp_log_set_format(engine.config->log_format);
    int code = keep_config_text(&engine, engine.life.error);
    if (code >= 0)
        code = open_engine(&engine, engine.life.error);
    rp_stop_when(NULL); /* from here on a signal ends it in good order */
    if (code < 0) {
        rp_life_fail(&engine.life, code);
    } else {
        rp_life_transition(&engine.life, RP_LIFE_SERVE);
        rp_saving_journal_finish_start(&engine.saving);
        say_ready(&engine);
        /* a lost file ends the first run; the second reports it and saves, or is ended by it too */
        if (!rp_mapped_guard(run, &engine) && !rp_mapped_guard(run, &engine))
            fail_when_changed(&engine);
        rp_engine_stat_end(&engine);
    }
    rp_engine_journal_close(&engine);
    if (engine.life.is_signalled)
        rp_loop_let_signals_end_us(&engine.loop);
    rp_engine_close(&engine);
    return engine.life.code;
}
