/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_sample.h — shared by the tests of checkpoints: a directory of their own, and a small
 * full checkpoint whose state and contents follow from one number. */
#ifndef RP_TESTS_CHECKPOINT_SAMPLE_H
#define RP_TESTS_CHECKPOINT_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs those above */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/storage.h"
#include "log_kit.h"

/* ---- a directory of the test's own, which is the working directory --------------------------- */

static char test_directory[] = "/tmp/rp-test-checkpoint-XXXXXX";

static inline int sample_enter(void **state)
{
    (void)state;
    rp_log_set_level(RP_LOG_ERROR); /* these tests provoke warnings */
    return mkdtemp(test_directory) && chdir(test_directory) == 0 ? 0 : -1;
}

/* The same in memory, for thousands of files that no power cut will meet; on a disk if there is no
 * such place. */
static inline int sample_enter_memory(void **state)
{
    char directory[] = "/dev/shm/rp-test-ckpt-XXXXXX";
    struct statvfs memory;
    RP_STATIC_ASSERT(sizeof directory <= sizeof test_directory, "it is put in its place");
    if (statvfs("/dev/shm", &memory) != 0 || memory.f_bavail * memory.f_frsize < 16u << 20 ||
        !mkdtemp(directory))
        return sample_enter(state);
    memcpy(test_directory, directory, sizeof directory);
    rp_log_set_level(RP_LOG_ERROR);
    return chdir(test_directory);
}

static inline int sample_leave(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", test_directory);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

/* A directory with files only. */
static inline void remove_directory(const char *name)
{
    DIR *dir = opendir(name);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        (void)unlinkat(dirfd(dir), entry->d_name, 0); /* fails on . and .. */
    closedir(dir);
    assert_int_equal(rmdir(name), 0);
}

/* Files of a directory whose name contains `part`. */
static inline unsigned count_names(const char *directory, const char *part)
{
    unsigned count = 0;
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += strstr(entry->d_name, part) != NULL;
    closedir(dir);
    return count;
}

/* ---- the sample ------------------------------------------------------------------------------ */

#define SAMPLE_STATE_BYTES 300u
#define SAMPLE_TOKENS 40u

struct sample {
    uint8_t state[SAMPLE_STATE_BYTES];
    char config[64];
    struct {
        struct rp_content_record record;
        uint16_t tokens[SAMPLE_TOKENS];
    } contents[3];
    struct rp_checkpoint_piece pieces[5];
    struct rp_checkpoint_part parts[3];
    struct rp_checkpoint_info info;
};

/* Everything follows from next_row; the contents are three rows from there on. */
static inline void sample_make(struct sample *sample, uint64_t next_row)
{
    memset(sample, 0, sizeof *sample);
    for (unsigned i = 0; i < SAMPLE_STATE_BYTES; i++)
        sample->state[i] = (uint8_t)(next_row * 31 + i * i + 1);
    snprintf(sample->config, sizeof sample->config, "run: sample-%u\n", (unsigned)next_row);
    for (unsigned k = 0; k < 3; k++) {
        sample->contents[k].record = (struct rp_content_record){
            .row = next_row + k, .count = SAMPLE_TOKENS, .width = 2};
        for (unsigned i = 0; i < SAMPLE_TOKENS; i++)
            sample->contents[k].tokens[i] = (uint16_t)(next_row * 1000 + k * 100 + i + 1);
        sample->pieces[2 + k] = (struct rp_checkpoint_piece){&sample->contents[k],
                                                             sizeof sample->contents[k]};
    }
    sample->pieces[0] = (struct rp_checkpoint_piece){sample->state, sizeof sample->state};
    sample->pieces[1] = (struct rp_checkpoint_piece){sample->config, strlen(sample->config)};
    sample->parts[0] = (struct rp_checkpoint_part){
        .type = RP_CHECKPOINT_STATE, .pieces = &sample->pieces[0], .piece_count = 1};
    sample->parts[1] = (struct rp_checkpoint_part){
        .type = RP_CHECKPOINT_CONFIG, .pieces = &sample->pieces[1], .piece_count = 1};
    sample->parts[2] = (struct rp_checkpoint_part){
        .type = RP_CHECKPOINT_CONTENTS, .pieces = &sample->pieces[2], .piece_count = 3};
    sample->info = (struct rp_checkpoint_info){.next_row = next_row,
                                               .contents_end_row = next_row + 3,
                                               .identity = {0x1234, 0x5678},
                                               .dp_world_size = 4,
                                               .batch_size = 32,
                                               .run = "sample",
                                               .version = "0.1.0"};
}

/* The result of reading the last sample back. */
static int sample_read_back;
static struct rp_error sample_read_back_error;

/* Save, read back and prune, as an engine does. Returns the result of the save. */
static inline int sample_save(struct rp_checkpoint_dir *dir, uint64_t next_row, uint64_t *sequence,
                              struct rp_error *error)
{
    struct sample sample;
    sample_make(&sample, next_row);
    int code = rp_checkpoint_save(dir, &sample.info, sample.parts, 3, NULL, error);
    if (code == 0 && sequence)
        *sequence = sample.info.sequence;
    sample_read_back = code == 0 ? rp_checkpoint_read_back_save(dir, &sample_read_back_error) : 0;
    if (code == 0)
        rp_checkpoint_prune(dir);
    return code;
}

/* The checkpoint is the whole sample of its next_row. */
static inline void sample_check(const struct rp_checkpoint *checkpoint)
{
    struct sample sample;
    sample_make(&sample, rp_checkpoint_info(checkpoint)->next_row);
    size_t bytes;
    const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
    assert_int_equal(bytes, sizeof sample.state);
    assert_memory_equal(state, sample.state, bytes);
    const void *config = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    assert_int_equal(bytes, strlen(sample.config));
    assert_memory_equal(config, sample.config, bytes);
    const void *contents = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes);
    assert_int_equal(bytes, sizeof sample.contents);
    assert_memory_equal(contents, sample.contents, bytes);
}

/* Open a directory; its trial has ended. */
static inline int sample_open_with(struct rp_checkpoint_dir **dir, const char *path, uint32_t keep,
                                   const char *copy_path, struct rp_storage *storage,
                                   size_t buffer_bytes, struct rp_error *error)
{
    const struct rp_checkpoint_place place = {path, copy_path, keep, true, storage, buffer_bytes};
    return rp_checkpoint_dir_begin(dir, &place, error);
}

static inline int sample_open(struct rp_checkpoint_dir **dir, const char *path, uint32_t keep,
                              const char *copy_path, struct rp_error *error)
{
    return sample_open_with(dir, path, keep, copy_path, NULL, 0, error);
}

/* A directory with `count` checkpoints whose next_row are 10, 20, …; sequences 1, 2, … */
static inline void sample_fill(const char *directory, unsigned count)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(sample_open(&dir, directory, 100, NULL, &error), 0);
    for (unsigned i = 1; i <= count; i++)
        assert_int_equal(sample_save(dir, i * 10, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
}

/* The row that newest() finds; 0 without one. The file must be a whole sample. */
static inline uint64_t newest_row(const char *directory)
{
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    int code = rp_checkpoint_newest(&checkpoint, directory, false, &error);
    if (code <= 0)
        return 0;
    sample_check(checkpoint);
    uint64_t row = rp_checkpoint_info(checkpoint)->next_row;
    rp_checkpoint_close(checkpoint);
    return row;
}

/* Change one byte of a file: it stays as long as it was. */
static inline void damage(const char *path, long offset)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0x10, file), byte ^ 0x10);
    assert_int_equal(fclose(file), 0);
}

#endif
