/* SPDX-License-Identifier: Apache-2.0 */
/* prune.c — decide which checkpoints of a directory are kept, and remove the others. These are
 * kept:
 *
 *   - the newest checkpoint that verifies of each of the newest `keep` positions, and every damaged
 *     checkpoint that is newer than the last of these, but only the newest of the saves in turn
 *     that the disk did not return as they were written;
 *   - if there is a history, the oldest checkpoint that verifies of every `keep_every_rows` rows.
 *
 * Whether a checkpoint verifies has three answers: it is good, it is damaged, or that is unknown,
 * because it could not be read this time (permission, memory, descriptors). The third is not
 * remembered: the next pruning checks again.
 *
 * Invariants
 *
 *   N1  A checkpoint is removed only when newer ones at `keep` (2 or more) positions are known to
 *       verify. So any number of saves at one position removes no other position.
 *
 *   N2  With a mirror, a checkpoint is removed only when it, or a newer one, has
 *       a verified copy there.
 *
 *   N3  A checkpoint of the history is removed only when another one of its rows is known to verify
 *       and either is older, or this one is known to be damaged. One that could not be read stays.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/locked_dir.h"
#include "checkpoint/reader.h"
#include "checkpoint/listing.h"

enum fate { FATE_REMOVED, FATE_KEPT };
enum answer { ANSWER_NONE, ANSWER_GOOD, ANSWER_DAMAGED, ANSWER_UNKNOWN };

struct file {
    const struct rp_name *name;
    struct rp_known_checkpoint known;
    bool has_row;
    enum answer answer; /* in this pruning: does it verify? NONE = not checked yet */
    enum fate fate;
};

struct pruning {
    struct rp_locked_dir *locked;
    struct file *files; /* newest first */
    size_t count;
};

void rp_locked_dir_note(struct rp_locked_dir *locked, uint64_t sequence, uint64_t row,
                        enum rp_known what)
{
    locked->newest_sequence = rp_max_u64(locked->newest_sequence, sequence);
    struct rp_known_checkpoint *known = reallocarray(locked->known, locked->known_count + 1,
                                                     sizeof *known);
    if (!known)
        return; /* the next pruning reads the file */
    memmove(known + 1, known, locked->known_count * sizeof *known);
    known[0] = (struct rp_known_checkpoint){.sequence = sequence, .row = row, .known = what};
    locked->known = known;
    locked->known_count++;
}

struct rp_known_checkpoint *rp_locked_dir_recall(const struct rp_locked_dir *locked,
                                                 uint64_t sequence)
{
    for (size_t i = 0; i < locked->known_count; i++)
        if (locked->known[i].sequence == sequence)
            return &locked->known[i];
    return NULL;
}

static bool is_damaged(struct rp_locked_dir *locked, uint64_t sequence)
{
    bool found = false;
    pthread_mutex_lock(&locked->damaged_mutex);
    for (size_t i = 0; i < locked->damaged_count; i++)
        found = found || locked->damaged[i] == sequence;
    pthread_mutex_unlock(&locked->damaged_mutex);
    return found;
}

bool rp_locked_dir_add_damaged(struct rp_locked_dir *locked, uint64_t sequence)
{
    if (is_damaged(locked, sequence))
        return false;
    pthread_mutex_lock(&locked->damaged_mutex);
    if (locked->damaged_count < RP_LOCKED_DIR_DAMAGED_MAX)
        locked->damaged[locked->damaged_count++] = sequence;
    pthread_mutex_unlock(&locked->damaged_mutex);
    return true;
}

static enum answer answer_of(int code)
{
    if (code == 0)
        return ANSWER_GOOD;
    return rp_reader_is_damage(code) ? ANSWER_DAMAGED : ANSWER_UNKNOWN;
}

/* Whether a start could resume from this checkpoint, as the disk returns it now. */
static enum answer verify_sequence(const struct rp_locked_dir *locked, uint64_t sequence)
{
    struct rp_checkpoint *checkpoint;
    struct rp_error error;
    struct rp_name name;
    rp_name_make(&name, sequence, RP_NAME_CURRENT);
    int code = rp_reader_open(&checkpoint, locked->dir, locked->path, &name, &error);
    if (code == 0)
        rp_checkpoint_close(checkpoint);
    return answer_of(code);
}

static void remove_bad_save(const struct rp_locked_dir *locked, uint64_t sequence)
{
    struct rp_storage *storage = locked->writer.storage;
    struct rp_name name;
    rp_name_make(&name, sequence, RP_NAME_CURRENT);
    int code = storage->unlink(storage, locked->dir, name.text);
    if (code == 0)
        rp_log(RP_LOG_WARNING, "%s/%s: removed, because the save after it is bad as well",
               locked->path, name.text);
    else if (code != -ENOENT)
        rp_log(RP_LOG_WARNING, "%s/%s: cannot remove this bad save: %s", locked->path, name.text,
               rp_strerror(code));
}

void rp_locked_dir_judge(struct rp_locked_dir *locked, uint64_t sequence, bool is_good)
{
    struct rp_known_checkpoint *known = rp_locked_dir_recall(locked, sequence);
    if (known) /* else it is out of memory, and the next pruning reads the file */
        known->known = is_good ? RP_KNOWN_VERIFIED : RP_KNOWN_DAMAGED;
    uint64_t older = is_good ? 0 : locked->bad_sequence;
    if (older && (verify_sequence(locked, older) == ANSWER_DAMAGED ||
                  verify_sequence(locked, sequence) == ANSWER_GOOD))
        remove_bad_save(locked, older);
    locked->bad_sequence = is_good ? 0 : sequence;
}

/* Fill in the facts that this process knows already. */
static void recall(struct pruning *pruning)
{
    for (size_t i = 0; i < pruning->count; i++) {
        struct file *file = &pruning->files[i];
        const struct rp_known_checkpoint *known = rp_locked_dir_recall(pruning->locked,
                                                                       file->name->sequence);
        if (known) {
            file->known = *known;
            file->has_row = true;
        }
        if (is_damaged(pruning->locked, file->name->sequence))
            file->known.known = RP_KNOWN_DAMAGED;
    }
}

static enum answer read_file(const struct pruning *pruning, struct file *file)
{
    const struct rp_locked_dir *locked = pruning->locked;
    struct rp_checkpoint *checkpoint;
    struct rp_error error;
    int code = rp_reader_open(&checkpoint, locked->dir, locked->path, file->name, &error);
    if (code == 0) {
        file->known.row = rp_checkpoint_info(checkpoint)->next_row;
        file->known.known = RP_KNOWN_VERIFIED;
        file->has_row = true;
        rp_checkpoint_close(checkpoint);
    } else if (code != -ENOENT) {
        rp_log(RP_LOG_WARNING, "%s; it does not count as one of the %" PRIu32 " that are kept%s",
               error.message, locked->keep,
               answer_of(code) == ANSWER_UNKNOWN ? ", and the next pruning tries again" : "");
    }
    return answer_of(code);
}

static enum answer verify(const struct pruning *pruning, struct file *file)
{
    if (file->answer != ANSWER_NONE)
        return file->answer;
    if (file->known.known == RP_KNOWN_HEAD)
        file->answer = read_file(pruning, file);
    else
        file->answer = file->known.known == RP_KNOWN_VERIFIED ? ANSWER_GOOD : ANSWER_DAMAGED;
    return file->answer;
}

static bool is_among(uint64_t row, const uint64_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i] == row)
            return true;
    return false;
}

/* Returns the number of files down to the last one of the newest `keep` positions, or 0 if there
 * are fewer positions. */
static size_t keep_newest(const struct pruning *pruning, uint64_t *rows)
{
    size_t found = 0;
    for (size_t i = 0; i < pruning->count; i++) {
        struct file *file = &pruning->files[i];
        if (verify(pruning, file) != ANSWER_GOOD) {
            file->fate = FATE_KEPT;
        } else if (!is_among(file->known.row, rows, found)) {
            file->fate = FATE_KEPT;
            rows[found++] = file->known.row;
        }
        if (found == pruning->locked->keep)
            return i + 1;
    }
    return 0;
}

static bool know_row(const struct pruning *pruning, struct file *file)
{
    const struct rp_locked_dir *locked = pruning->locked;
    struct rp_error error;
    if (file->has_row)
        return true;
    int code = rp_reader_row(&file->known.row, locked->dir, locked->path, file->name, &error);
    file->has_row = code == 0;
    if (code < 0 && code != -ENOENT)
        rp_log(RP_LOG_WARNING,
               "%s/%s: this old checkpoint stays, because its row could not be read: %s; the next "
               "pruning tries again",
               locked->path, file->name->text, error.message);
    return file->has_row;
}

/* Keep the history among the files from index `newer` on (N3). It begins at the oldest one, so that
 * a checkpoint that was kept once is also kept the next time. */
static void keep_history(const struct pruning *pruning, size_t newer)
{
    uint64_t every = pruning->locked->keep_every_rows;
    struct file *first = NULL; /* the oldest one of its part of keep_every_rows rows */
    struct file *kept = NULL;  /* the newest one of the part that is kept so far */
    for (size_t i = pruning->count; i-- > newer;) {
        struct file *file = &pruning->files[i];
        file->fate = FATE_KEPT;
        if (!know_row(pruning, file))
            continue;
        if (!kept || kept->known.row / every != file->known.row / every) {
            first = file;
        } else if (verify(pruning, kept) == ANSWER_GOOD) {
            file->fate = FATE_REMOVED;
            continue;
        } else if (verify(pruning, file) == ANSWER_GOOD) { /* it replaces damaged ones */
            for (struct file *older = file + 1; older <= first; older++)
                if (older->answer == ANSWER_DAMAGED)
                    older->fate = FATE_REMOVED;
        }
        kept = file;
    }
}

static void remove_rest(const struct pruning *pruning, uint64_t newest_copied)
{
    const struct rp_locked_dir *locked = pruning->locked;
    struct rp_storage *storage = locked->writer.storage;
    size_t waiting = 0;
    for (size_t i = 0; i < pruning->count; i++) {
        struct file *file = &pruning->files[i];
        if (file->fate == FATE_KEPT)
            continue;
        if (file->name->sequence > newest_copied) { /* N2 */
            file->fate = FATE_KEPT;
            waiting++;
            continue;
        }
        /* No fsync: if a power cut undoes the removal, one old checkpoint more is there. */
        int code = storage->unlink(storage, locked->dir, file->name->text);
        if (code < 0 && code != -ENOENT)
            rp_log(RP_LOG_WARNING, "%s/%s: cannot remove this old checkpoint: %s", locked->path,
                   file->name->text, rp_strerror(code));
    }
    if (waiting > 1) /* a single one is usual while the copier is at work */
        rp_log(RP_LOG_WARNING, "%s: %zu old checkpoints stay until they have been copied",
               locked->path, waiting);
}

static void remember(const struct pruning *pruning)
{
    struct rp_locked_dir *locked = pruning->locked;
    struct rp_known_checkpoint *known = rp_calloc(pruning->count, sizeof *known);
    size_t count = 0;
    for (size_t i = 0; known && i < pruning->count; i++)
        if (pruning->files[i].fate == FATE_KEPT && pruning->files[i].has_row)
            known[count++] = pruning->files[i].known;
    free(locked->known);
    locked->known = known;
    locked->known_count = count;
}

static void prune(struct pruning *pruning, const struct rp_listing *listing, uint64_t *rows,
                  uint64_t newest_copied)
{
    struct rp_locked_dir *locked = pruning->locked;
    for (size_t i = 0; i < listing->count; i++) {
        const struct rp_name *name = &listing->names[i];
        locked->newest_sequence = rp_max_u64(locked->newest_sequence, name->sequence);
        if (name->kind == RP_NAME_CURRENT)
            pruning->files[pruning->count++] = (struct file){.name = name,
                                                             .known = {.sequence = name->sequence}};
    }
    recall(pruning);
    size_t newer = keep_newest(pruning, rows);
    if (newer == 0) { /* N1 */
        for (size_t i = 0; i < pruning->count; i++)
            pruning->files[i].fate = FATE_KEPT;
    } else {
        if (locked->keep_every_rows)
            keep_history(pruning, newer);
        remove_rest(pruning, newest_copied);
    }
    remember(pruning);
}

void rp_locked_dir_prune(struct rp_locked_dir *locked, uint64_t newest_copied)
{
    struct rp_listing listing;
    struct rp_error error;
    int code = rp_listing_open(&listing, locked->dir, locked->path, &error);
    if (code < 0) {
        rp_log(RP_LOG_WARNING, "%s: old checkpoints stay: %s", locked->path, error.message);
        return;
    }
    struct pruning pruning = {.locked = locked,
                              .files = rp_calloc(listing.count, sizeof(struct file))};
    uint64_t *rows = rp_calloc(locked->keep, sizeof *rows);
    if (rows && pruning.files)
        prune(&pruning, &listing, rows, newest_copied);
    else if (listing.count > 0)
        rp_log(RP_LOG_WARNING, "%s: old checkpoints stay: %s", locked->path, rp_strerror(-ENOMEM));
    free(rows);
    free(pruning.files);
    rp_listing_free(&listing);
}
