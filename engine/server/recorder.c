/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.c — the newest note, and the thread that writes it.
 *
 * Threads: the mutex of `side` guards `noted` and `is_noted`; `known` and `has_record` belong to
 * the engine's thread; all other members are set once. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/run_record.h"
#include "server/recorder.h"
#include "base/side_thread.h"

#define CLOSE_NS UINT64_C(5000000000) /* the end of an engine waits for a record that hangs */

struct rp_recorder {
    struct rp_side_thread side; /* the first member: write_noted() casts back from it */
    bool thread_runs;
    char *path;                 /* the file of the record */
    char *run, *directory;      /* the run and the checkpoint directory that the record is of */
    struct rp_run_record known; /* the record that was found, or noted last */
    bool has_record;            /* `known` is set */
    struct rp_run_record noted; /* for the thread to write */
    bool is_noted;              /* `noted` is not written yet */
};

/* ---- writing --------------------------------------------------------------------------------- */

static void write_record(const struct rp_recorder *recorder, struct rp_run_record *record,
                         bool *has_failed)
{
    struct rp_error error;
    int code = rp_checkpoint_run_record_write(record, recorder->path, recorder->run,
                                              recorder->directory, &error);
    if (code < 0 && !*has_failed)
        rp_log(RP_LOG_WARNING, "the run record is not written: %s", error.message);
    *has_failed = code < 0;
}

static void write_noted(struct rp_side_thread *side)
{
    struct rp_recorder *recorder = (struct rp_recorder *)side;
    bool has_failed = false;
    pthread_mutex_lock(&side->mutex);
    for (;;) {
        while (!recorder->is_noted && !side->stop)
            pthread_cond_wait(&side->changed, &side->mutex);
        if (!recorder->is_noted)
            break;
        struct rp_run_record record = recorder->noted;
        recorder->is_noted = false;
        pthread_mutex_unlock(&side->mutex);
        write_record(recorder, &record, &has_failed);
        pthread_mutex_lock(&side->mutex);
    }
    pthread_mutex_unlock(&side->mutex);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void free_recorder(struct rp_side_thread *side)
{
    struct rp_recorder *recorder = (struct rp_recorder *)side;
    free(recorder->path);
    free(recorder->run);
    free(recorder->directory);
    free(recorder);
}

static void log_none(const char *why)
{
    rp_log(RP_LOG_INFO,
           "no run record is kept: %s; a later start cannot notice that checkpoint_dir is not "
           "mounted (mount_guard_dir chooses another directory for the record, or none)",
           why);
}

static bool make_directory(const char *path, struct rp_error *error)
{
    struct stat info;
    return (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) || rp_dir_make(path, error) == 0;
}

/* A record that cannot be read is ignored; the next note replaces it. Only engines that have the
 * lock of the checkpoint directory write this file, and that is this engine now. */
static void read_record(struct rp_recorder *recorder)
{
    struct rp_error error;
    rp_new_file_sweep(recorder->path);
    int code = rp_checkpoint_run_record_read(&recorder->known, recorder->path, &error);
    recorder->has_record = code == 1;
    if (code < 0)
        rp_log(RP_LOG_WARNING, "the run record is ignored: %s", error.message);
}

/* NULL when out of memory. */
static struct rp_recorder *make_recorder(const char *record_dir, const struct rp_config *config)
{
    struct rp_recorder *recorder = rp_calloc(1, sizeof *recorder);
    if (!recorder)
        return NULL;
    recorder->side.main = write_noted;
    recorder->side.release = free_recorder;
    recorder->path = rp_checkpoint_run_record_path(record_dir, config->run, config->checkpoint_dir);
    recorder->run = strdup(config->run);
    recorder->directory = strdup(config->checkpoint_dir);
    if (recorder->path && recorder->run && recorder->directory)
        return recorder;
    free_recorder(&recorder->side);
    return NULL;
}

void rp_recorder_open(struct rp_recorder **out, const struct rp_config *config)
{
    const char *why, *chosen = config->mount_guard_dir;
    struct rp_error error;
    *out = NULL;
    if (chosen && strcmp(chosen, RP_RUN_RECORD_NONE) == 0)
        return;
    char *directory = rp_checkpoint_run_record_dir(chosen, &why);
    if (!directory)
        log_none(why);
    else if (!make_directory(directory, &error))
        log_none(error.message);
    else if (!(*out = make_recorder(directory, config)))
        log_none("out of memory");
    else
        read_record(*out);
    free(directory);
}

void rp_recorder_close(struct rp_recorder *recorder)
{
    if (!recorder)
        return;
    if (!recorder->thread_runs) {
        free_recorder(&recorder->side);
        return;
    }
    char *path = strdup(recorder->path); /* a thread that is left frees the other */
    if (!rp_side_thread_end(&recorder->side, CLOSE_NS))
        rp_log(RP_LOG_WARNING,
               "%s: the run record is not up to date: writing it takes longer than 5 seconds",
               path ? path : "mount_guard_dir");
    free(path);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool is_behind(const struct rp_recorder *recorder, uint64_t row)
{
    return recorder && recorder->has_record && row < recorder->known.row;
}

static void warn_of_position(const struct rp_recorder *recorder, const char *whose, uint64_t row)
{
    rp_log(RP_LOG_WARNING,
           "%s had a checkpoint at row %" PRIu64 " on %s UTC; this start is at row %" PRIu64, whose,
           recorder->known.row, recorder->known.date, row);
}

void rp_recorder_warn_of_copies(const struct rp_recorder *recorder, uint64_t row)
{
    if (is_behind(recorder, row))
        warn_of_position(recorder, "the directory that they are copies of", row);
}

int rp_recorder_check(const struct rp_recorder *recorder, const struct rp_checkpoint_dir *directory,
                      uint64_t row, bool has_checkpoint, struct rp_error *error)
{
    char id[RP_DIRECTORY_ID_BYTES], found[64] = "no checkpoint";
    if (!is_behind(recorder, row))
        return 0;
    int code = rp_checkpoint_dir_id(directory, id, error);
    if (code < 0)
        return code;
    const struct rp_run_record *known = &recorder->known;
    const char *path = recorder->directory;
    if (strcmp(id, known->id) == 0) {
        warn_of_position(recorder, path, row);
        return 0;
    }
    dev_t now = rp_checkpoint_dir_device(directory), then = (dev_t)known->device;
    if (has_checkpoint)
        snprintf(found, sizeof found, "checkpoints up to row %" PRIu64, row);
    char hint[384];
    snprintf(
        hint, sizeof hint,
        "no checkpoint was changed. Mount the directory's file system and start again; or add "
        "`--resume fresh` to begin at row 0; or, to use the directory that is there now, `rm %s`",
        RP_HINT_PATH(recorder->path));
    return rp_fail(error, -RP_E_EMPTY, hint,
                   "checkpoint_dir %s: expected the directory in which run `%s` saved row %" PRIu64
                   " (on %s UTC, device %u:%u); found another directory, with %s (device %u:%u); "
                   "the record of the run is %s",
                   path, recorder->run, known->row, known->date, major(then), minor(then), found,
                   major(now), minor(now), recorder->path);
}

/* ---- noting --------------------------------------------------------------------------------- */

static void note(struct rp_recorder *recorder)
{
    recorder->has_record = true;
    pthread_mutex_lock(&recorder->side.mutex);
    recorder->noted = recorder->known;
    recorder->is_noted = true;
    pthread_cond_broadcast(&recorder->side.changed);
    pthread_mutex_unlock(&recorder->side.mutex);
}

int rp_recorder_begin(struct rp_recorder *recorder, struct rp_checkpoint_dir *directory,
                      uint64_t row, struct rp_error *error)
{
    if (!recorder)
        return 0;
    struct rp_run_record found = {.row = row, .device = rp_checkpoint_dir_device(directory)};
    int code = rp_checkpoint_dir_make_id(directory, found.id, error);
    if (code < 0)
        return code;
    code = rp_side_thread_start(&recorder->side);
    if (code < 0)
        return rp_fail(error, code, NULL, "cannot start the thread of the run record: %s",
                       rp_strerror(code));
    recorder->thread_runs = true;
    const struct rp_run_record *known = &recorder->known;
    bool is_same = recorder->has_record && strcmp(found.id, known->id) == 0;
    if (row == RP_RECORDER_ROW_UNKNOWN)
        found.row = is_same ? known->row : 0;
    if (is_same && found.row == known->row && found.device == known->device)
        return 0;
    recorder->known = found;
    note(recorder);
    return 0;
}

void rp_recorder_note(struct rp_recorder *recorder, uint64_t row)
{
    if (!recorder || recorder->known.row == row)
        return;
    RP_ASSERT(recorder->thread_runs && recorder->has_record);
    recorder->known.row = row;
    note(recorder);
}
