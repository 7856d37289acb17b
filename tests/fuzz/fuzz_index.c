/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a corpus: u8 (1: the bytes are the file, 0: edits of a good one; 2: hashes made
 * right again), then the bytes. It has two sources, one of them with two segments and a column.
 *
 * Hashes not mended: it is refused, or every answer, and every value of the column, equals the
 * good one's or is an error that names the damage. Mended: what is accepted has each part and each
 * column inside the file, and each document is inside its token file or is named as damaged. */
#include "../fakes/index_image.h"
#include "corpus/corpus_struct.h"
#include "corpus/index/build.h"
#include "corpus/index/write.h"
#include "fuzz.h"

#define TOKENS 700u
#define SHARDS 3u
#define IMAGE_BYTES_MAX 40000u

static uint8_t good[IMAGE_BYTES_MAX], image[IMAGE_BYTES_MAX];
static size_t good_bytes;
static struct rp_corpus *wanted;

static const char *const patterns[] = {FUZZ_FOLDER "/a*.bin", FUZZ_FOLDER "/b.bin"};

static void put_shards(void)
{
    uint16_t tokens[TOKENS];
    for (unsigned shard = 0; shard < SHARDS; shard++) {
        static const char *const names[SHARDS] = {"a0.bin", "a1.bin", "b.bin"};
        char path[64];
        for (unsigned i = 0; i < TOKENS; i++)
            tokens[i] = (uint16_t)(i % (90 + shard));
        snprintf(path, sizeof path, "%s/%s", fuzz_scratch, names[shard]);
        fuzz_put(path, tokens, sizeof tokens);
    }
}

static void build(const struct rp_indexing_options *options)
{
    static const struct rp_progress silent;
    struct rp_indexing *made;
    struct rp_indexed built;
    FUZZ_REQUIRE(rp_indexing_open(&made, options, NULL) == 0);
    for (uint64_t i = 0; i < rp_indexing_shards(made); i++)
        FUZZ_REQUIRE(rp_indexing_scan(made, i, &silent, NULL) == 0);
    FUZZ_REQUIRE(rp_indexing_lay_out(made, NULL) == 0);
    for (uint64_t i = 0; i < rp_indexing_shards(made); i++)
        FUZZ_REQUIRE(rp_indexing_write(made, i, NULL) == 0);
    for (uint64_t i = 0; i < rp_indexing_parts(made); i++)
        rp_indexing_hash(made, i);
    FUZZ_REQUIRE(rp_indexing_finish(made, &built, NULL) == 0);
    rp_indexing_close(made);
}

static uint16_t value_of(uint64_t document)
{
    return (uint16_t)(document * 31 + 7);
}

static void build_good(void)
{
    char path[64], paths[SHARDS][64], globs[2][64];
    const char *first[] = {paths[0], paths[1]}, *second[] = {paths[2]};
    const char *glob_first[] = {globs[0]}, *glob_second[] = {globs[1]};
    struct rp_source_spec sources[] = {
        {.name = "a", .shards = first, .shard_count = 1, .format = RP_FORMAT_RAW},
        {.name = "b", .shards = second, .shard_count = 1, .format = RP_FORMAT_RAW}};
    const struct rp_index_patterns of[] = {{glob_first, 1}, {glob_second, 1}};
    sources[0].type = sources[1].type = RP_TOKEN_U16;
    snprintf(path, sizeof path, "%s/m.rpi", fuzz_scratch);
    snprintf(paths[0], sizeof paths[0], "%s/a0.bin", fuzz_scratch);
    snprintf(paths[1], sizeof paths[1], "%s/a1.bin", fuzz_scratch);
    snprintf(paths[2], sizeof paths[2], "%s/b.bin", fuzz_scratch);
    snprintf(globs[0], sizeof globs[0], "%s/a*.bin", fuzz_scratch);
    snprintf(globs[1], sizeof globs[1], "%s/b.bin", fuzz_scratch);
    const struct rp_indexing_options options = {
        .path = path, .sources = sources, .patterns = of, .source_count = 2};
    build(&options);
    sources[0].shard_count = 2;
    build(&options);
    uint64_t values[TOKENS];
    for (unsigned d = 0; d < TOKENS; d++)
        values[d] = value_of(d);
    struct rp_index *index;
    const struct rp_index_open_options found = {.path = path};
    const struct rp_index_new_column column = {0, "score", RP_INDEX_COLUMN_U16, values};
    FUZZ_REQUIRE(rp_index_open(&index, &found, NULL) == 0);
    FUZZ_REQUIRE(rp_index_append_columns(index, &column, 1, NULL, NULL) == 0);
    rp_index_close(index);
    good_bytes = fuzz_get(path, good, sizeof good);
}

static int open_image(struct rp_corpus **corpus, const char *path, struct rp_error *error)
{
    const struct rp_source_spec sources[] = {{.name = "a",
                                              .shards = &patterns[0],
                                              .shard_count = 1,
                                              .format = RP_FORMAT_RAW,
                                              .type = RP_TOKEN_U16},
                                             {.name = "b",
                                              .shards = &patterns[1],
                                              .shard_count = 1,
                                              .format = RP_FORMAT_RAW,
                                              .type = RP_TOKEN_U16}};
    const struct rp_corpus_spec spec = {.sources = sources, .source_count = 2, .index = path};
    return rp_corpus_open(corpus, &spec, error);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct rp_error error = {0};
    fuzz_enter_scratch();
    put_shards();
    build_good();
    FUZZ_REQUIRE(open_image(&wanted, fuzz_file("good.rpi", good, good_bytes), &error) == 0);
    return 0;
}

/* ---- requirements ---------------------------------------------------------------------------- */

/* The image may claim more documents than a run of the fuzzer can look up. */
#define ASKED_MAX 4000u

static void check_source(const struct rp_corpus *corpus, uint32_t s, bool is_mended)
{
    const struct rp_source *source = rp_corpus_source(corpus, s);
    const struct rp_source *other = rp_corpus_source(wanted, s);
    if (!is_mended)
        FUZZ_REQUIRE(rp_source_documents(source) == rp_source_documents(other));
    for (uint64_t d = 0; d < rp_min_u64(rp_source_documents(source), ASKED_MAX); d++) {
        struct rp_extent extent, expected;
        struct rp_error error = {0};
        uint64_t length = rp_source_length(source, d), row, same_row;
        int code = rp_source_extent(source, d, &extent, &error);
        const char *path = rp_source_provenance(source, d, &row);
        FUZZ_REQUIRE(path[0] != 0);
        if (!fuzz_accepted(code, &error))
            continue;
        FUZZ_REQUIRE(length == extent.tokens && extent.shard < rp_corpus_data_count(corpus));
        const struct rp_shard *shard = rp_corpus_shard(corpus, extent.shard);
        FUZZ_REQUIRE(
            rp_range_inside(extent.byte_offset, extent.tokens * extent.width, shard->bytes));
        for (uint64_t b = 0; b < rp_min_u64(shard->block_count, 4); b++)
            (void)*(const volatile uint64_t *)&shard->block_hashes[b];
        if (is_mended)
            continue;
        FUZZ_REQUIRE(rp_source_extent(other, d, &expected, &error) == 0);
        FUZZ_REQUIRE(memcmp(&extent, &expected, sizeof extent) == 0);
        FUZZ_REQUIRE(!strcmp(path, rp_source_provenance(other, d, &same_row)) && row == same_row);
    }
}

static void check_columns(const struct rp_index *index, bool is_mended)
{
    FUZZ_REQUIRE(is_mended || index->column_count <= 1); /* the older head has none */
    for (uint32_t i = 0; i < index->column_count; i++) {
        const struct rp_index_column *column = &index->columns[i];
        uint32_t width = rp_index_column_width(column->type);
        for (uint64_t d = 0; d < rp_min_u64(column->values, ASKED_MAX); d++) {
            const uint8_t *value = rp_index_value(column, d);
            FUZZ_REQUIRE(!value || rp_range_inside((uint64_t)(value - index->map.data), width,
                                                   index->map.bytes));
            if (value && is_mended)
                (void)*(const volatile uint8_t *)(value + width - 1);
            else if (value)
                FUZZ_REQUIRE(rp_load_u16(value) == value_of(d));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned mode;
    size_t bytes = fuzz_image(&input, &mode, image, sizeof image, good, good_bytes);
    if (mode & FUZZ_MENDED)
        image_mend(image, bytes);
    struct rp_error error = {0};
    struct rp_corpus *corpus;
    const char *path = fuzz_file("m.rpi", image, bytes);
    bool accepted = fuzz_accepted(open_image(&corpus, path, &error), &error);
    bool same = bytes >= good_bytes && memcmp(image, good, good_bytes) == 0;
    FUZZ_REQUIRE(accepted || !same);
    if (!accepted)
        return 0;
    for (uint32_t s = 0; s < 2; s++)
        check_source(corpus, s, mode & FUZZ_MENDED);
    check_columns(corpus->index, mode & FUZZ_MENDED);
    rp_corpus_close(corpus);
    return 0;
}
