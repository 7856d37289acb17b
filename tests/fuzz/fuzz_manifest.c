/* SPDX-License-Identifier: Apache-2.0 */
/* A manifest: u8 (1: the bytes are the file, 0: edits of a good one; 2: hashes made right again),
 * then the bytes. It has two sources, one of them with two segments.
 *
 * Hashes not mended: it is refused, or every answer is that of the good one or an error that names
 * the damage. Mended: what is accepted has each part inside the file, and each document lies inside
 * its token file or is named as damaged. */
#include "corpus/corpus_struct.h"
#include "corpus/manifest/build.h"
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

static void build(const struct rp_manifest_build_options *options)
{
    static const struct rp_progress silent;
    struct rp_manifest_build *made;
    struct rp_manifest_built built;
    FUZZ_REQUIRE(rp_manifest_build_open(&made, options, NULL) == 0);
    for (uint64_t i = 0; i < rp_manifest_build_shards(made); i++)
        FUZZ_REQUIRE(rp_manifest_build_learn(made, i, &silent, NULL) == 0);
    FUZZ_REQUIRE(rp_manifest_build_place(made, NULL) == 0);
    for (uint64_t i = 0; i < rp_manifest_build_shards(made); i++)
        FUZZ_REQUIRE(rp_manifest_build_fill(made, i, NULL) == 0);
    FUZZ_REQUIRE(rp_manifest_build_finish(made, &built, NULL) == 0);
    rp_manifest_build_close(made);
}

static void build_good(void)
{
    char path[64], paths[SHARDS][64], globs[2][64];
    const char *first[] = {paths[0], paths[1]}, *second[] = {paths[2]};
    const char *glob_first[] = {globs[0]}, *glob_second[] = {globs[1]};
    struct rp_source_spec sources[] = {
        {.name = "a", .shards = first, .shard_count = 1, .format = RP_FORMAT_RAW},
        {.name = "b", .shards = second, .shard_count = 1, .format = RP_FORMAT_RAW}};
    const struct rp_manifest_patterns of[] = {{glob_first, 1}, {glob_second, 1}};
    sources[0].type = sources[1].type = RP_TOKEN_U16;
    snprintf(path, sizeof path, "%s/m.rpm", fuzz_scratch);
    snprintf(paths[0], sizeof paths[0], "%s/a0.bin", fuzz_scratch);
    snprintf(paths[1], sizeof paths[1], "%s/a1.bin", fuzz_scratch);
    snprintf(paths[2], sizeof paths[2], "%s/b.bin", fuzz_scratch);
    snprintf(globs[0], sizeof globs[0], "%s/a*.bin", fuzz_scratch);
    snprintf(globs[1], sizeof globs[1], "%s/b.bin", fuzz_scratch);
    const struct rp_manifest_build_options options = {
        .path = path, .sources = sources, .patterns = of, .source_count = 2};
    build(&options);
    sources[0].shard_count = 2;
    build(&options);
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
    const struct rp_corpus_spec spec = {.sources = sources, .source_count = 2, .manifest = path};
    return rp_corpus_open(corpus, &spec, error);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct rp_error error = {0};
    fuzz_enter_scratch();
    put_shards();
    build_good();
    FUZZ_REQUIRE(open_image(&wanted, fuzz_file("good.rpm", good, good_bytes), &error) == 0);
    return 0;
}

/* ---- hashes ---------------------------------------------------------------------------------- */

/* The pages of the segment of an entry of the head. */
static void mend_segment(uint8_t *bytes, size_t count, uint8_t *entry)
{
    const struct rp_manifest_shape shape = {.documents = rp_load_u64(entry + 8),
                                            .spans = rp_load_u64(entry + 24),
                                            .blocks = rp_load_u64(entry + 32),
                                            .path_bytes = rp_load_u64(entry + 40),
                                            .shards = rp_load_u32(entry + 48),
                                            .has_spans = rp_load_u32(entry + 52) & 1};
    struct rp_manifest_parts parts;
    uint64_t offset = rp_load_u64(entry);
    if (offset % RP_BLOCK_BYTES || !rp_manifest_find_parts(&shape, &parts) ||
        !rp_range_inside(offset, rp_manifest_parts_bytes(&parts), count))
        return;
    uint64_t pages = parts.bytes / RP_BLOCK_BYTES, hashes[IMAGE_BYTES_MAX / RP_BLOCK_BYTES + 1];
    rp_tree_hash_pages(bytes + offset, 0, pages, hashes);
    struct rp_hash128 root = rp_tree_finish(pages, hashes);
    memcpy(bytes + offset + parts.bytes, hashes, 8 * pages);
    memcpy(entry + 64, &root, sizeof root);
}

static void mend(uint8_t *bytes, size_t count)
{
    for (unsigned which = 0; which < 2 && count >= RP_BLOCK_BYTES; which++) {
        uint8_t *slot = bytes + RP_MANIFEST_SLOT_AT(which);
        uint64_t at = rp_load_u64(slot + 8), head_bytes = rp_load_u64(slot + 16);
        if (rp_load_u64(slot) == 0 || head_bytes < RP_MANIFEST_HEAD_BYTES ||
            !rp_range_inside(at, head_bytes, count))
            continue;
        uint64_t sources = rp_load_u32(bytes + at + 8), segments = rp_load_u32(bytes + at + 12);
        uint64_t first = RP_MANIFEST_HEAD_BYTES + RP_MANIFEST_ENTRY_BYTES * sources;
        for (uint64_t i = 0; i < segments && first + RP_MANIFEST_ENTRY_BYTES * (i + 1) < head_bytes;
             i++)
            mend_segment(bytes, count, bytes + at + first + RP_MANIFEST_ENTRY_BYTES * i);
        struct rp_hash128 hash = rp_hash128(bytes + at, head_bytes);
        memcpy(slot + 32, &hash, sizeof hash);
        hash = rp_hash128(slot, 48);
        memcpy(slot + 48, &hash, sizeof hash);
    }
}

/* ---- what must hold -------------------------------------------------------------------------- */

/* The image may say that there are more documents than a run of the fuzzer can ask for. */
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
        const char *path = rp_source_row(source, d, &row);
        FUZZ_REQUIRE(path[0] != 0);
        if (!fuzz_accepted(code, &error))
            continue;
        FUZZ_REQUIRE(length == extent.tokens && extent.shard < rp_corpus_shard_count(corpus));
        const struct rp_shard *shard = rp_corpus_shard(corpus, extent.shard);
        FUZZ_REQUIRE(
            rp_range_inside(extent.byte_offset, extent.tokens * extent.width, shard->bytes));
        for (uint64_t b = 0; b < rp_min_u64(shard->block_count, 4); b++)
            (void)*(const volatile uint64_t *)&shard->block_hashes[b];
        if (is_mended)
            continue;
        FUZZ_REQUIRE(rp_source_extent(other, d, &expected, &error) == 0);
        FUZZ_REQUIRE(memcmp(&extent, &expected, sizeof extent) == 0);
        FUZZ_REQUIRE(!strcmp(path, rp_source_row(other, d, &same_row)) && row == same_row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned mode;
    size_t bytes = fuzz_image(&input, &mode, image, sizeof image, good, good_bytes);
    if (mode & FUZZ_MENDED)
        mend(image, bytes);
    struct rp_error error = {0};
    struct rp_corpus *corpus;
    const char *path = fuzz_file("m.rpm", image, bytes);
    bool accepted = fuzz_accepted(open_image(&corpus, path, &error), &error);
    bool same = bytes == good_bytes && memcmp(image, good, bytes) == 0;
    FUZZ_REQUIRE(accepted || !same);
    if (!accepted)
        return 0;
    for (uint32_t s = 0; s < 2; s++)
        check_source(corpus, s, mode & FUZZ_MENDED);
    rp_corpus_close(corpus);
    return 0;
}
