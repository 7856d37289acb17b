/* SPDX-License-Identifier: Apache-2.0 */
/* save.c — full checkpoints without a pause.
 *
 * A checkpoint has two positions.
 *
 *   cut       where a run that resumes from it begins: the end of the last step whose batches every
 *             local rank has released. A step boundary, because an engine that begins there counts
 *             its steps from there, and must end them where the engines of other nodes do.
 *   consumed  where its contents begin: the first batch that some local rank has not released.
 *
 * Invariant: cut <= consumed < cut + a step. The batches between the two were released, so their
 * slots may be in use again: they are in no contents, and a run that begins at the cut reads them
 * from the corpus. Rows at and behind `consumed` that were prefetched are immutable until they are
 * released, and a hold keeps their slots and tickets from being used again after that.
 *
 * Invariant: no checkpoint counts a batch that a consumer may ask for again. So none is made while
 * the position of any seat is unknown (seat.h).
 *
 * The flow keeps the state token of the cut, so the engine's thread only copies a few KB and lists
 * the contents. The saver's thread copies the contents while the stream runs and the hold keeps
 * them. A second thread writes to disk what is copied by then. The hold ends with the copy, so it
 * never waits for the disk. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/defect.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "flow/widen.h"
#include "server/connections.h"
#include "server/ending.h"
#include "server/placing.h"
#include "server/probe.h"
#include "server/recorder.h"
#include "server/save.h"
#include "server/save_contents.h"
#include "server/seats.h"

/* A tenth of the share of another thread that wants the same CPU, so that the save still ends. */
#define SAVER_NICE 10
#define NEAR_ROWS 4096u /* planned in a millisecond or two */
#define FEED_BYTES (256u << 10)

/* ---- the saver's thread ---------------------------------------------------------------------- */

static int compare_sources(const void *a, const void *b)
{
    const struct rp_content_source *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void announce(struct rp_saver *saver, enum rp_saver_state state)
{
    rp_a32_store_release(&saver->reached, state); /* PAIRS saver-phase */
    rp_fd_wake(saver->done_fd);
}

static uint64_t record_bytes(const struct rp_content_source *source)
{
    return sizeof(struct rp_content_record) +
           rp_align_up((uint64_t)source->count * source->kept, 8);
}

/* The copy out of shared memory, and the file's section that grows with it. */
struct copying {
    struct rp_saver *saver;
    uint8_t *contents;
    size_t room, bytes; /* of the contents: in all, and copied by now */
    size_t count;       /* sources that are copied */
    struct rp_growing_section *growing;
};

/* Let the section grow by what was copied since the last call. */
static void feed_on(struct copying *copying, size_t *fed)
{
    if (copying->growing)
        rp_growing_section_add(copying->growing, copying->bytes - *fed);
    *fed = copying->bytes;
}

/* Copies the sources one after the other. */
static void copy_contents(struct copying *copying)
{
    const struct rp_saver *saver = copying->saver;
    size_t fed = 0;
    for (size_t i = 0; i < saver->source_count; i++) {
        const struct rp_content_source *source = &saver->sources[i];
        uint8_t *at = copying->contents + copying->bytes;
        uint32_t width = source->kept;
        struct rp_content_record record = {
            .row = source->row, .offset = source->offset, .count = source->count, .width = width};
        memcpy(at, &record, sizeof record);
        enum rp_dtype dtype = width == 2 ? RP_DTYPE_U16 : RP_DTYPE_I32;
        uint64_t largest = rp_widen(at + sizeof record, dtype, source->tokens, source->width,
                                    source->count);
        if (largest >> 8 * width)
            break; /* does not fit `kept`: contents end here; the rest is read from the corpus */
        size_t used = sizeof record + (size_t)source->count * width;
        memset(at + used, 0, record_bytes(source) - used);
        copying->bytes += record_bytes(source);
        copying->count = i + 1;
        RP_ASSERT(copying->bytes <= copying->room);
        if (copying->bytes - fed >= FEED_BYTES)
            feed_on(copying, &fed);
    }
    feed_on(copying, &fed);
}

/* Write the checkpoint, with `bytes` of contents from `count` sources: they are copied already, or
 * with `growing` the writer waits for their copy. */
static void put_checkpoint(struct copying *copying, size_t bytes, size_t count,
                           struct rp_growing_section *growing)
{
    struct rp_saver *saver = copying->saver;
    saver->was_there = rp_checkpoint_is_saved(saver->directory, &saver->info, saver->token,
                                              saver->token_bytes, &saver->path);
    if (saver->was_there) {
        saver->code = 0;
        return;
    }
    saver->info.contents_end_row = count ? saver->sources[count - 1].row + 1 : saver->info.next_row;
    struct rp_checkpoint_piece pieces[] = {
        {saver->token, saver->token_bytes},
        {saver->config_text, strlen(saver->config_text)},
        {copying->contents, bytes},
        {rp_contract_text(saver->contract), rp_contract_bytes(saver->contract)}};
    struct rp_checkpoint_part parts[4] = {{RP_CHECKPOINT_STATE, &pieces[0], 1, NULL},
                                          {RP_CHECKPOINT_CONFIG, &pieces[1], 1, NULL}};
    size_t part_count = 2;
    if (count)
        parts[part_count++] = (struct rp_checkpoint_part){RP_CHECKPOINT_CONTENTS, &pieces[2], 1,
                                                          growing};
    parts[part_count++] = (struct rp_checkpoint_part){RP_CHECKPOINT_CONTRACT, &pieces[3], 1, NULL};
    saver->code = rp_checkpoint_save(saver->directory, &saver->info, parts, part_count,
                                     &saver->path, &saver->error);
}

static void apply_priority(const struct rp_saver *saver)
{
    if (saver->lower_priority)
        (void)nice(SAVER_NICE); /* of this thread, and those that it starts */
}

/* The second thread: writes the checkpoint while its contents are being copied. */
static void *put_fed(void *argument)
{
    struct copying *copying = argument;
    apply_priority(copying->saver);
    put_checkpoint(copying, copying->room, copying->saver->source_count, copying->growing);
    return NULL;
}

/* Copy the contents, while a second thread writes them. If that thread cannot be started, or if the
 * copy ended early, the checkpoint is written here, after the copy. */
static void save(struct rp_saver *saver)
{
    struct copying copying = {.saver = saver};
    pthread_t thread;
    if (saver->source_count)
        qsort(saver->sources, saver->source_count, sizeof *saver->sources, compare_sources);
    for (size_t i = 0; i < saver->source_count; i++)
        copying.room += record_bytes(&saver->sources[i]);
    if (copying.room) /* whole pages: the writer need not copy them */
        copying.contents = rp_take_pages(copying.room);
    if (copying.contents)
        copying.growing = rp_growing_section_open(copying.contents, copying.room);
    bool beside = copying.growing && pthread_create(&thread, NULL, put_fed, &copying) == 0;
    if (copying.contents)
        copy_contents(&copying);
    if (copying.growing)
        rp_growing_section_end(copying.growing);
    announce(saver, RP_SAVER_COPIED);
    apply_priority(saver);
    if (beside)
        pthread_join(thread, NULL);
    if (!beside || copying.bytes < copying.room)
        put_checkpoint(&copying, copying.bytes, copying.count, NULL);
    rp_growing_section_close(copying.growing);
    rp_give_pages(copying.contents, copying.room);
}

static void *saver_main(void *argument)
{
    struct rp_saver *saver = argument;
    save(saver);
    announce(saver, RP_SAVER_SAVED);
    if (saver->code == 0)
        rp_checkpoint_prune(saver->directory);
    announce(saver, RP_SAVER_DONE);
    return NULL;
}

/* ---- begin and end (engine's thread) --------------------------------------------------------- */

/* Move the probe to the cut. Returns 1; 0 if the cut is far and is now planned to; or a code. */
static int probe_cut(struct rp_engine *engine, uint64_t position)
{
    struct rp_saver *saver = &engine->saver;
    engine->far = &saver->far;
    int code = rp_engine_probe_batch(engine, position, &saver->error);
    engine->far = NULL;
    if (code == -EINPROGRESS)
        rp_engine_plan_far(engine);
    return code == -EINPROGRESS ? 0 : code < 0 ? code : 1;
}

/* Give the saver the state token of `position`. Returns 1; 0 if it is not known yet; or a code. */
static int take_state(struct rp_engine *engine, uint64_t position)
{
    struct rp_saver *saver = &engine->saver;
    size_t bytes = engine->start_bytes;
    uint64_t row = engine->base_row + position * engine->batch_rows;
    bool is_start = row == engine->start_row;
    uint64_t rows_to_plan = row - (row < engine->start_row ? 0 : engine->start_row);
    bool comes_later = engine->phase == RP_ENGINE_RUNNING && rp_engine_has_consumer(engine, NULL);
    const void *kept = rp_flow_state_at(engine->flow, position, &bytes, &row);
    if (!kept && is_start)
        kept = engine->start_state;
    if (!kept && comes_later && rows_to_plan > NEAR_ROWS)
        return 0; /* try again: the flow keeps the states at the ends of later steps */
    if (!kept) {
        int code = probe_cut(engine, position);
        if (code <= 0)
            return code;
    }
    saver->token = rp_calloc(1, engine->state_bytes_max);
    if (!saver->token)
        return rp_fail(&saver->error, -ENOMEM, NULL, "out of memory for a state token");
    if (kept) {
        memcpy(saver->token, kept, bytes);
    } else {
        bytes = rp_plan_save(engine->probe, saver->token);
        row = rp_plan_row(engine->probe);
    }
    RP_ASSERT(bytes <= engine->state_bytes_max);
    saver->token_bytes = bytes;
    saver->info.next_row = row;
    return 1;
}

/* No checkpoint counts a batch that a consumer may ask for again. A consumer whose position is
 * unknown may ask for any. */
static int check_ranks(const struct rp_engine *engine, struct rp_error *error)
{
    char name[RP_SEAT_NAME_BYTES];
    for (uint32_t s = 0; s < engine->seat_count; s++)
        if (!rp_seat_position_is_known(&engine->seats[s]))
            return rp_fail(error, -RP_E_BUSY,
                           "earlier checkpoints stay valid; a save succeeds once it has attached",
                           "%s has not attached since another trainer attached from a state token "
                           "or moved the stream, so what it has consumed is unknown",
                           rp_seat_name(&engine->seats[s], name));
    return 0;
}

static void fill_info(struct rp_engine *engine)
{
    struct rp_checkpoint_info *info = &engine->saver.info;
    *info = (struct rp_checkpoint_info){.identity = engine->identity,
                                        .world = engine->config->dp_world_size,
                                        .rows = engine->config->batch_size};
    memcpy(info->run, engine->config->run, strnlen(engine->config->run, sizeof info->run - 1));
    memcpy(info->version, RP_VERSION, sizeof RP_VERSION);
}

static int start_saver(struct rp_engine *engine, uint64_t consumed)
{
    struct rp_saver *saver = &engine->saver;
    RP_ASSERT(saver->state == RP_SAVER_IDLE && saver->token && engine->checkpoints);
    saver->info.contents_end_row = saver->info.next_row;
    saver->directory = engine->checkpoints;
    saver->config_text = engine->config_text;
    saver->contract = &engine->contract;
    saver->lower_priority = engine->phase == RP_ENGINE_RUNNING;
    /* a file has changed: tokens that were read before that was noticed may be wrong */
    bool is_doubtful = engine->exit_code == -RP_E_CHANGED;
    saver->state = engine->config->checkpoint_contents && !is_doubtful ? RP_SAVER_COPYING
                                                                       : RP_SAVER_COPIED;
    if (saver->state == RP_SAVER_COPYING) {
        rp_flow_hold(engine->flow, consumed);
        rp_engine_list_contents(engine);
    }
    rp_a32_store_relaxed(&saver->reached, saver->state);
    int failed = pthread_create(&saver->thread, NULL, saver_main, saver);
    if (failed == 0)
        return 0;
    saver->state = RP_SAVER_IDLE;
    rp_flow_release_hold(engine->flow);
    return rp_fail(&saver->error, -failed, NULL, "cannot start the thread of a checkpoint: %s",
                   rp_strerror(-failed));
}

static void answer_requesters(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saver;
    char text[RP_ENGINE_TEXT_BYTES];
    rp_engine_error_text(&saver->error, text);
    for (uint32_t i = 0; i < RP_CONNECTIONS_MAX; i++) {
        struct rp_connection *connection = &engine->connections[i];
        if (connection->fd < 0 || !connection->waits_for_save)
            continue;
        connection->pending_request = 0;
        connection->waits_for_save = false;
        rp_engine_reply(engine, connection, saver->code < 0 ? RP_REPLY_REFUSED : RP_REPLY_TEXT,
                        saver->code, saver->code < 0 ? text : saver->path);
    }
}

/* Log the result of the save, and answer the peers that asked for it. */
static void tell_result(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saver;
    if (saver->code == 0 && saver->was_there)
        rp_log(RP_LOG_INFO, "nothing new to save: %s has row %" PRIu64, saver->path,
               saver->info.next_row);
    else if (saver->code == 0)
        rp_log(RP_LOG_INFO, "saved %s: row %" PRIu64 ", contents to row %" PRIu64, saver->path,
               saver->info.next_row, saver->info.contents_end_row);
    else
        rp_log(RP_LOG_ERROR, "checkpoint not saved%s: %s",
               engine->phase == RP_ENGINE_RUNNING ? ", the stream goes on" : "",
               saver->error.message);
    if (saver->code == 0)
        rp_recorder_note(engine->recorder, saver->info.next_row);
    bool is_last = engine->phase != RP_ENGINE_RUNNING && saver->code != -RP_E_BUSY;
    if (saver->code < 0 && is_last && engine->exit_code == 0) {
        *engine->error = saver->error;
        engine->exit_code = saver->code;
    }
    answer_requesters(engine);
}

static void forget_save(struct rp_saver *saver)
{
    free(saver->path);
    free(saver->token);
    free(saver->sources);
    saver->path = NULL;
    saver->token = NULL;
    saver->sources = NULL;
}

bool rp_engine_begin_save(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saver;
    if (!engine->checkpoints || saver->state != RP_SAVER_IDLE)
        return false;
    RP_ASSERT(!saver->token && !saver->sources && !saver->path);
    uint64_t consumed = rp_engine_consumed(engine);
    uint64_t cut = consumed - consumed % engine->micro_batches;
    RP_ASSERT(cut <= consumed && consumed - cut < engine->micro_batches);
    saver->error = (struct rp_error){0};
    fill_info(engine);
    int code = check_ranks(engine, &saver->error);
    if (code == 0)
        code = take_state(engine, cut);
    if (code == 0) {
        rp_flow_wake_at(engine->flow, cut + engine->micro_batches);
        return false;
    }
    rp_far_row_forget(&engine->planner, &saver->far);
    for (uint32_t i = 0; i < RP_CONNECTIONS_MAX; i++)
        engine->connections[i].waits_for_save = engine->connections[i].pending_request ==
                                                RP_REQUEST_CHECKPOINT;
    if (code > 0)
        code = start_saver(engine, consumed);
    if (code < 0) { /* else the saver's thread has these fields from now on */
        saver->code = code;
        tell_result(engine);
        forget_save(saver);
    }
    rp_engine_schedule_save(engine);
    return true;
}

void rp_engine_schedule_save(struct rp_engine *engine)
{
    uint64_t every = engine->config->checkpoint_steps;
    uint64_t step = rp_engine_consumed(engine) / engine->micro_batches;
    engine->next_save_step = every ? (step / every + 1) * every : 0;
    bool is_due = every && engine->checkpoints;
    rp_flow_wake_at(engine->flow,
                    is_due ? engine->next_save_step * engine->micro_batches : UINT64_MAX);
}

void rp_engine_want_due_save(struct rp_engine *engine)
{
    uint64_t step = rp_engine_consumed(engine) / engine->micro_batches;
    if (!engine->config->checkpoint_steps || !engine->checkpoints ||
        engine->phase != RP_ENGINE_RUNNING || step < engine->next_save_step)
        return;
    engine->save_wanted = true;
    rp_engine_schedule_save(engine);
}

/* The saver's thread has reached the next state: do the engine's part of it. */
static void follow(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saver;
    saver->state++;
    switch (saver->state) {
    case RP_SAVER_COPIED:
        rp_flow_release_hold(engine->flow);
        break;
    case RP_SAVER_SAVED:
        tell_result(engine);
        break;
    case RP_SAVER_DONE:
        pthread_join(saver->thread, NULL);
        forget_save(saver);
        saver->state = RP_SAVER_IDLE;
        break;
    case RP_SAVER_IDLE:
    case RP_SAVER_COPYING:
        RP_ASSERT(false); /* a save is begun by start_saver */
    }
}

void rp_engine_finish_copy(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saver;
    if (saver->state != RP_SAVER_COPYING)
        return;
    while (rp_a32_load_acquire(&saver->reached) == RP_SAVER_COPYING) /* PAIRS saver-phase */
        rp_sleep_ns(100000);
    follow(engine);
}

void rp_engine_continue_save(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saver;
    uint32_t reached = rp_a32_load_acquire(&saver->reached); /* PAIRS saver-phase */
    while (saver->state != RP_SAVER_IDLE && saver->state < reached)
        follow(engine);
}
