/* SPDX-License-Identifier: Apache-2.0 */
/* dir.c — the handle of a checkpoint directory: saving, pruning, the mirror.
 *
 * A save computes the layout and the hashes of the sections (image.h). Each of up to three attempts
 * takes the next sequence number and lets writer.c write the file. At the end the file is offered
 * to the copier. It is read back after the save was reported, and before an older file is pruned:
 * until then it does not count as verified. A sequence number is never used twice, so a file that a
 * failed attempt left behind does not disturb the next one. */
#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/copy.h"
#include "checkpoint/directory_id.h"
#include "checkpoint/image.h"
#include "checkpoint/locked_dir.h"
#include "checkpoint/reader.h"
#include "checkpoint/listing.h"
#include "checkpoint/scrub.h"

struct rp_checkpoint_dir {
    struct rp_locked_dir locked;
    struct rp_copier *copier;     /* NULL = no mirror */
    struct rp_image *unread;      /* the newest save, which was not read back yet; NULL = none */
    struct rp_scrubber *scrubber; /* NULL = none */
};

static int put_image(struct rp_locked_dir *locked, struct rp_image *image,
                     const struct rp_checkpoint_part *parts, struct rp_error *error)
{
    if (locked->newest_sequence >= RP_SEQUENCE_MAX)
        return rp_fail(error, -RP_E_RESOURCE, "move the checkpoints to keep to a new directory",
                       "%s: there is no number above %" PRIu64 " for another checkpoint",
                       locked->path, RP_SEQUENCE_MAX);
    int code = rp_locked_dir_check(locked, error);
    if (code < 0)
        return code;
    struct rp_name name;
    rp_name_make(&name, ++locked->newest_sequence, RP_NAME_CURRENT);
    image->head.info.sequence = name.sequence;
    rp_image_make_spans(image, parts);
    return rp_writer_put(&locked->writer, name.text, &image->file, error);
}

static int save_image(struct rp_locked_dir *locked, struct rp_image *image,
                      const struct rp_checkpoint_part *parts, struct rp_error *error)
{
    for (unsigned attempt = 0;; attempt++) {
        struct rp_error found; /* for the log: the caller's error may be NULL */
        int code = put_image(locked, image, parts, &found);
        if (code == 0)
            return 0;
        bool again = rp_writer_wait_to_retry(&locked->writer, attempt, code);
        if (!again && attempt == 0) /* a lasting error: writer.c */
            return rp_fail(error, code, found.hint, "%s", found.message);
        if (!again)
            return rp_fail(error, code, found.hint, "%s (attempt %u of %u)", found.message,
                           attempt + 1, RP_WRITER_ATTEMPTS);
        rp_log(RP_LOG_WARNING, "%s: trying again with a new file (attempt %u of %u)", found.message,
               attempt + 1, RP_WRITER_ATTEMPTS);
    }
}

int rp_checkpoint_save(struct rp_checkpoint_dir *dir, struct rp_checkpoint_info *info,
                       const struct rp_checkpoint_part *parts, size_t part_count, char **path_out,
                       struct rp_error *error)
{
    if (path_out)
        *path_out = NULL;
    struct rp_name name;
    size_t path_bytes = strlen(dir->locked.path) + 1 + sizeof name.text;
    struct rp_image *image = rp_calloc(1, sizeof *image);
    char *path = rp_calloc(1, path_bytes); /* before the save: a saved file must be reported */
    if (!image || !path) {
        free(image);
        free(path);
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a checkpoint", dir->locked.path);
    }
    int code = rp_image_lay_out(image, info, parts, part_count, error);
    if (code == 0)
        code = save_image(&dir->locked, image, parts, error);
    uint64_t sequence = image->head.info.sequence;
    if (code < 0) {
        free(image);
        free(path);
        return code;
    }

    info->sequence = sequence;
    free(dir->unread); /* if it was not read back, the next pruning reads the file */
    dir->unread = image;
    rp_locked_dir_note(&dir->locked, sequence, info->next_row, RP_KNOWN_HEAD);
    if (dir->copier)
        rp_copier_offer(dir->copier, sequence);
    rp_name_make(&name, sequence, RP_NAME_CURRENT);
    snprintf(path, path_bytes, "%s/%s", dir->locked.path, name.text);
    if (path_out)
        *path_out = path;
    else
        free(path);
    return 0;
}

void rp_checkpoint_dir_copies(const struct rp_checkpoint_dir *dir, struct rp_copy_counts *counts)
{
    *counts = (struct rp_copy_counts){0};
    if (dir->copier)
        rp_copier_counts(dir->copier, counts);
}

int rp_checkpoint_read_back_save(struct rp_checkpoint_dir *dir, struct rp_error *error)
{
    struct rp_image *image = dir->unread;
    struct rp_name name;
    dir->unread = NULL;
    if (!image)
        return 0;
    rp_name_make(&name, image->head.info.sequence, RP_NAME_CURRENT);
    int code = rp_writer_read_back(&dir->locked.writer, name.text, &image->file, error);
    rp_locked_dir_judge(&dir->locked, name.sequence, code == 0);
    free(image);
    return code;
}

struct rp_checkpoint_times rp_checkpoint_dir_times(const struct rp_checkpoint_dir *dir)
{
    return dir->locked.writer.times;
}

int rp_checkpoint_set_aside_all(struct rp_checkpoint_dir *dir, struct rp_error *error)
{
    /* The copies first: if only they were left, the next start would resume from them. */
    int code = dir->copier ? rp_copier_set_aside(dir->copier, error) : 0;
    return code < 0 ? code : rp_locked_dir_set_aside(&dir->locked, error);
}

void rp_checkpoint_prune(struct rp_checkpoint_dir *dir)
{
    rp_locked_dir_prune(&dir->locked, dir->copier ? rp_copier_newest(dir->copier) : UINT64_MAX);
}

int rp_checkpoint_dir_scrub(struct rp_checkpoint_dir *dir, uint32_t period_seconds,
                            struct rp_error *error)
{
    struct rp_locked_dir *dirs[] = {&dir->locked,
                                    dir->copier ? rp_copier_target(dir->copier) : NULL};
    RP_ASSERT(!dir->scrubber);
    return period_seconds ? rp_scrubber_open(&dir->scrubber, dirs, period_seconds, error) : 0;
}

void rp_checkpoint_dir_scrubs(const struct rp_checkpoint_dir *dir, struct rp_scrub_counts *counts)
{
    *counts = (struct rp_scrub_counts){0};
    if (dir->scrubber)
        rp_scrubber_counts(dir->scrubber, counts);
}

void rp_checkpoint_keep_every(struct rp_checkpoint_dir *dir, uint64_t rows)
{
    dir->locked.keep_every_rows = rows;
    if (dir->copier)
        rp_copier_keep_every(dir->copier, rows);
}

/* Whether the position of a checkpoint is `row`. It is known for a checkpoint that this process has
 * written, or whose head it has read; otherwise the head is read. */
static bool is_at(const struct rp_locked_dir *locked, const struct rp_name *name, uint64_t row)
{
    const struct rp_known_checkpoint *known = rp_locked_dir_recall(locked, name->sequence);
    uint64_t found;
    if (known)
        return known->row == row;
    return rp_reader_row(&found, locked->dir, locked->path, name, NULL) == 0 && found == row;
}

/* Open the newest checkpoint of the directory, if its position is `row`. */
static int open_newest_at(const struct rp_checkpoint_dir *dir, uint64_t row,
                          struct rp_checkpoint **out)
{
    const struct rp_locked_dir *locked = &dir->locked;
    struct rp_listing listing;
    *out = NULL;
    int code = rp_listing_open(&listing, locked->dir, locked->path, NULL);
    for (size_t i = 0; i < listing.count && code == 0; i++) {
        if (listing.names[i].kind != RP_NAME_CURRENT)
            continue;
        if (is_at(locked, &listing.names[i], row))
            code = rp_reader_open(out, locked->dir, locked->path, &listing.names[i], NULL);
        break;
    }
    rp_listing_free(&listing);
    return *out ? 0 : -ENOENT;
}

bool rp_checkpoint_is_saved(struct rp_checkpoint_dir *dir, const struct rp_checkpoint_info *info,
                            const void *state, size_t state_bytes, char **path_out)
{
    struct rp_checkpoint *newest;
    size_t bytes;
    *path_out = NULL;
    if (rp_locked_dir_check(&dir->locked, NULL) < 0 ||
        open_newest_at(dir, info->next_row, &newest) < 0)
        return false;
    const struct rp_checkpoint_info *found = rp_checkpoint_info(newest);
    const void *saved = rp_checkpoint_section(newest, RP_CHECKPOINT_STATE, &bytes);
    const struct rp_known_checkpoint *known = rp_locked_dir_recall(&dir->locked, found->sequence);
    bool is_damaged = known && known->known == RP_KNOWN_DAMAGED;
    if (!is_damaged && bytes == state_bytes && memcmp(saved, state, bytes) == 0 &&
        rp_hash128_equal(found->identity, info->identity) && !rp_checkpoint_contents_bad(newest))
        *path_out = strdup(rp_checkpoint_path(newest));
    if (*path_out && dir->copier && rp_copier_newest(dir->copier) < found->sequence)
        rp_copier_offer(dir->copier, found->sequence);
    rp_checkpoint_close(newest);
    return *path_out != NULL;
}

int rp_checkpoint_dir_begin(struct rp_checkpoint_dir **dir_out,
                            const struct rp_checkpoint_place *place, struct rp_error *error)
{
    *dir_out = NULL;
    struct rp_checkpoint_dir *dir = rp_calloc(1, sizeof *dir);
    if (!dir)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory to open it", place->path);
    int code = rp_locked_dir_begin(&dir->locked, place, true, error);
    if (code == 0 && place->trials_in_turn)
        code = rp_trial_finish(&dir->locked.trial, error);
    uint64_t copied_sequence = 0;
    if (code == 0 && place->copy_path)
        code = rp_copier_open(&dir->copier, &dir->locked, place->copy_path, &copied_sequence,
                              error);
    if (code == 0 && place->copy_path)
        code = rp_locked_dir_rewind_copies(&dir->locked, rp_copier_target(dir->copier), error);
    if (code == 0 && place->trials_in_turn)
        code = rp_checkpoint_dir_finish_trial(dir, error);
    if (code < 0) {
        rp_checkpoint_dir_close(dir);
        return code;
    }
    /* If the directory was lost, its copies may have higher sequence numbers. */
    dir->locked.newest_sequence = rp_max_u64(dir->locked.newest_sequence, copied_sequence);
    *dir_out = dir;
    return 0;
}

int rp_checkpoint_dir_finish_trial(struct rp_checkpoint_dir *dir, struct rp_error *error)
{
    int code = rp_trial_finish(&dir->locked.trial, error);
    return code == 0 && dir->copier ? rp_copier_finish_trial(dir->copier, error) : code;
}

bool rp_checkpoint_dir_is_new(const struct rp_checkpoint_dir *dir)
{
    return dir->locked.is_new;
}

int rp_checkpoint_dir_id(const struct rp_checkpoint_dir *dir, char id[RP_DIRECTORY_ID_BYTES],
                         struct rp_error *error)
{
    return rp_directory_id_read(&dir->locked, id, error);
}

int rp_checkpoint_dir_make_id(struct rp_checkpoint_dir *dir, char id[RP_DIRECTORY_ID_BYTES],
                              struct rp_error *error)
{
    int code = rp_directory_id_read(&dir->locked, id, error);
    return code < 0 || id[0] ? code : rp_directory_id_make(&dir->locked, id, error);
}

dev_t rp_checkpoint_dir_device(const struct rp_checkpoint_dir *dir)
{
    struct stat info;
    return fstat(dir->locked.dir, &info) == 0 ? info.st_dev : 0;
}

void rp_checkpoint_dir_close(struct rp_checkpoint_dir *dir)
{
    if (!dir)
        return;
    rp_scrubber_close(dir->scrubber); /* it reads in both directories */
    uint64_t newest_copied = rp_copier_close(dir->copier);
    if (newest_copied > 0) /* some could not be removed before the last copy was made */
        rp_locked_dir_prune(&dir->locked, newest_copied);
    rp_locked_dir_close(&dir->locked);
    free(dir->unread);
    free(dir);
}
