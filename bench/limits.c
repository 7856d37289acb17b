/* SPDX-License-Identifier: Apache-2.0 */
/* limits — what one core of this machine can do with a corpus and nothing in between.
 *
 *     ringpack_limits memcpy,plan,pack,concat sources=c.bin seq_len=4096 batch_size=8 profile=hf
 *     ringpack_limits seek sources=c.bin seq_len=4096 batch_size=8 row=100000 state=FILE
 *
 * One process, one thread, private memory on huge pages; the token files are read into it first.
 * The keys are those of `ringpack serve`, so both are given the same task. Each stage goes over the
 * whole stream once:
 *
 *     memcpy   the bytes of the token files, once per epoch
 *     plan     which fragments make up each row; no token is touched
 *     pack     the plain loop: plan, then widen every document into a batch with the sections of
 *              the profile; `slots` batches are filled in turn (1: it stays in the cache)
 *     concat   the same with packing: concat
 *     digest   pack, not timed, with the digest that `ringpack attach --digest` prints
 *     seek     plan up to `row`, then write the state token to the file `state`
 *
 * The loop shares the plan with the engine, and nothing else: no ring, no reads, no checks. Its
 * digest shows that it does the same work. It is compiled for this very machine. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/row_digest.h"
#include "base/text.h"
#include "stream.h"

#define SECOND_NS 1e9
#define LABEL_IGNORED (-100)
#define SECTIONS_MIN (1u << RP_SECTION_CU_SEQLENS)
#define SECTIONS_HF (SECTIONS_MIN | 1u << RP_SECTION_LABELS | 1u << RP_SECTION_POSITION_IDS)
#define SECTIONS_ALWAYS                                                                            \
    (1u << RP_SECTION_ROWS | 1u << RP_SECTION_DOC_LENS | 1u << RP_SECTION_INPUT_IDS)

static void check(int code, const struct rp_error *error)
{
    if (code >= 0)
        return;
    fprintf(stderr, "ringpack_limits: %s\n", error->message);
    exit(2);
}

static void refuse(const char *text)
{
    fprintf(stderr, "ringpack_limits: %s\n", text);
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

/* ---- what is measured ------------------------------------------------------------------------ */

struct batch {
    void *ids, *labels, *positions; /* [rows][seq_len]; the last two NULL in `min` */
    int32_t *ends;                  /* [rows * (D + 1) + 1] cu_seqlens */
    int32_t *lengths;               /* [rows][D] */
    struct rp_row_info *rows;
};

struct bench {
    struct rp_config config;
    struct rp_corpus *corpus;
    uint8_t **shards; /* the token files, in private memory */
    uint64_t bytes;
    struct batch *batches;
    uint64_t batch_count;
};

struct result {
    double seconds, cpu_seconds;
    uint64_t tokens, rows, documents;
    struct rp_hash128 digest;
};

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / SECOND_NS;
}

/* A stage begins; stop_clock turns what is in `result` into what has passed. */
static void start_clock(struct result *result)
{
    result->cpu_seconds = cpu_now();
    result->seconds = (double)rp_now_ns() / SECOND_NS;
}

static void stop_clock(struct result *result)
{
    result->seconds = (double)rp_now_ns() / SECOND_NS - result->seconds;
    result->cpu_seconds = cpu_now() - result->cpu_seconds;
}

static void load_shards(struct bench *b)
{
    struct rp_error error;
    uint32_t count = rp_corpus_shard_count(b->corpus);
    b->shards = rp_calloc(count, sizeof *b->shards);
    for (uint32_t i = 0; b->shards && i < count; i++) {
        const struct rp_shard *shard = rp_corpus_shard(b->corpus, i);
        if (shard->type != RP_TOKEN_U16)
            refuse("the loop is written for u16 tokens");
        b->shards[i] = take_memory(shard->bytes + 1);
        FILE *file = fopen(shard->path, "rbe");
        if (!file || fread(b->shards[i], 1, shard->bytes, file) != shard->bytes)
            check(rp_fail(&error, -EIO, NULL, "%s: cannot be read", shard->path), &error);
        else
            fclose(file);
        b->bytes += shard->bytes;
    }
}

static void make_batches(struct bench *b)
{
    const struct rp_config *c = &b->config;
    uint64_t positions = (uint64_t)c->batch_size * c->seq_len;
    size_t width = c->token_dtype == RP_DTYPE_I64 ? 8 : 4;
    uint64_t fragments = (uint64_t)c->batch_size * c->max_docs_per_row;
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
    uint32_t most = b->config.max_docs_per_row, seq_len = b->config.seq_len;
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
    uint32_t capacity = b->config.batch_size * (b->config.max_docs_per_row + 1);
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
        struct rp_hash128 hash = rp_row_hash(batch->lengths + (uint64_t)i * c->max_docs_per_row,
                                             batch->rows[i].fragments, ids + i * row_bytes,
                                             (enum rp_dtype)c->token_dtype);
        *digest = rp_hash128_sum(*digest, rp_row_digest(batch->rows[i].row, hash));
    }
}

static struct rp_plan *open_plan(const struct bench *b)
{
    struct rp_error error;
    struct rp_plan *plan;
    check(rp_stream_open_plan(&plan, &b->config, b->corpus, &error), &error);
    return plan;
}

static void close_plan(struct rp_plan *plan, struct result *result)
{
    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    result->documents = counts.documents;
    rp_plan_close(plan);
}

static struct result run_pack(const struct bench *b, bool digest)
{
    struct result result = {0};
    struct rp_error error;
    struct rp_row row;
    struct rp_plan *plan = open_plan(b);
    uint32_t rows = b->config.batch_size;
    bool wide = b->config.token_dtype == RP_DTYPE_I64;
    start_clock(&result);
    for (uint64_t k = 0, left = 1; left;) {
        const struct batch *batch = &b->batches[k++ % b->batch_count];
        uint32_t i = 0, ends = 0;
        for (; i < rows && left; i += left != 0) {
            int code = rp_plan_next(plan, &row, &error);
            check(code, &error);
            left = (uint64_t)code;
            if (!left)
                break;
            (wide ? row_int64_t : row_int32_t)(b, batch, &row, (uint64_t)i * b->config.seq_len);
            ends = put_boundaries(b, batch, &row, i, ends);
            result.tokens += row.tokens;
        }
        finish_batch(b, batch, ends);
        if (digest)
            add_digest(b, batch, i, &result.digest);
        result.rows += i;
    }
    stop_clock(&result);
    close_plan(plan, &result);
    return result;
}

static struct result run_plan(const struct bench *b)
{
    struct result result = {0};
    struct rp_error error;
    struct rp_row row;
    struct rp_plan *plan = open_plan(b);
    start_clock(&result);
    int code;
    while ((code = rp_plan_next(plan, &row, &error)) == 1) {
        result.tokens += row.tokens;
        result.rows++;
    }
    check(code, &error);
    stop_clock(&result);
    close_plan(plan, &result);
    return result;
}

static struct result run_memcpy(const struct bench *b)
{
    struct result result = {0};
    uint8_t *target = take_memory(b->bytes);
    start_clock(&result);
    for (uint64_t epoch = 0; epoch < b->config.num_epochs; epoch++) {
        uint8_t *to = target;
        for (uint32_t i = 0; i < rp_corpus_shard_count(b->corpus); i++) {
            uint64_t bytes = rp_corpus_shard(b->corpus, i)->bytes;
            to = (uint8_t *)memcpy(to, b->shards[i], bytes) + bytes;
            __asm__ volatile("" ::: "memory"); /* every copy is made */
        }
    }
    stop_clock(&result);
    result.tokens = b->bytes / 2 * b->config.num_epochs;
    munmap(target, b->bytes);
    return result;
}

/* ---- the program ----------------------------------------------------------------------------- */

struct arguments {
    const char *stages, *state;
    uint64_t row, slots;
    char **keys; /* key=value, of the config */
    int key_count;
};

static void read_config(struct rp_config *config, const struct arguments *a, const char *packing)
{
    struct rp_error error;
    rp_config_init(config);
    for (int i = 0; i < a->key_count; i++) {
        char key[64];
        const char *equals = strchr(a->keys[i], '=');
        if (!equals || (size_t)(equals - a->keys[i]) >= sizeof key)
            refuse("expected key=value");
        snprintf(key, sizeof key, "%.*s", (int)(equals - a->keys[i]), a->keys[i]);
        check(rp_config_set(config, key, equals + 1, &error), &error);
    }
    if (packing)
        check(rp_config_set(config, "packing", packing, &error), &error);
    check(rp_config_finish(config, &error), &error);
}

static json_t *as_json(const struct result *r, const struct bench *b)
{
    return json_pack("{s:f, s:f, s:I, s:I, s:I, s:f, s:f}", "seconds", r->seconds, "cpu_seconds",
                     r->cpu_seconds, "tokens", (json_int_t)r->tokens, "rows", (json_int_t)r->rows,
                     "documents", (json_int_t)r->documents, "tokens_per_second",
                     (double)r->tokens / r->seconds, "fill",
                     r->rows ? (double)r->tokens / ((double)r->rows * b->config.seq_len) : 1.0);
}

static void seek(const struct bench *b, const struct arguments *a, json_t *report)
{
    struct rp_error error;
    struct result result = {0};
    struct rp_plan *plan = open_plan(b);
    void *token = malloc(rp_plan_state_bytes_max(plan));
    start_clock(&result);
    check(rp_plan_seek(plan, a->row, &error), &error);
    stop_clock(&result);
    if (!token || !a->state)
        refuse("seek needs state=FILE");
    size_t bytes = rp_plan_save(plan, token);
    check(rp_file_replace(a->state, token, bytes, &error), &error);
    close_plan(plan, &result);
    free(token);
    json_object_set_new(report, "seek",
                        json_pack("{s:I, s:f, s:I, s:I}", "row", (json_int_t)a->row, "seconds",
                                  result.seconds, "documents", (json_int_t)result.documents,
                                  "state_bytes", (json_int_t)bytes));
}

static void run_stage(struct bench *b, const char *stage, const struct arguments *a, json_t *report)
{
    char digest[RP_HASH_HEX_BYTES];
    struct result result;
    if (!strcmp(stage, "seek")) {
        seek(b, a, report);
        return;
    }
    if (!strcmp(stage, "plan")) {
        json_object_set_new(report, stage, (result = run_plan(b), as_json(&result, b)));
        return;
    }
    if (!b->shards)
        load_shards(b);
    if (!strcmp(stage, "memcpy")) {
        result = run_memcpy(b);
    } else if (!strcmp(stage, "pack") || !strcmp(stage, "concat") || !strcmp(stage, "digest")) {
        if (!b->batches)
            make_batches(b);
        struct bench other = *b;
        if (!strcmp(stage, "concat")) {
            read_config(&other.config, a, "concat");
            other.config.max_docs_per_row = b->config.max_docs_per_row; /* as the batches are cut */
        }
        result = run_pack(&other, !strcmp(stage, "digest"));
    } else {
        refuse("the stages are memcpy, plan, pack, concat, digest and seek");
    }
    json_t *entry = as_json(&result, b);
    if (!strcmp(stage, "digest"))
        json_object_set_new(entry, "digest", json_string(rp_hash128_hex(result.digest, digest)));
    json_object_set_new(report, stage, entry);
}

int main(int argc, char **argv)
{
    struct arguments a = {.slots = 1, .stages = argc > 1 ? argv[1] : "", .keys = argv + 2};
    for (int i = 2; i < argc; i++) {
        if (!strncmp(argv[i], "row=", 4))
            a.row = strtoull(argv[i] + 4, NULL, 10);
        else if (!strncmp(argv[i], "slots=", 6))
            a.slots = strtoull(argv[i] + 6, NULL, 10);
        else if (!strncmp(argv[i], "state=", 6))
            a.state = argv[i] + 6;
        else
            a.keys[a.key_count++] = argv[i];
    }
    struct bench b = {.batch_count = rp_max_u64(a.slots, 1)};
    struct rp_error error;
    read_config(&b.config, &a, NULL);
    check(rp_stream_open_corpus(&b.corpus, &b.config, false, &error), &error);
    if (b.config.max_docs_per_row == 0) {
        struct rp_docs_per_row found;
        check(rp_stream_docs_per_row(&found, &b.config, b.corpus, &error), &error);
        b.config.max_docs_per_row = found.standard;
    }
    json_t *report = json_object();
    char *stages = strdup(a.stages), *rest = stages;
    for (char *stage; (stage = strsep(&rest, ",")) != NULL;)
        run_stage(&b, stage, &a, report);
    json_dumpf(report, stdout, JSON_INDENT(2));
    putchar('\n');
    return 0;
}
