/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_files.h — for the tests of engine/corpus: a scratch directory, and files written byte by
 * byte from the layouts in the formats' own documentation, never with the code under test. */
#ifndef RP_TESTS_CORPUS_FILES_H
#define RP_TESTS_CORPUS_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "corpus/corpus.h"

static char scratch[] = "/tmp/rp-test-XXXXXX";

static inline int scratch_enter(void **state)
{
    (void)state;
    return mkdtemp(scratch) && chdir(scratch) == 0 ? 0 : -1;
}

static inline int scratch_leave(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static inline void put_file(const char *path, const void *bytes, size_t count)
{
    unlink(
        path); /* a file that is truncated and written again is flushed to the disk by ext4: slow */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static inline size_t get_file(const char *path, uint8_t *bytes, size_t bytes_max)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, bytes_max, file);
    assert_true(feof(file));
    fclose(file);
    return count;
}

/* A file that is built up value by value. */
struct image {
    uint8_t bytes[1 << 19];
    size_t count;
};

static inline void add_bytes(struct image *image, const void *bytes, size_t count)
{
    assert_true(image->count + count <= sizeof image->bytes);
    memcpy(image->bytes + image->count, bytes, count);
    image->count += count;
}
static inline void add_u8(struct image *image, uint8_t v)
{
    add_bytes(image, &v, sizeof v);
}
static inline void add_u16(struct image *image, uint16_t v)
{
    add_bytes(image, &v, sizeof v);
}
static inline void add_u32(struct image *image, uint32_t v)
{
    add_bytes(image, &v, sizeof v);
}
static inline void add_u64(struct image *image, uint64_t v)
{
    add_bytes(image, &v, sizeof v);
}

/* An MMIDIDX index. `first` has documents + 1 entries. */
static inline void add_megatron_index(struct image *image, uint8_t code, const int32_t *lengths,
                                      const int64_t *pointers, uint64_t sequences,
                                      const int64_t *first, uint64_t documents)
{
    add_bytes(image, "MMIDIDX\0\0", 9);
    add_u64(image, 1);
    add_u8(image, code);
    add_u64(image, sequences);
    add_u64(image, documents + 1);
    for (uint64_t i = 0; i < sequences; i++)
        add_u32(image, (uint32_t)lengths[i]);
    for (uint64_t i = 0; i < sequences; i++)
        add_u64(image, (uint64_t)pointers[i]);
    for (uint64_t i = 0; i <= documents; i++)
        add_u64(image, (uint64_t)first[i]);
}

/* The usual dataset: every document is one sequence, back to back. */
static inline void put_megatron(const char *prefix, uint8_t code, unsigned width,
                                const int32_t *lengths, uint64_t documents)
{
    static struct image index, tokens;
    int64_t pointers[64], first[65];
    char path[128];
    index.count = tokens.count = 0;
    uint64_t position = 0;
    assert_true(documents <= 64);
    first[0] = 0;
    for (uint64_t d = 0; d < documents; d++) {
        pointers[d] = (int64_t)(position * width);
        first[d + 1] = (int64_t)d + 1;
        position += (uint64_t)lengths[d];
    }
    for (uint64_t t = 0; t < position; t++) {
        uint64_t value = t % 251;
        add_bytes(&tokens, &value, width);
    }
    add_megatron_index(&index, code, lengths, pointers, documents, first, documents);
    snprintf(path, sizeof path, "%s.bin", prefix);
    put_file(path, tokens.bytes, tokens.count);
    snprintf(path, sizeof path, "%s.idx", prefix);
    put_file(path, index.bytes, index.count);
}

/* Open a corpus of one source with one shard. */
static inline int open_one(struct rp_corpus **corpus, const char *path, enum rp_format format,
                           enum rp_token_type type, int64_t eos, struct rp_error *error)
{
    const char *shards[] = {path};
    struct rp_source_spec source = {.name = "s",
                                    .weight = 1,
                                    .shards = shards,
                                    .shard_count = 1,
                                    .format = format,
                                    .type = type,
                                    .eos = eos};
    struct rp_corpus_spec spec = {.sources = &source, .source_count = 1};
    *error = (struct rp_error){0};
    return rp_corpus_open(corpus, &spec, error);
}

static inline struct rp_source_spec declared(enum rp_format format, enum rp_token_type type,
                                             int64_t eos)
{
    return (struct rp_source_spec){.format = format, .type = type, .eos = eos};
}

/* The message must say all of these, separated by '|'. */
static inline void assert_says(const struct rp_error *error, const char *words)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, "|"); word; word = strtok(NULL, "|"))
        if (!strstr(error->message, word) && !strstr(error->hint, word))
            fail_msg("`%s` is not in: %s / %s", word, error->message, error->hint);
}

#endif
