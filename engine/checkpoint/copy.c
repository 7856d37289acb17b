/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c — see copy.h.
 *
 * The saving thread posts a sequence number. The copier's thread reads and verifies that file,
 * writes the same bytes under the same name with the same writer, and prunes by the same rule.
 *
 * Threads: `target` belongs to the copier's thread; `offered`, `newest` and `counts` are guarded by
 * the mutex of `side`. Of `source` the thread reads only the path and the directory's descriptor,
 * which do not change while it is open. */
#include "checkpoint/copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/side_thread.h"
#include "checkpoint/reader.h"

struct rp_copier {
    struct rp_side_thread side; /* the first member: main casts back from it */
    const struct rp_locked_dir *source;
    struct rp_locked_dir target;
    uint64_t offered; /* sequence to copy next; 0 = none */
    uint64_t newest;  /* sequence that was copied last; 0 = none yet */
    struct rp_copy_counts counts;
};

/* Whether the mirror has this very file already: after a restart the newest checkpoint is
 * offered again. */
static bool is_copied(struct rp_copier *copier, const struct rp_name *name, const void *data,
                      uint64_t bytes)
{
    struct rp_checkpoint *copy;
    uint64_t copy_bytes;
    if (rp_reader_open(&copy, copier->target.dir, copier->target.path, name, NULL) < 0)
        return false;
    const void *copy_data = rp_reader_bytes(copy, &copy_bytes);
    bool same = copy_bytes == bytes && memcmp(copy_data, data, (size_t)bytes) == 0;
    rp_checkpoint_close(copy);
    return same;
}

/* The copy of one checkpoint. */
struct made_copy {
    uint64_t sequence, row, bytes, began_ns;
};

static int copy_one(struct rp_copier *copier, struct made_copy *made, struct rp_error *error)
{
    struct rp_name name;
    rp_name_make(&name, made->sequence, RP_NAME_CURRENT);
    struct rp_checkpoint *checkpoint;
    int code = rp_locked_dir_check(&copier->target, error);
    if (code < 0)
        return code;
    code = rp_reader_open(&checkpoint, copier->source->dir, copier->source->path, &name, error);
    if (code < 0)
        return code;
    uint64_t bytes;
    const void *data = rp_reader_bytes(checkpoint, &bytes);
    made->row = rp_checkpoint_info(checkpoint)->next_row;
    made->bytes = bytes;
    bool is_there = is_copied(copier, &name, data, bytes);
    unsigned attempt = 0;
    do
        code = is_there ? 0
                        : rp_writer_put_bytes(&copier->target.writer, name.text, data,
                                              (size_t)bytes, error);
    while (code < 0 && rp_writer_wait_to_retry(&copier->target.writer, attempt++, code));
    rp_checkpoint_close(checkpoint);
    return code;
}

/* With the mutex held. */
static void note_copy(struct rp_copier *copier, const struct made_copy *made, int code,
                      const struct rp_error *error)
{
    struct rp_copy_counts *counts = &copier->counts;
    counts->is_at_work = false;
    counts->has_failed = code < 0;
    if (code < 0) {
        counts->failures++;
        memcpy(counts->reason, error->message, sizeof counts->reason);
        return;
    }
    counts->copies++;
    counts->row = made->row;
    counts->bytes = made->bytes;
    counts->began_ns = made->began_ns;
    counts->ended_ns = rp_now_ns();
    copier->newest = made->sequence;
}

/* Copy one checkpoint, say so, and remove those that are no longer kept. */
static int copy_and_prune(struct rp_copier *copier, struct made_copy *made, struct rp_error *error)
{
    int code = copy_one(copier, made, error);
    if (code < 0) {
        rp_log_event(RP_EVENT_copy_failed, "checkpoint %" PRIu64 " is saved but not copied: %s",
                     made->sequence, error->message);
        return code;
    }
    rp_locked_dir_note(&copier->target, made->sequence, made->row, RP_KNOWN_VERIFIED);
    rp_locked_dir_prune(&copier->target, UINT64_MAX);
    return 0;
}

static void copier_run(struct rp_side_thread *side)
{
    struct rp_copier *copier = (struct rp_copier *)side;
    pthread_mutex_lock(&side->mutex);
    for (;;) {
        while (!copier->offered && !rp_side_thread_sleep_locked(side, RP_SIDE_THREAD_FOREVER_NS))
            continue;
        struct made_copy made = {.sequence = copier->offered, .began_ns = rp_now_ns()};
        copier->offered = 0;
        if (!made.sequence)
            break;
        copier->counts.is_at_work = true;
        pthread_mutex_unlock(&side->mutex);

        struct rp_error error;
        int code = copy_and_prune(copier, &made, &error);
        pthread_mutex_lock(&side->mutex);
        note_copy(copier, &made, code, &error);
    }
    pthread_mutex_unlock(&side->mutex);
}

int rp_copier_open(struct rp_copier **copier_out, const struct rp_locked_dir *source,
                   const char *path, uint64_t *newest_sequence_out, struct rp_error *error)
{
    struct rp_copier *copier = rp_calloc(1, sizeof *copier);
    if (!copier)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory to copy checkpoints to it", path);
    copier->side.main = copier_run;
    copier->source = source;
    const struct rp_checkpoint_place place = {
        .path = path, .keep = source->keep, .storage = source->writer.storage};
    int code = rp_locked_dir_begin(&copier->target, &place, true, error);
    if (code < 0) {
        free(copier);
        return rp_fail_context(error, code, "mirror");
    }
    *newest_sequence_out = copier->target.newest_sequence;
    code = rp_side_thread_start(&copier->side);
    if (code < 0) {
        rp_locked_dir_close(&copier->target);
        free(copier);
        return rp_fail(error, code, NULL, "%s: cannot start the thread that copies: %s", path,
                       rp_strerror(code));
    }
    *copier_out = copier;
    return 0;
}

int rp_copier_finish_trial(struct rp_copier *copier, struct rp_error *error)
{
    int code = rp_trial_finish(&copier->target.trial, error);
    return code < 0 ? rp_fail_context(error, code, "mirror") : 0;
}

void rp_copier_offer(struct rp_copier *copier, uint64_t sequence)
{
    pthread_mutex_lock(&copier->side.mutex);
    if (copier->offered)
        rp_log(RP_LOG_INFO,
               "%s: copies take longer than checkpoints: %" PRIu64 " is not copied, %" PRIu64
               " so far",
               copier->target.path, copier->offered, ++copier->counts.skipped);
    copier->offered = sequence;
    pthread_cond_signal(&copier->side.changed);
    pthread_mutex_unlock(&copier->side.mutex);
}

uint64_t rp_copier_newest(struct rp_copier *copier)
{
    pthread_mutex_lock(&copier->side.mutex);
    uint64_t newest = copier->newest;
    pthread_mutex_unlock(&copier->side.mutex);
    return newest;
}

void rp_copier_counts(struct rp_copier *copier, struct rp_copy_counts *counts)
{
    pthread_mutex_lock(&copier->side.mutex);
    *counts = copier->counts;
    pthread_mutex_unlock(&copier->side.mutex);
    counts->is_kept = true;
}

struct rp_locked_dir *rp_copier_target(struct rp_copier *copier)
{
    return &copier->target;
}

int rp_copier_set_aside(struct rp_copier *copier, struct rp_error *error)
{
    return rp_locked_dir_set_aside(&copier->target, error);
}

void rp_copier_keep_every(struct rp_copier *copier, uint64_t rows)
{
    copier->target.keep_every_rows = rows;
}

uint64_t rp_copier_close(struct rp_copier *copier)
{
    if (!copier)
        return 0;
    (void)rp_side_thread_end(&copier->side, RP_SIDE_THREAD_FOREVER_NS);
    uint64_t newest = copier->newest;
    rp_locked_dir_close(&copier->target);
    free(copier);
    return newest;
}
