/* SPDX-License-Identifier: Apache-2.0 */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/row_digest.h"

#define LABEL_IGNORED (-100)
#define SECTIONS_MIN (1u << RP_SECTION_CU_SEQLENS)
#define SECTIONS_HF (SECTIONS_MIN | 1u << RP_SECTION_LABELS | 1u << RP_SECTION_POSITION_IDS)
#define SECTIONS_ALWAYS                                                                            \
    (1u << RP_SECTION_ROWS | 1u << RP_SECTION_DOC_LENS | 1u << RP_SECTION_INPUT_IDS)

void check(int code, const struct rp_error *error)
{
    if (code >= 0)
        return;
    fprintf(stderr, "ringpack_loop: %s\n", error->message);
    exit(2);
}

_Noreturn void refuse(const char *text)
{
    fprintf(stderr, "ringpack_loop: %s\n", text);
    exit(2);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Private memory with every page in place, on huge pages where the kernel has them. */
static void *take_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        refuse("out of memory: the corpus must fit");
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    return memory;
}

/* The file into private memory. */
static uint8_t *copy_of(const struct rp_shard *shard)
{
    struct rp_error error;
    uint8_t *bytes = take_memory(shard->bytes + 1);
    FILE *file = fopen(shard->path, "rbe");
    if (!file || fread(bytes, 1, shard->bytes, file) != shard->bytes)
        check(rp_fail(&error, -EIO, NULL, "%s: cannot be read", shard->path), &error);
    else
        fclose(file);
    return bytes;
}

/* The pages of the page cache themselves: 4 KiB each, all of them in the page table. */
static uint8_t *mapping_of(const struct rp_shard *shard)
{
    int fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    void *bytes = fd < 0 ? MAP_FAILED : mmap(NULL, shard->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        refuse("a token file cannot be mapped");
    close(fd);
    madvise(bytes, shard->bytes, MADV_NOHUGEPAGE);
    for (uint64_t at = 0; at < shard->bytes; at += 4096)
        (void)*((const volatile uint8_t *)bytes + at);
    return bytes;
}

void load_shards(struct bench *b)
{
    uint32_t count = rp_corpus_data_count(b->corpus);
    b->shards = rp_calloc(count, sizeof *b->shards);
    for (uint32_t i = 0; b->shards && i < count; i++) {
        const struct rp_shard *shard = rp_corpus_shard(b->corpus, i);
        if (shard->type != RP_TOKEN_U16)
            refuse("the loop is written for u16 tokens");
        b->shards[i] = b->mapped ? mapping_of(shard) : copy_of(shard);
        b->bytes += shard->bytes;
    }
}

void make_batches(struct bench *b)
{
    const struct rp_config *c = &b->config;
    uint64_t positions = (uint64_t)c->batch_size * c->seq_len;
    size_t width = c->token_dtype == RP_DTYPE_I64 ? 8 : 4;
    uint64_t fragments = (uint64_t)c->batch_size * b->max_docs_per_row;
    bool more = (c->sections & SECTIONS_HF) == SECTIONS_HF;
    if (more && c->label_mode != RP_LABELS_ALIGNED)
        refuse("the loop is written for aligned labels");
    if ((c->sections & ~SECTIONS_ALWAYS) != (more ? SECTIONS_HF : SECTIONS_MIN) ||
        (c->token_dtype != RP_DTYPE_I32 && c->token_dtype != RP_DTYPE_I64))
        refuse("the loop is written for the profiles `min` and `hf`");
    b->batches = rp_calloc(b->batch_count, sizeof *b->batches);
    for (uint64_t i = 0; b->batches && i < b->batch_count; i++)
        b->batches[i] = (struct batch){
            .ids = take_memory(positions * width),
            .labels = more ? take_memory(positions * width) : NULL,
            .positions = more ? take_memory(positions * width) : NULL,
            .ends = take_memory((fragments + c->batch_size + 1) * sizeof(int32_t)),
            .lengths = take_memory(fragments * sizeof(int32_t)),
            .rows = take_memory(c->batch_size * sizeof(struct rp_row_info)),
        };
}

/* ---- the plain loop -------------------------------------------------------------------------- */

#define DEFINE_PUT(type)                                                                           \
    static void put_##type(type *restrict ids, const uint16_t *restrict source, size_t n)          \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            ids[i] = source[i];                                                                    \
    }                                                                                              \
    static void put_all_##type(type *restrict ids, type *restrict labels,                          \
                               type *restrict positions, const uint16_t *restrict source,          \
                               size_t n)                                                           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            ids[i] = source[i];                                                                    \
            labels[i] = source[i];                                                                 \
            positions[i] = (type)i;                                                                \
        }                                                                                          \
        labels[0] = LABEL_IGNORED;                                                                 \
    }                                                                                              \
    static void pad_##type(type *restrict ids, type *restrict labels, type *restrict positions,    \
                           type pad, size_t n)                                                     \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            ids[i] = pad;                                                                          \
        for (size_t i = 0; labels && i < n; i++) {                                                 \
            labels[i] = LABEL_IGNORED;                                                             \
            positions[i] = (type)i;                                                                \
        }                                                                                          \
    }                                                                                              \
    static void row_##type(const struct bench *b, const struct batch *batch,                       \
                           const struct rp_row *row, uint64_t at)                                  \
    {                                                                                              \
        type *ids = (type *)batch->ids + at, *labels = NULL, *positions = NULL;                    \
        if (batch->labels) {                                                                       \
            labels = (type *)batch->labels + at;                                                   \
            positions = (type *)batch->positions + at;                                             \
        }                                                                                          \
        uint32_t done = 0;                                                                         \
        for (uint32_t f = 0; f < row->count; f++) {                                                \
            const uint16_t *source = tokens_of(b, &row->fragments[f]);                             \
            uint32_t n = row->fragments[f].length;                                                 \
            if (labels)                                                                            \
                put_all_##type(ids + done, labels + done, positions + done, source, n);            \
            else                                                                                   \
                put_##type(ids + done, source, n);                                                 \
            done += n;                                                                             \
        }                                                                                          \
        pad_##type(ids + done, labels ? labels + done : NULL, positions ? positions + done : NULL, \
                   (type)b->config.pad_id, b->config.seq_len - done);                              \
    }

static const uint16_t *tokens_of(const struct bench *b, const struct rp_fragment *fragment)
{
    struct rp_extent extent;
    struct rp_error error;
    check(rp_source_extent(rp_corpus_source(b->corpus, fragment->source), fragment->document,
                           &extent, &error),
          &error);
    const uint8_t *bytes = b->shards[extent.shard] + extent.byte_offset + 2 * fragment->offset;
    return (const uint16_t *)(const void *)bytes;
}

DEFINE_PUT(int32_t)
DEFINE_PUT(int64_t)

/* Lengths, the row's line, and its ends in cu_seqlens; returns how many ends there are now. */
static uint32_t put_boundaries(const struct bench *b, const struct batch *batch,
                               const struct rp_row *row, uint32_t i, uint32_t ends)
{
    uint32_t most = b->max_docs_per_row, seq_len = b->config.seq_len;
    int32_t *lengths = batch->lengths + (uint64_t)i * most;
    int32_t end = (int32_t)(i * seq_len);
    for (uint32_t f = 0; f < row->count; f++) {
        lengths[f] = (int32_t)row->fragments[f].length;
        end += lengths[f];
        batch->ends[++ends] = end;
    }
    memset(lengths + row->count, 0, (most - row->count) * sizeof *lengths);
    if (row->tokens < seq_len)
        batch->ends[++ends] = (int32_t)((i + 1) * seq_len);
    batch->rows[i] = (struct rp_row_info){row->row, row->count, row->tokens};
    return ends;
}

static void finish_batch(const struct bench *b, const struct batch *batch, uint32_t ends)
{
    uint32_t capacity = b->config.batch_size * (b->max_docs_per_row + 1);
    int32_t end = (int32_t)(b->config.batch_size * b->config.seq_len);
    for (uint32_t i = ends + 1; i <= capacity; i++)
        batch->ends[i] = end;
}

static void add_digest(const struct bench *b, const struct batch *batch, uint32_t rows,
                       struct rp_hash128 *digest)
{
    const struct rp_config *c = &b->config;
    for (uint32_t i = 0; i < rows; i++) {
        const uint8_t *ids = batch->ids;
        size_t row_bytes = c->seq_len * (c->token_dtype == RP_DTYPE_I64 ? 8u : 4u);
        const struct rp_row_tokens row = {.lengths = batch->lengths +
                                                     (uint64_t)i * b->max_docs_per_row,
                                          .fragments = batch->rows[i].fragments,
                                          .tokens = ids + i * row_bytes,
                                          .dtype = (enum rp_dtype)c->token_dtype};
        *digest = rp_hash128_sum(*digest, rp_row_digest(batch->rows[i].row, rp_row_hash(&row)));
    }
}

bool pack_batch(const struct bench *b, struct loop *loop, bool digest)
{
    const struct batch *batch = &b->batches[loop->batches++ % b->batch_count];
    uint32_t rows = b->config.batch_size, i = 0, ends = 0;
    bool wide = b->config.token_dtype == RP_DTYPE_I64, left = true;
    struct rp_error error;
    struct rp_row row;
    while (i < rows) {
        int code = rp_plan_next(loop->plan, &row, &error);
        check(code, &error);
        left = code == 1;
        if (!left)
            break;
        (wide ? row_int64_t : row_int32_t)(b, batch, &row, (uint64_t)i * b->config.seq_len);
        ends = put_boundaries(b, batch, &row, i++, ends);
        loop->tokens += row.tokens;
    }
    finish_batch(b, batch, ends);
    if (digest)
        add_digest(b, batch, i, &loop->digest);
    loop->rows += i;
    return left;
}
