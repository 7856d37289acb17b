/* SPDX-License-Identifier: Apache-2.0 */
/* Hashed facts are written out as u64 words in one order, so a fingerprint depends on no struct
 * layout. */
#include "corpus/fingerprint.h"

#include <fcntl.h>
#include <sys/uio.h>

#include "base/bits.h"
#include "base/file.h"

#define INDEX_SAMPLES 1024u

struct words {
    uint64_t word[16 + RP_SAMPLE_BLOCKS];
    size_t count;
};

static void add_word(struct words *words, uint64_t word)
{
    RP_ASSERT(words->count < RP_ARRAY_COUNT(words->word));
    words->word[words->count++] = word;
}

static void add_hash(struct words *words, struct rp_hash128 hash)
{
    add_word(words, hash.low);
    add_word(words, hash.high);
}

static struct rp_hash128 hash_words(const struct words *words)
{
    return rp_hash128(words->word, words->count * sizeof words->word[0]);
}

/* The version, so that a later rule cannot give the same value for other content; then the
 * geometry. */
static struct words begin_words(const struct rp_identity *identity)
{
    struct words words = {.count = 0};
    add_word(&words, 1);
    add_word(&words, (uint64_t)identity->format);
    add_word(&words, (uint64_t)identity->type);
    add_word(&words, (uint64_t)identity->eos);
    add_word(&words, identity->bytes);
    add_word(&words, identity->token_offset);
    add_word(&words, identity->documents);
    add_word(&words, identity->tokens);
    add_word(&words, identity->idx_bytes);
    return words;
}

static void add_table(struct words *words, const struct rp_identity *identity)
{
    if (identity->has_table)
        add_hash(words, identity->table_root);
    if (identity->spans_use != RP_SPANS_USED)
        add_word(words, (uint64_t)identity->spans_use);
}

struct rp_fingerprint rp_identity_fingerprint(const struct rp_identity *identity)
{
    struct rp_fingerprint fingerprint = {{0, 0}, {0, 0}};
    struct words words = begin_words(identity);
    add_hash(&words, identity->idx_sample);
    add_table(&words, identity);
    for (uint32_t i = 0; i < identity->sample_count; i++)
        add_word(&words, identity->sample[i]);
    fingerprint.sampled = hash_words(&words);
    if (identity->full) {
        words = begin_words(identity);
        add_hash(&words, identity->idx_content);
        add_table(&words, identity);
        add_hash(&words, identity->content);
        fingerprint.full = hash_words(&words);
    }
    return fingerprint;
}

void rp_fingerprint_begin(struct rp_fingerprint_list *list)
{
    list->count = list->full_count = 0;
    rp_hasher_begin(&list->sampled);
    rp_hasher_begin(&list->full);
}

void rp_fingerprint_add(struct rp_fingerprint_list *list, const struct rp_fingerprint *member)
{
    list->count++;
    list->full_count += rp_hash128_is_known(member->full);
    rp_hasher_add(&list->sampled, &member->sampled, sizeof member->sampled);
    rp_hasher_add(&list->full, &member->full, sizeof member->full);
}

struct rp_fingerprint rp_fingerprint_of(const struct rp_fingerprint_list *list)
{
    struct rp_fingerprint fingerprint = {rp_hasher_finish(&list->sampled), {0, 0}};
    if (list->count > 0 && list->full_count == list->count)
        fingerprint.full = rp_hasher_finish(&list->full);
    return fingerprint;
}

uint32_t rp_sample_count(uint64_t blocks)
{
    return (uint32_t)rp_min_u64(blocks, RP_SAMPLE_BLOCKS);
}

static uint64_t spread(uint64_t i, uint64_t samples, uint64_t blocks)
{
    return blocks <= samples ? i : i * (blocks - 1) / (samples - 1);
}

uint64_t rp_sample_block(uint32_t i, uint64_t blocks)
{
    return spread(i, RP_SAMPLE_BLOCKS, blocks);
}

/* Request all sampled blocks from `first` on before waiting for one: one seek time instead of all.
 */
static void will_need(int fd, uint32_t first, uint32_t samples, uint64_t blocks)
{
    for (uint32_t i = first; i < samples; i++)
        posix_fadvise(fd, (off_t)(spread(i, samples, blocks) * RP_BLOCK_BYTES), RP_BLOCK_BYTES,
                      POSIX_FADV_WILLNEED);
}

/* Sampled blocks of a file. is_cached: the page cache had all blocks that were read so far. */
struct sampled {
    int fd;
    const char *path;
    uint64_t bytes;
    uint32_t samples;
    bool is_cached;
};

/* Read a block from the page cache, if it is there. */
static bool read_cached(const struct sampled *file, void *block, size_t length, uint64_t offset)
{
    struct iovec part = {block, length};
    return file->is_cached &&
           preadv2(file->fd, &part, 1, (off_t)offset, RWF_NOWAIT) == (ssize_t)length;
}

/* Read sampled block i. Blocks are read in order. */
static int read_block(struct sampled *file, uint32_t i, uint8_t block[RP_BLOCK_BYTES],
                      size_t *length, struct rp_error *error)
{
    uint64_t blocks = rp_div_up(file->bytes, RP_BLOCK_BYTES);
    uint64_t offset = spread(i, file->samples, blocks) * RP_BLOCK_BYTES;
    *length = (size_t)rp_min_u64(RP_BLOCK_BYTES, file->bytes - offset);
    if (read_cached(file, block, *length, offset))
        return 0;
    if (file->is_cached)
        will_need(file->fd, i, file->samples, blocks);
    file->is_cached = false;
    return rp_file_read_at(file->fd, file->path, block, *length, offset, error);
}

/* Reads instead of accesses to the mapping: a page fault and page tables for each distant block
 * take three times as long (5.0 ms against 1.6). */
int rp_idx_sample(int fd, const char *path, uint64_t bytes, struct rp_hash128 *sample,
                  struct rp_error *error)
{
    RP_ASSERT(bytes > RP_INDEX_HASH_WHOLE_MAX); /* else it is hashed */
    struct sampled file = {fd, path, bytes, INDEX_SAMPLES, .is_cached = true};
    struct rp_hasher hasher;
    uint8_t block[RP_BLOCK_BYTES];
    size_t length;
    int code = 0;
    rp_hasher_begin(&hasher);
    for (uint32_t i = 0; i < INDEX_SAMPLES && code == 0; i++) {
        code = read_block(&file, i, block, &length, error);
        if (code == 0)
            rp_hasher_add(&hasher, block, length);
    }
    *sample = rp_hasher_finish(&hasher);
    return code;
}

int rp_sample_read(int fd, const char *path, uint64_t bytes, uint64_t sample[RP_SAMPLE_BLOCKS],
                   struct rp_error *error)
{
    uint32_t count = rp_sample_count(rp_div_up(bytes, RP_BLOCK_BYTES));
    struct sampled file = {fd, path, bytes, count, .is_cached = true};
    uint8_t block[RP_BLOCK_BYTES];
    size_t length;
    for (uint32_t i = 0; i < count; i++) {
        int code = read_block(&file, i, block, &length, error);
        if (code < 0)
            return code;
        sample[i] = rp_hash64(block, length);
    }
    return 0;
}
