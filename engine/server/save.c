/* SPDX-License-Identifier: Apache-2.0 */
/* save.c — full checkpoints without a pause.
 *
 * A checkpoint follows from the numbers of two batches:
 *
 *   consumed  the first batch that some local rank has not released. Contents begin with its rows.
 *   cut       the first batch of the step that has `consumed`. A run that resumes begins with its
 *             first row: a step boundary, because an engine counts its steps from its first row,
 *             and must end them where the engines of other nodes do.
 *
 * Invariant: cut <= consumed < cut + a step. The batches between the two were released, so their
 * slots may be in use again: they are in no contents, and a run that begins at the cut reads them
 * from the corpus. Rows from `consumed` on that were prefetched are immutable until they are
 * released, and a hold keeps their slots and tickets from being used again after that.
 *
 * Invariant: no checkpoint counts a batch that a consumer may request again. So none is made while
 * the position of any seat is unknown (seat.h).
 *
 * Invariant: no contents are of a token file that is known to have changed. A file without hashes
 * is checked after the contents were listed (revalidate.h), while they are copied and written. If
 * it finds a change, or the disk does not answer in time, the checkpoint is saved without contents.
 *
 * The flow keeps the state token of the cut, so the engine's thread only copies a few KB and lists
 * the contents. Threads of the save (saver.c) copy and write them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/connections.h"
#include "server/journal.h"
#include "server/revalidate.h"
#include "server/deferred_attach.h"
#include "server/probe.h"
#include "server/recorder.h"
#include "server/save.h"
#include "server/saver.h"
#include "server/seats.h"

/* After this many consecutive bad saves the next one is made when it is due. */
#define BAD_SAVES_MAX 3u

bool rp_engine_may_save(const struct rp_engine *engine)
{
    return engine->saving.checkpoints &&
           (!rp_life_is_ending(&engine->life) || engine->saving.is_wanted);
}

bool rp_saving_is_idle(const struct rp_saving *saving)
{
    return !saving->is_wanted && saving->saver.state == RP_SAVER_IDLE &&
           saving->validity != RP_VALIDITY_REQUESTED;
}

/* ---- begin and end (engine's thread) --------------------------------------------------------- */

/* Where the cut's state token comes from: the first of these that applies. */
enum state_source {
    STATE_KEPT,    /* the flow has kept the token of this batch */
    STATE_START,   /* the run began at the cut */
    STATE_LATER,   /* the cut is far, and consumers advance: the save is tried again at the end of a
                      later step, whose token the flow keeps */
    STATE_PLANNED, /* the probe plans to the cut; to a far cut, on a separate thread (far_plan.h) */
};

/* *found: the state, for STATE_KEPT and STATE_START. */
static enum state_source find_state(const struct rp_engine *engine, uint64_t cut,
                                    struct rp_row_state *found)
{
    const struct rp_stream *stream = &engine->stream;
    uint64_t row = rp_delivery_row(&engine->delivery, cut);
    *found = rp_flow_state_at(engine->delivery.flow, cut);
    if (found->token)
        return STATE_KEPT;
    if (row == stream->start_row) {
        *found = (struct rp_row_state){stream->start_state, stream->start_bytes, row};
        return STATE_START;
    }
    uint64_t rows_to_plan = row - (row < stream->start_row ? 0 : stream->start_row);
    bool will_consume = rp_life_is_running(&engine->life) &&
                        rp_delivery_has_consumer(&engine->delivery, NULL);
    return will_consume && rows_to_plan > RP_NEAR_ROWS ? STATE_LATER : STATE_PLANNED;
}

/* Move the probe to the cut. Returns 1; 0 if the cut is far: planning to it has begun; or a code.
 */
static int probe_cut(struct rp_engine *engine, uint64_t cut)
{
    struct rp_saver *saver = &engine->saving.saver;
    engine->stream.far = &saver->far;
    int code = rp_engine_probe_batch(engine, cut, &saver->error);
    engine->stream.far = NULL;
    if (code == -EINPROGRESS)
        rp_engine_plan_far(engine);
    return code == -EINPROGRESS ? 0 : code < 0 ? code : 1;
}

/* Give the saver the state token of the cut. Returns 1; 0 if it is not known yet; or a code. */
static int take_state(struct rp_engine *engine, uint64_t cut)
{
    struct rp_saver *saver = &engine->saving.saver;
    struct rp_row_state found;
    enum state_source source = find_state(engine, cut, &found);
    if (source == STATE_LATER)
        return 0;
    int code = source == STATE_PLANNED ? probe_cut(engine, cut) : 1;
    if (code <= 0)
        return code;
    saver->token = rp_calloc(1, engine->stream.state_bytes_max);
    if (!saver->token)
        return rp_fail(&saver->error, -ENOMEM, NULL, "out of memory for a state token");
    if (source == STATE_PLANNED) {
        code = rp_plan_try_save(engine->stream.probe, saver->token, &found.bytes, &saver->error);
        if (code < 0)
            return code;
        found.row = rp_plan_row(engine->stream.probe);
    } else {
        memcpy(saver->token, found.token, found.bytes);
    }
    RP_ASSERT(found.bytes <= engine->stream.state_bytes_max);
    saver->token_bytes = found.bytes;
    saver->info.next_row = found.row;
    return 1;
}

/* Is this the state of the newest checkpoint, as far as this engine knows? The saver's thread
 * checks whether that checkpoint still verifies. */
static bool is_newest_state(const struct rp_saver *saver)
{
    return saver->newest_token && saver->newest_bytes == saver->token_bytes &&
           memcmp(saver->newest_token, saver->token, saver->token_bytes) == 0;
}

void rp_saving_set_newest(struct rp_saving *saving, void *token, size_t bytes, const char *path)
{
    char *copy = path ? strdup(path) : NULL;
    free(saving->newest_path);
    saving->newest_path = copy;
    free(saving->saver.newest_token);
    saving->saver.newest_token = token;
    saving->saver.newest_bytes = token ? bytes : 0;
}

/* A consumer whose position is unknown may request any batch again. */
static int check_positions(const struct rp_delivery *delivery, struct rp_error *error)
{
    char name[RP_SEAT_NAME_BYTES];
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        if (!rp_seat_position_is_known(&delivery->seats[s]))
            return rp_fail(error, -RP_E_BUSY,
                           "earlier checkpoints stay valid; a save succeeds once it has attached",
                           "%s has not attached since another trainer attached from a state token "
                           "or moved the stream, so the rows it has consumed are unknown",
                           rp_seat_name(&delivery->seats[s], name));
    return 0;
}

static void fill_info(struct rp_engine *engine)
{
    struct rp_checkpoint_info *info = &engine->saving.saver.info;
    *info = (struct rp_checkpoint_info){.identity = engine->stream.identity,
                                        .dp_world_size = engine->config->dp_world_size,
                                        .batch_size = engine->config->batch_size};
    memcpy(info->run, engine->config->run, strnlen(engine->config->run, sizeof info->run - 1));
    memcpy(info->version, RP_VERSION, sizeof RP_VERSION);
}

/* If no thread can be started, the last save is made by the engine's thread. It has no contents:
 * with contents a save waits until the engine's thread knows whether token files have changed. */
static void save_without_thread(struct rp_saver *saver)
{
    saver->source_count = 0;
    saver->state = RP_SAVER_COPIED;
    rp_a32_store_relaxed(&saver->reached, saver->state);
    (void)rp_saver_main(saver);
}

static int start_saver(struct rp_engine *engine, uint64_t consumed)
{
    struct rp_saver *saver = &engine->saving.saver;
    RP_ASSERT(saver->state == RP_SAVER_IDLE && saver->token && engine->saving.checkpoints);
    saver->info.contents_end_row = saver->info.next_row;
    saver->directory = engine->saving.checkpoints;
    saver->config_text = engine->config_text;
    saver->contract = &engine->stream.contract;
    saver->lower_priority = rp_life_is_running(&engine->life);
    /* after a change of a file, tokens that were read before it was noticed may be wrong */
    bool is_doubtful = engine->life.code == -RP_E_CHANGED;
    bool has_contents = engine->config->checkpoint_contents && !is_doubtful &&
                        !is_newest_state(saver);
    saver->state = has_contents ? RP_SAVER_COPYING : RP_SAVER_COPIED;
    if (saver->state == RP_SAVER_COPYING) {
        rp_flow_hold(engine->delivery.flow, consumed);
        rp_engine_list_contents(engine);
        rp_a32_store_relaxed(&saver->validity, RP_VALIDITY_REQUESTED);
        rp_engine_request_revalidation(engine); /* not before they are listed */
    }
    rp_a32_store_relaxed(&saver->reached, saver->state);
    int failed = rp_thread_start(&saver->thread, rp_saver_main, saver);
    saver->has_thread = failed == 0;
    if (failed == 0)
        return 0;
    rp_flow_release_hold(engine->delivery.flow);
    if (!rp_life_is_running(&engine->life)) {
        save_without_thread(saver);
        return 0;
    }
    saver->state = RP_SAVER_IDLE;
    return rp_fail(&saver->error, -failed, NULL, "cannot start the thread of a checkpoint: %s",
                   rp_strerror(-failed));
}

/* Why a checkpoint has no contents. */
static const char *reason_of(const struct rp_saver *saver)
{
    return saver->drop_reason == RP_VALIDITY_LATE
               ? "without contents, because the disk of the token files does not answer"
               : "without contents, because a token file has changed";
}

/* The answer is an error; or the path of the checkpoint and, on a second line, a note on it. */
static void answer_requesters(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saving.saver;
    char text[RP_ENGINE_TEXT_BYTES], *note = NULL;
    if (saver->code == 0 && saver->drop_reason && !saver->already_saved)
        note = rp_asprintf("%s\n%s", saver->path, reason_of(saver));
    rp_engine_error_text(&saver->error, text);
    const char *answer = saver->code < 0 ? text : note ? note : saver->path;
    int code = saver->code < 0 ? saver->code : note ? RP_REPLY_CODE_NOTE : 0;
    struct rp_connection *connection;
    for (uint32_t i = 0; (connection = rp_peers_next(&engine->peers, &i));) {
        if (connection->awaits != RP_AWAITS_SAVE)
            continue;
        connection->awaits = RP_AWAITS_NOTHING;
        rp_engine_reply(engine, connection, saver->code < 0 ? RP_REPLY_REFUSED : RP_REPLY_TEXT,
                        code, answer);
    }
    free(note);
}

static void count_save(struct rp_saving *saving)
{
    const struct rp_saver *saver = &saving->saver;
    struct rp_save_counts *counts = &saving->counts;
    counts->has_failed = saver->code < 0 || saver->bad_code < 0;
    if (saver->code < 0) {
        counts->failures++;
        memcpy(counts->reason, saver->error.message, sizeof counts->reason);
        return;
    }
    counts->row = saver->info.next_row;
    counts->ended_ns = rp_now_ns();
    if (saver->already_saved)
        return;
    counts->saves++;
    counts->bytes = saver->bytes;
    counts->duration_ns = counts->ended_ns - saver->began_ns;
}

/* An engine that is about to end fails if its last save is missing or bad. */
static void fail_end(struct rp_engine_life *life, int code, const struct rp_error *error)
{
    if (code == 0 || rp_life_is_running(life) || rp_life_has_failed(life))
        return;
    *life->error = *error;
    rp_life_fail(life, code);
}

static void log_save(const struct rp_saver *saver, bool continues)
{
    if (saver->code == 0 && saver->already_saved)
        rp_log_event(RP_EVENT_save_not_needed, "no new rows to save: %s has row %" PRIu64,
                     saver->path, saver->info.next_row);
    else if (saver->code == 0 && saver->drop_reason)
        rp_log_event(RP_EVENT_saved_without_contents, "saved %s: row %" PRIu64 ", %s", saver->path,
                     saver->info.next_row, reason_of(saver));
    else if (saver->code == 0)
        rp_log_event(RP_EVENT_saved, "saved %s: row %" PRIu64 ", contents to row %" PRIu64,
                     saver->path, saver->info.next_row, saver->info.contents_end_row);
    else
        rp_log_event(RP_EVENT_save_failed, "checkpoint not saved%s: %s",
                     continues ? ", the stream continues" : "", saver->error.message);
}

/* The result of the save is known: record it, log it, and answer the peers that requested it.
 * `is_refused`: it was not begun, because the position of a seat is unknown. */
static void report_save(struct rp_engine *engine, bool is_refused)
{
    struct rp_engine_life *life = &engine->life;
    struct rp_saver *saver = &engine->saving.saver;
    if (saver->code < 0 && !engine->saving.counts.has_failed)
        rp_saving_journal_failure(&engine->saving, &saver->error);
    count_save(&engine->saving);
    log_save(saver, rp_life_is_running(life));
    if (saver->code == 0) {
        rp_recorder_note(engine->saving.recorder, saver->info.next_row);
        rp_saving_set_newest(&engine->saving, saver->token, saver->token_bytes, saver->path);
        saver->token = NULL;
    }
    if (is_refused) /* the save before this one remains the last */
        fail_end(life, saver->bad_code, &saver->bad_error);
    else
        fail_end(life, saver->code, &saver->error);
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
    saver->source_count = 0;
}

/* The peers that requested a checkpoint get the result of the save that begins now. */
static void take_requests(const struct rp_peers *peers)
{
    struct rp_connection *connection;
    for (uint32_t i = 0; (connection = rp_peers_next(peers, &i));)
        if (connection->awaits == RP_AWAITS_NEXT_SAVE)
            connection->awaits = RP_AWAITS_SAVE;
}

/* Returns true if a checkpoint was begun, or failed at once and was reported; false if it has to be
 * tried again later, because one is under way or the cut's state is not known yet. */
static bool begin_save(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saving.saver;
    if (!engine->saving.checkpoints || saver->state != RP_SAVER_IDLE)
        return false;
    RP_ASSERT(!saver->token && !saver->sources && !saver->path);
    uint64_t consumed = rp_delivery_consumed(&engine->delivery);
    const struct rp_numbering *numbering = &engine->delivery.numbering;
    uint64_t cut = consumed - rp_numbering_micro_batch(numbering, consumed);
    saver->error = (struct rp_error){0};
    saver->began_ns = rp_now_ns();
    fill_info(engine);
    int code = check_positions(&engine->delivery, &saver->error);
    bool is_refused = code < 0;
    if (code == 0)
        code = take_state(engine, cut);
    if (code == 0) {
        uint64_t next = rp_numbering_step(numbering, cut) + 1;
        rp_flow_wake_at(engine->delivery.flow, rp_numbering_batch_of_step(numbering, next));
        return false;
    }
    rp_far_row_forget(&engine->stream.planner, &saver->far);
    take_requests(&engine->peers);
    if (code > 0)
        code = start_saver(engine, consumed);
    if (code < 0) { /* else the saver's thread has these fields from now on */
        saver->code = code;
        report_save(engine, is_refused);
        forget_save(saver);
    }
    rp_engine_schedule_save(engine);
    return true;
}

void rp_engine_schedule_save(struct rp_engine *engine)
{
    struct rp_delivery *delivery = &engine->delivery;
    uint64_t every = engine->config->checkpoint_steps;
    uint64_t step = rp_numbering_step(&delivery->numbering, rp_delivery_consumed(delivery));
    engine->saving.next_save_step = every ? (step / every + 1) * every : 0;
    bool is_due = every && engine->saving.checkpoints;
    rp_flow_wake_at(delivery->flow, is_due
                                        ? rp_numbering_batch_of_step(&delivery->numbering,
                                                                     engine->saving.next_save_step)
                                        : UINT64_MAX);
}

void rp_engine_want_due_save(struct rp_engine *engine)
{
    const struct rp_delivery *delivery = &engine->delivery;
    uint64_t step = rp_numbering_step(&delivery->numbering, rp_delivery_consumed(delivery));
    if (!engine->config->checkpoint_steps || !engine->saving.checkpoints ||
        !rp_life_is_running(&engine->life) || step < engine->saving.next_save_step)
        return;
    rp_saving_want(&engine->saving);
    rp_engine_schedule_save(engine);
}

void rp_saving_want(struct rp_saving *saving)
{
    saving->is_wanted = saving->checkpoints != NULL;
}

void rp_engine_save_when_due(struct rp_engine *engine)
{
    rp_engine_want_due_save(engine);
    if (engine->saving.is_wanted && begin_save(engine))
        engine->saving.is_wanted = false;
}

/* Only a checkpoint that was read back counts as saved. */
static void count_bad_save(struct rp_save_counts *counts, const struct rp_error *error)
{
    counts->failures++;
    counts->has_failed = true;
    memcpy(counts->reason, error->message, sizeof counts->reason);
    counts->row = counts->good_row;
    counts->ended_ns = counts->good_ns;
}

/* A save that wrote no file has no parts. */
static void count_parts(struct rp_save_counts *counts, const struct rp_saver *saver)
{
    if (saver->already_saved)
        return;
    counts->has_parts = true;
    counts->copy_ns = saver->copied_ns ? saver->copied_ns - saver->began_ns : 0;
    counts->parts = saver->times;
}

/* The save has ended. If the disk does not return the bytes that it had acknowledged, another save
 * is begun, a few times; no older checkpoint that verifies is removed before one was read back. A
 * save that wrote no file is no evidence about the save before it. */
static void finish_read_back(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saving.saver;
    struct rp_save_counts *counts = &engine->saving.counts;
    if (saver->code < 0)
        return;
    saver->bad_code = saver->read_back;
    count_parts(counts, saver);
    if (saver->read_back == 0) {
        saver->bad_saves = 0;
        counts->has_failed = false;
        counts->good_row = counts->row;
        counts->good_ns = counts->ended_ns;
        return;
    }
    saver->bad_error = saver->read_back_error;
    if (!counts->has_failed)
        rp_saving_journal_failure(&engine->saving, &saver->bad_error);
    count_bad_save(counts, &saver->bad_error);
    bool again = ++saver->bad_saves < BAD_SAVES_MAX;
    rp_log_event(RP_EVENT_save_not_trusted, "%s; the checkpoint was saved and cannot be trusted%s",
                 saver->bad_error.message, again ? ": saving again" : "");
    rp_saving_set_newest(&engine->saving, NULL, 0, NULL);
    if (again) {
        rp_saving_want(&engine->saving);
        return;
    }
    fail_end(&engine->life, saver->bad_code, &saver->bad_error);
    saver->bad_saves = 0;
}

/* A thread of the save has reached the next state: do the engine's part of it. */
static void advance_save(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saving.saver;
    saver->state++;
    switch (saver->state) {
    case RP_SAVER_COPIED:
        rp_flow_release_hold(engine->delivery.flow);
        break;
    case RP_SAVER_SAVED:
        report_save(engine, false);
        break;
    case RP_SAVER_DONE:
        if (saver->has_thread)
            pthread_join(saver->thread, NULL);
        finish_read_back(engine);
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
    struct rp_saver *saver = &engine->saving.saver;
    if (saver->state != RP_SAVER_COPYING)
        return;
    while (rp_a32_load_acquire(&saver->reached) == RP_SAVER_COPYING) /* PAIRS saver-state */
        rp_sleep_ns(100000);
    advance_save(engine);
}

void rp_engine_continue_save(struct rp_engine *engine)
{
    struct rp_saver *saver = &engine->saving.saver;
    uint32_t reached = rp_a32_load_acquire(&saver->reached); /* PAIRS saver-state */
    while (saver->state != RP_SAVER_IDLE && saver->state < reached)
        advance_save(engine);
}
