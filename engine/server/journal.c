/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c — the queue of entries and the thread that writes them.
 *
 * Threads: the mutex of `side` guards `queue`, `count` and `has_started`; `start` and `has_failed`
 * belong to the writing thread, all other members to the engine's thread. */
#include "server/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/run_journal.h"
#include "server/seats.h"
#include "base/side_thread.h"

#define CLOSE_NS UINT64_C(5000000000)
#define QUEUE_MAX 64u /* entries that wait for the disk; more of them are lost, and counted */

struct rp_engine_journal {
    struct rp_side_thread side; /* the first member: write_queued() casts back from it */
    bool thread_runs;
    char *directory;  /* a copy: the thread may outlive the config */
    json_t *start;    /* the first entry, without the last engine's part; NULL: written */
    bool is_fresh;    /* the start has set the checkpoints aside */
    bool has_started; /* the first entry is written, or could not be */
    bool has_failed;  /* the last entry could not be written, and that was logged */
    json_t *queue[QUEUE_MAX];
    size_t count;
    uint64_t lost; /* entries since the last one that was queued */
};

/* ---- writing --------------------------------------------------------------------------------- */

static void append(struct rp_engine_journal *journal, json_t *entry)
{
    struct rp_error error;
    int code = rp_checkpoint_journal_append(journal->directory, entry, &error);
    if (code < 0 && !journal->has_failed)
        rp_log(RP_LOG_WARNING,
               "the run journal is not written, and the run continues without it: %s",
               error.message);
    journal->has_failed = code < 0;
}

/* Note the newest checkpoint of the last stop if it is not there any more: as `damaged` if it was
 * renamed to NAME.bad, else as `missing`. */
static void set_missing(const char *directory, json_t *entry, const json_t *stopped)
{
    const char *name = json_string_value(json_object_get(stopped, "checkpoint"));
    if (!name || strchr(name, '/'))
        return;
    char *path = rp_asprintf("%s/%s", directory, name),
         *bad = rp_asprintf("%s/%s.bad", directory, name);
    if (path && bad && access(path, F_OK) < 0 && errno == ENOENT)
        json_object_set_new(entry, access(bad, F_OK) == 0 ? "damaged" : "missing",
                            rp_checkpoint_journal_text(name));
    free(path);
    free(bad);
}

/* The first entry, with the end of the engine before, which is looked up here because the journal
 * may be long, and the disk slow. */
static json_t *take_start(struct rp_engine_journal *journal)
{
    struct rp_run_journal_last last;
    json_t *entry = journal->start;
    journal->start = NULL;
    rp_checkpoint_journal_find_last(journal->directory, &last);
    const char *before = !last.started ? "none" : last.stopped ? "stopped" : "killed";
    json_object_set_new(entry, "before", json_string(before));
    if (!journal->is_fresh)
        set_missing(journal->directory, entry, last.stopped);
    json_decref(last.started);
    json_decref(last.stopped);
    return entry;
}

/* Called with the mutex held, which is released for the time of the append. Once the engine has
 * stopped waiting for the thread, the directory is not locked any more: nothing is written then. */
static void append_locked(struct rp_engine_journal *journal, json_t *entry)
{
    if (journal->side.is_left) {
        json_decref(entry);
        return;
    }
    pthread_mutex_unlock(&journal->side.mutex);
    append(journal, entry);
    pthread_mutex_lock(&journal->side.mutex);
}

static void write_queued(struct rp_side_thread *side)
{
    struct rp_engine_journal *journal = (struct rp_engine_journal *)side;
    prctl(PR_SET_NAME, "journal");
    json_t *start = journal->start ? take_start(journal) : NULL;
    pthread_mutex_lock(&side->mutex);
    if (start)
        append_locked(journal, start);
    journal->has_started = true;
    pthread_cond_broadcast(&side->changed);
    for (;;) {
        while (journal->count == 0 && !side->stop)
            pthread_cond_wait(&side->changed, &side->mutex);
        if (journal->count == 0)
            break;
        json_t *entry = journal->queue[0];
        journal->count--;
        for (size_t i = 0; i < journal->count; i++)
            journal->queue[i] = journal->queue[i + 1];
        append_locked(journal, entry);
    }
    pthread_mutex_unlock(&side->mutex);
}

static void free_journal(struct rp_side_thread *side)
{
    struct rp_engine_journal *journal = (struct rp_engine_journal *)side;
    for (size_t i = 0; i < journal->count; i++)
        json_decref(journal->queue[i]);
    json_decref(journal->start);
    free(journal->directory);
    free(journal);
}

/* Give an entry to the thread, which is started if it does not run. */
static void enqueue(struct rp_engine_journal *journal, json_t *entry)
{
    if (!journal->thread_runs)
        journal->thread_runs = rp_side_thread_start(&journal->side) == 0;
    if (!journal->thread_runs || !entry) {
        journal->lost++;
        json_decref(entry);
        return;
    }
    pthread_mutex_lock(&journal->side.mutex);
    if (journal->count == QUEUE_MAX) {
        journal->lost++;
        json_decref(entry);
    } else {
        if (journal->lost)
            json_object_set_new(entry, "lost", json_integer((json_int_t)journal->lost));
        journal->lost = 0;
        journal->queue[journal->count++] = entry;
    }
    pthread_cond_broadcast(&journal->side.changed);
    pthread_mutex_unlock(&journal->side.mutex);
}

/* ---- the start ------------------------------------------------------------------------------- */

static void set_digest(json_t *entry, const void *token, size_t bytes)
{
    struct rp_state_info info;
    char hex[RP_HASH_HEX_BYTES];
    if (rp_state_info(token, bytes, &info, NULL) == 0 && rp_hash128_is_known(info.digest))
        json_object_set_new(entry, "plan_digest", json_string(rp_hash128_hex(info.digest, hex)));
}

static const char *policy_of(const struct rp_engine *engine)
{
    static const char *const words[] = {
        [RP_RESUME_AUTO] = "auto", [RP_RESUME_REQUIRED] = "required", [RP_RESUME_FRESH] = "fresh"};
    if (engine->options->state)
        return "state";
    return engine->options->fresh ? "fresh" : words[engine->config->resume];
}

/* Where the run began: a checkpoint has its name if it is in the directory, else its path. */
static json_t *origin_of(const struct rp_engine *engine)
{
    size_t bytes = strlen(engine->config->checkpoint_dir);
    const char *path = engine->saving.started_from;
    if (!path)
        return json_string(engine->options->state ? "state token" : "row 0");
    bool is_own = strncmp(path, engine->config->checkpoint_dir, bytes) == 0 && path[bytes] == '/';
    return rp_checkpoint_journal_text(is_own ? rp_path_name(path) : path);
}

static json_t *describe_start(const struct rp_engine *engine)
{
    const struct rp_config *c = engine->config;
    char stream[RP_HASH_HEX_BYTES], config[RP_HASH_HEX_BYTES];
    rp_hash128_hex(engine->stream.identity, stream);
    rp_hash128_hex(rp_hash128(engine->config_text, strlen(engine->config_text)), config);
    json_t *entry = json_pack(
        "{s:s, s:o, s:s, s:s, s:o, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "event",
        "started", "run", rp_checkpoint_journal_text(c->run), "version", RP_VERSION, "policy",
        policy_of(engine), "from", origin_of(engine), "row", (json_int_t)engine->stream.start_row,
        "stream", stream, "config", config, "dp_world_size", (json_int_t)c->dp_world_size,
        "rank_first", (json_int_t)c->rank_first, "rank_count", (json_int_t)c->rank_count,
        "batch_size", (json_int_t)c->batch_size, "global_batch_size",
        (json_int_t)c->global_batch_size, "seq_len", (json_int_t)engine->delivery.geometry.seq_len);
    if (entry)
        set_digest(entry, engine->stream.start_state, engine->stream.start_bytes);
    if (entry && engine->saving.started_reweighted)
        json_object_set_new(entry, "reweighted", json_true());
    if (entry && engine->saving.set_aside > 0)
        json_object_set_new(entry, "set_aside", json_integer(engine->saving.set_aside));
    return entry;
}

static struct rp_engine_journal *make(const char *directory)
{
    struct rp_engine_journal *journal = rp_calloc(1, sizeof *journal);
    char *copy = strdup(directory);
    if (!journal || !copy) {
        free(journal);
        free(copy);
        return NULL;
    }
    journal->side.main = write_queued;
    journal->side.release = free_journal;
    journal->directory = copy;
    return journal;
}

void rp_engine_journal_start(struct rp_engine *engine)
{
    const char *directory = engine->config->checkpoint_dir;
    struct rp_engine_journal *journal;
    if (!engine->options->keep_journal || !directory || !(journal = make(directory)))
        return;
    engine->saving.journal = journal;
    journal->is_fresh = strcmp(policy_of(engine), "fresh") == 0;
    journal->start = describe_start(engine);
    journal->thread_runs = rp_side_thread_start(&journal->side) == 0;
}

void rp_saving_journal_finish_start(struct rp_saving *saving)
{
    struct rp_engine_journal *journal = saving->journal;
    if (!journal)
        return;
    if (!journal->thread_runs) {
        if (journal->start)
            append(journal, take_start(journal));
        return;
    }
    pthread_mutex_lock(&journal->side.mutex);
    while (!journal->has_started)
        pthread_cond_wait(&journal->side.changed, &journal->side.mutex);
    pthread_mutex_unlock(&journal->side.mutex);
}

/* ---- while it runs, and its end -------------------------------------------------------------- */

void rp_engine_journal_rollback(struct rp_engine *engine, uint64_t row)
{
    bool is_start = engine->delivery.rollback_epoch == 1 && row == engine->stream.start_row;
    if (engine->saving.journal && !is_start)
        enqueue(engine->saving.journal,
                json_pack("{s:s, s:I}", "event", "rolled_back", "row", (json_int_t)row));
}

struct search {
    uint64_t row;
    bool is_documents, is_there;
    const char *text;
};

static int match_record(void *context, uint64_t row, bool is_documents, const char *text,
                        struct rp_error *error)
{
    struct search *search = context;
    (void)error;
    search->is_there |= row == search->row && is_documents == search->is_documents &&
                        strcmp(text, search->text) == 0;
    return 0;
}

int rp_engine_journal_record(struct rp_engine *engine, uint64_t row, bool is_documents,
                             const char *text, bool *is_unknown, struct rp_error *error)
{
    const struct rp_engine_journal *journal = engine->saving.journal;
    RP_ASSERT(journal);
    const char *event = is_documents ? "documents" : "weights";
    struct search search = {row, is_documents, false, text};
    json_t *entry = json_pack("{s:s, s:I, s:s}", "event", event, "row", (json_int_t)row, event,
                              text);
    *is_unknown = false;
    if (!entry)
        return rp_fail(error, -RP_E_USAGE, "name sources whose names are UTF-8",
                       "these %s cannot be written to the run journal", event);
    int code = rp_checkpoint_journal_append(journal->directory, entry, error);
    if (code < 0)
        *is_unknown = rp_checkpoint_journal_records(journal->directory, match_record, &search,
                                                    NULL) < 0 ||
                      search.is_there;
    return code;
}

void rp_saving_journal_failure(struct rp_saving *saving, const struct rp_error *error)
{
    if (saving->journal)
        enqueue(saving->journal, json_pack("{s:s, s:o}", "event", "save_failed", "reason",
                                           rp_checkpoint_journal_text(error->message)));
}

static json_t *describe_end(const struct rp_engine *engine)
{
    const struct rp_engine_life *life = &engine->life;
    const struct rp_saving *saving = &engine->saving;
    const struct rp_delivery *delivery = &engine->delivery;
    static const char *const causes[] = {
        [RP_SHUTDOWN_NONE] = "failure",    [RP_SHUTDOWN_FAILURE] = "failure",
        [RP_SHUTDOWN_SIGNAL] = "signal",   [RP_SHUTDOWN_REQUEST] = "request",
        [RP_SHUTDOWN_LIFELINE] = "parent", [RP_SHUTDOWN_STREAM] = "end of the stream"};
    const struct rp_saver *saver = &saving->saver;
    struct rp_state_info info;
    uint64_t consumed = rp_delivery_row(delivery, rp_delivery_consumed(delivery));
    json_t *entry = json_pack("{s:s, s:s, s:I}", "event", "stopped", "cause",
                              causes[life->shutdown], "consumed_row", (json_int_t)consumed);
    if (entry && rp_life_has_failed(life))
        json_object_set_new(entry, "reason", rp_checkpoint_journal_text(life->error->message));
    if (entry && saving->counts.has_failed)
        json_object_set_new(entry, "not_saved", rp_checkpoint_journal_text(saving->counts.reason));
    if (!entry || !saver->newest_token ||
        rp_state_info(saver->newest_token, saver->newest_bytes, &info, NULL) < 0)
        return entry;
    json_object_set_new(entry, "row", json_integer((json_int_t)info.next_row));
    set_digest(entry, saver->newest_token, saver->newest_bytes);
    if (saving->newest_path)
        json_object_set_new(entry, "checkpoint",
                            rp_checkpoint_journal_text(rp_path_name(saving->newest_path)));
    return entry;
}

void rp_engine_journal_close(struct rp_engine *engine)
{
    struct rp_engine_journal *journal = engine->saving.journal;
    if (!journal)
        return;
    engine->saving.journal = NULL;
    enqueue(journal, describe_end(engine));
    if (!journal->thread_runs)
        free_journal(&journal->side);
    else if (!rp_side_thread_end(&journal->side, CLOSE_NS))
        rp_log(RP_LOG_WARNING, "the run journal lacks the end of this engine: writing it takes "
                               "longer than 5 seconds");
}
