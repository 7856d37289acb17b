/* SPDX-License-Identifier: Apache-2.0 */
/* Sidecars: every damaged bit and every truncation is noticed, a stale one is refused, an old one
 * stays until the new one is whole, and a changed token is located. */
#include "corpus_files.h"

#include <errno.h>

#include "corpus/index/index.h"
#include "../fakes/index_image.h"
#include "descriptor_zero.h"

#define TOKENS 5000
#define EOS 9

static uint16_t tokens[TOKENS];

static void put_shard(void)
{
    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i % 37);
    put_file("s.bin", tokens, sizeof tokens);
}

static void put_sidecar(void)
{
    struct rp_error error;
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    put_shard();
    assert_int_equal(
        rp_sidecar_build("s.bin", &(struct rp_sidecar_build_options){.hints = &hints}, &error), 0);
}

static int open_it(struct rp_error *error)
{
    struct rp_corpus *corpus;
    int code = open_one(&corpus, "s.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, error);
    rp_corpus_close(corpus);
    return code;
}

#define DOCUMENTS (TOKENS / 37 + 1)
#define BLOCKS 3
#define TABLE_BYTES (8 * DOCUMENTS + 4 * DOCUMENTS) /* a multiple of 8 */

/* One source, one segment, one shard: INDEX.md, number by number. */
static void test_layout(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    put_sidecar();
    size_t count = get_file("s.bin.rpi", bytes, sizeof bytes);
    uint64_t words[8];
    assert_memory_equal(bytes, "\x89RPI\r\n\x1a\n", 8);
    assert_int_equal(rp_load_u64(bytes + 8), 1 | (uint64_t)4096 << 32);
    uint8_t *slot = bytes + 128, *head = bytes + rp_load_u64(slot + 8);
    assert_int_equal(rp_load_u64(slot), 1);
    assert_int_equal(head + rp_load_u64(slot + 16) - bytes, count);
    struct rp_hash128 root = rp_hash128(head, rp_load_u64(slot + 16));
    assert_memory_equal(slot + 32, &root, 16);
    const uint8_t *source = head + 128, *segment = source + 128;
    assert_int_equal(rp_load_u64(source), DOCUMENTS);
    assert_int_equal(rp_load_u64(source + 8), TOKENS);
    assert_int_equal(rp_load_u64(source + 24), sizeof tokens);
    memcpy(words, segment, sizeof words);
    assert_int_equal(words[0], 256);
    assert_int_equal(words[1], DOCUMENTS);
    assert_int_equal(words[4], BLOCKS);
    assert_int_equal(words[5], 1);                     /* its path is empty */
    assert_int_equal(words[6], 1 | (uint64_t)1 << 32); /* a shard; extents, no spans */
    const uint8_t *data = bytes + 256, *record = data + TABLE_BYTES;
    assert_int_equal(rp_load_u64(data + 8), 2 * (EOS + 1));
    assert_int_equal(rp_load_u32(data + 8 * DOCUMENTS + 4), 37);
    assert_int_equal(rp_load_u64(record), sizeof tokens);
    assert_int_equal(rp_load_u64(record + 8), 0); /* the same for any file with this content */
    assert_int_equal(rp_load_u64(record + 48), RP_FORMAT_RAW | (uint64_t)RP_TOKEN_U16 << 32);
    assert_int_equal(rp_load_u64(record + 56), EOS);
    assert_int_equal(rp_load_u64(record + 72), 36);
    uint64_t hash = rp_hash64(data, TABLE_BYTES);
    root = rp_hash128(&hash, 8); /* only of the table, which the fingerprint covers */
    assert_memory_equal(record + 224, &root, 16);
    /* documents before the shard and of it; buckets 0 to 3 of 136 >> 6, and one for the end */
    const uint8_t *first = record + 320, *blocks = first + 16 + 24;
    assert_int_equal(rp_load_u64(first + 8), DOCUMENTS);
    hash = rp_hash64((const uint8_t *)tokens + 8192, sizeof tokens - 8192);
    assert_memory_equal(blocks + 16, &hash, 8);
    root = rp_hash128(blocks, 8 * BLOCKS);
    assert_memory_equal(record + 80, &root, 16);
    size_t data_bytes = (size_t)(blocks - data) + 8 * BLOCKS + 8;
    hash = rp_hash64(data, data_bytes);
    assert_memory_equal(data + data_bytes, &hash, 8);
    root = rp_hash128(&hash, 8);
    assert_memory_equal(segment + 64, &root, 16);
    assert_ptr_equal(data + data_bytes + 8, head);
}

static int open_sidecar(const char *path, const char *token_path, struct rp_error *error)
{
    struct rp_index *index;
    struct rp_index_record record;
    int code = rp_sidecar_open(&index, &record, path, token_path, error);
    rp_index_close(index);
    return code;
}

static void test_every_bit_and_every_truncation(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_error error;
    put_sidecar();
    size_t count = get_file("s.bin.rpi", bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * count; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        put_file("s.bin.rpi", bytes, count);
        if (open_sidecar("s.bin.rpi", "s.bin", &error) >= 0)
            fail_msg("bit %zu of byte %zu is not checked", bit % 8, bit / 8);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < count; cut++) {
        put_file("s.bin.rpi", bytes, cut);
        assert_true(open_it(&error) < 0);
        assert_says(&error, "s.bin.rpi|ringpack index s.bin");
    }
    put_file("s.bin.rpi", bytes, count + 1);
    assert_int_equal(open_it(&error), 0); /* as an append leaves it that did not finish */
    put_file("s.bin.rpi", bytes, count);
    assert_int_equal(open_it(&error), 0); /* the control */
}

static void check_answers(struct rp_error *error)
{
    struct rp_corpus *corpus;
    if (open_one(&corpus, "s.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, error) < 0)
        return;
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    assert_int_equal(rp_source_documents(source), DOCUMENTS);
    for (uint64_t d = 0; d < rp_source_documents(source); d++) {
        struct rp_extent extent;
        if (rp_source_extent(source, d, &extent, error) == 0)
            assert_true(extent.byte_offset + extent.tokens * extent.width <= sizeof tokens);
    }
    rp_corpus_close(corpus);
}

/* Damage with a right hash: a writer with a bug, or a forger. Each word of the slot, the head and
 * the record. */
static void test_forged_values_never_reach_memory(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16], forged[1 << 16];
    struct rp_error error;
    put_sidecar();
    size_t count = get_file("s.bin.rpi", bytes, sizeof bytes);
    size_t head = (size_t)(image_head(bytes, 1) - bytes);
    const size_t parts[][2] = {
        {128, 160}, {head, count}, {256 + TABLE_BYTES, 256 + TABLE_BYTES + 320}};
    static const uint64_t values[] = {
        0, 1, 3, UINT64_MAX, UINT64_MAX / 8, UINT64_MAX / 8 + 1, INT64_MAX, 1u << 20};
    for (size_t p = 0; p < 3; p++)
        for (size_t at = parts[p][0]; at + 8 <= parts[p][1]; at += 4)
            for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                memcpy(forged, bytes, count);
                memcpy(forged + at, &values[v], at % 8 ? 4 : 8);
                image_mend(forged, count);
                put_file("s.bin.rpi", forged, count);
                check_answers(&error);
            }
}

/* With right hashes: refused where it is used. */
static void test_a_document_outside_of_the_file(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_corpus *corpus;
    struct rp_extent extent;
    struct rp_error error;
    put_sidecar();
    size_t count = get_file("s.bin.rpi", bytes, sizeof bytes);
    const uint64_t far = 1u << 30, near = 2 * (EOS + 1);
    const uint32_t long_one = UINT32_MAX;
    for (int i = 0; i < 2; i++) { /* its place; its length */
        memcpy(bytes + 256 + 8, i == 0 ? &far : &near, 8);
        memcpy(bytes + 256 + 8 * DOCUMENTS + 4,
               i == 0 ? bytes + 256 + 8 * DOCUMENTS + 8 : (const uint8_t *)&long_one, 4);
        image_mend(bytes, count);
        put_file("s.bin.rpi", bytes, count);
        assert_int_equal(open_one(&corpus, "s.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
        const struct rp_source *source = rp_corpus_source(corpus, 0);
        assert_int_equal(rp_source_extent(source, 1, &extent, &error), -RP_E_CORRUPT);
        assert_says(&error, "document 1|s.bin|outside");
        assert_int_equal(rp_source_extent(source, 2, &extent, &error), 0);
        assert_int_equal(extent.tokens, 37);
        rp_corpus_close(corpus);
    }
}

static void test_a_count_of_documents_that_wraps_is_refused(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_error error;
    put_sidecar();
    size_t count = get_file("s.bin.rpi", bytes, sizeof bytes);
    for (uint32_t flags = 1; flags <= 3; flags += 2) {
        uint8_t *segment = image_entry(image_head(bytes, 1), 1);
        memset(segment + 8, 0xff, 8); /* documents */
        memcpy(segment + 52, &flags, 4);
        image_mend(bytes, count);
        put_file("s.bin.rpi", bytes, count);
        assert_int_equal(open_sidecar("s.bin.rpi", "s.bin", &error), -RP_E_CORRUPT);
        assert_says(&error, "end of a segment|ringpack index s.bin");
    }
}

/* Versions before had files of their own: refused by name, with the command, and only until there
 * is an index. */
static void test_older_files_are_refused(void **state)
{
    (void)state;
    static const uint8_t sidecar[300] = "\x89RPX\r\n\x1a\n\2";
    static const uint8_t manifest[5000] = "\x89RPM\r\n\x1a\n\1";
    struct rp_error error;
    struct rp_corpus *corpus;
    put_sidecar();
    assert_int_equal(unlink("s.bin.rpi"), 0);
    put_file("s.bin.rpx", sidecar, sizeof sidecar);
    assert_int_equal(open_one(&corpus, "s.bin", RP_FORMAT_RAW, RP_TOKEN_U16, EOS, &error),
                     -RP_E_VERSION);
    assert_says(&error, "s.bin.rpx|older ringpack|ringpack index s.bin");
    put_sidecar();
    assert_int_equal(open_one(&corpus, "s.bin", RP_FORMAT_RAW, RP_TOKEN_U16, EOS, &error), 0);
    rp_corpus_close(corpus);
    assert_int_equal(unlink("s.bin.rpx"), 0);
    put_file("old.rpm", manifest, sizeof manifest);
    const char *shards[] = {"s.bin"};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    source.shards = shards;
    source.shard_count = 1;
    const struct rp_corpus_spec spec = {.sources = &source, .source_count = 1, .index = "old.rpm"};
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), -RP_E_VERSION);
    assert_says(&error, "old.rpm|older ringpack|ringpack index -c");
}

/* A sidecar too large to be copied: a wrong byte in its table is met where its page is used, by the
 * plan (a length) or by who reads (a place), and not at the start. */
static void test_pages_of_a_large_table_are_verified_at_first_use(void **state)
{
    (void)state;
    enum { MANY = 6 * 4096 };
    static uint16_t many[2 * MANY];
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    struct rp_corpus *corpus;
    struct rp_error error;
    for (size_t i = 0; i < 2 * MANY; i++)
        many[i] = i % 2 ? EOS : 1;
    put_file("many.bin", many, sizeof many);
    const uint64_t table = 4096;
    const uint64_t wrong[] = {table + 8 * 20000, table + 8 * MANY + 4 * 9000};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rp_sidecar_build("many.bin",
                                          &(struct rp_sidecar_build_options){.hints = &hints},
                                          &error),
                         0);
        FILE *file = fopen("many.bin.rpi", "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, (long)wrong[i], SEEK_SET), 0);
        assert_int_equal(fputc(77, file), 77);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(open_one(&corpus, "many.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                         0);
        const struct rp_source *source = rp_corpus_source(corpus, 0);
        uint64_t bad = 0, documents[64], lengths[64];
        for (uint64_t d = 0; d < MANY; d += 64) {
            for (uint64_t k = 0; k < 64; k++)
                documents[k] = d + k;
            rp_source_length_many(source, documents, 64, lengths);
            for (uint64_t k = 0; k < 64; k++) {
                struct rp_extent extent;
                assert_true(lengths[k] == 2 || (i == 1 && lengths[k] == UINT64_MAX));
                bad += rp_source_extent(source, d + k, &extent, &error) < 0;
            }
        }
        assert_int_equal(bad, i == 0 ? 512 : 1024); /* a page of them */
        assert_says(&error, "many.bin|ringpack index many.bin");
        rp_corpus_close(corpus);
    }
}

/* A large sidecar's block table is not read at the start, so that this is no slower with more
 * tokens. A wrong hash in it is found where it is used. */
static void test_a_large_block_table_is_read_when_it_is_used(void **state)
{
    (void)state;
    enum { MANY = 5000, WRONG = 2501 };
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    struct rp_corpus *corpus;
    struct rp_error error;
    put_file("large.bin", "\1", 1);
    assert_int_equal(truncate("large.bin", (off_t)MANY * RP_BLOCK_BYTES), 0);
    assert_int_equal(
        rp_sidecar_build("large.bin", &(struct rp_sidecar_build_options){.hints = &hints}, &error),
        0);
    FILE *file = fopen("large.bin.rpi", "r+b");
    assert_non_null(file);
    /* a document, its record, two counts and three buckets are before the hashes */
    assert_int_equal(fseek(file, 4096 + 16 + 320 + 16 + 16 + 8 * WRONG, SEEK_SET), 0);
    assert_int_equal(fputc(1, file), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(open_one(&corpus, "large.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    assert_int_equal(rp_shard_check_sidecar(rp_corpus_shard(corpus, 0), &error), -RP_E_CORRUPT);
    assert_says(&error, "large.bin.rpi|block hashes");
    assert_non_null(strstr(error.hint, "ringpack index large.bin"));
    rp_corpus_close(corpus);
    assert_int_equal(
        rp_sidecar_build("large.bin", &(struct rp_sidecar_build_options){.hints = &hints}, &error),
        0);
    assert_int_equal(open_one(&corpus, "large.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    assert_int_equal(rp_shard_check_sidecar(rp_corpus_shard(corpus, 0), &error), 0);
    rp_corpus_close(corpus);
}

static void test_stale_is_refused(void **state)
{
    (void)state;
    struct rp_error error;
    put_sidecar();
    tokens[4321]++;
    put_file("s.bin", tokens, sizeof tokens);
    assert_int_equal(open_it(&error), -RP_E_CHANGED);
    assert_says(&error, "block at byte 8192|ringpack index s.bin");
    tokens[4321]--;
    put_file("s.bin", tokens, sizeof tokens - 2);
    assert_int_equal(open_it(&error), -RP_E_CHANGED);
    assert_says(&error, "10000|9998");
    put_file("s.bin", tokens, sizeof tokens);
    struct rp_corpus *corpus;
    assert_int_equal(open_one(&corpus, "s.bin", RP_FORMAT_RAW, RP_TOKEN_U16, EOS + 1, &error),
                     -RP_E_CHANGED);
    assert_says(&error, "eos|expected 9|found 10");
    assert_int_equal(open_it(&error), 0);

    const int32_t lengths[] = {3, 5}, others[] = {4, 4};
    put_megatron("m", 8, 2, lengths, 2);
    assert_int_equal(rp_sidecar_build("m", NULL, &error), 0);
    assert_int_equal(open_one(&corpus, "m", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    rp_corpus_close(corpus);
    put_megatron("m", 8, 2, others, 2); /* the same tokens, cut elsewhere */
    assert_int_equal(open_one(&corpus, "m", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_CHANGED);
    assert_says(&error, "hash of the index");
    assert_int_equal(rp_sidecar_build("m", NULL, &error), 0); /* index replaces it */
    assert_int_equal(open_one(&corpus, "m", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    rp_corpus_close(corpus);
}

static void test_block_hashes_locate_a_changed_token(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_corpus *corpus;
    put_sidecar();
    assert_int_equal(open_one(&corpus, "s.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    const struct rp_shard *shard = rp_corpus_shard(corpus, 0);
    assert_int_equal(shard->block_count, 3);
    for (size_t changed = 0; changed < TOKENS; changed += 611) {
        tokens[changed] ^= 1;
        for (uint64_t b = 0; b < shard->block_count; b++) {
            size_t offset = (size_t)b * RP_BLOCK_BYTES;
            size_t length = sizeof tokens - offset < RP_BLOCK_BYTES ? sizeof tokens - offset
                                                                    : RP_BLOCK_BYTES;
            bool same = rp_hash64((const uint8_t *)tokens + offset, length) ==
                        shard->block_hashes[b];
            assert_int_equal(same, b != changed * 2 / RP_BLOCK_BYTES);
        }
        tokens[changed] ^= 1;
    }
    rp_corpus_close(corpus);
}

static void test_index_directory(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_corpus *corpus;
    const char *shards[] = {"a/s.bin", "b/s.bin"};
    struct rp_source_spec source = {
        .name = "s", .weight = 1, .shards = shards, .shard_count = 2, .eos = -1};
    struct rp_corpus_spec spec = {.sources = &source, .source_count = 1, .index_dir = "index/deep"};
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    assert_int_equal(mkdir("a", 0700) | mkdir("b", 0700), 0);
    put_file("a/s.bin", "\1\0\2\0", 4);
    put_file("b/s.bin", "\1\0\2\0\3\0", 6);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rp_sidecar_build(shards[i],
                                          &(struct rp_sidecar_build_options){
                                              .hints = &hints, .index_dir = "index/deep"},
                                          &error),
                         0);
    assert_int_not_equal(access("a/s.bin.rpi", F_OK), 0);
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error),
                     0); /* equal base names are kept apart */
    assert_int_equal(rp_source_tokens(rp_corpus_source(corpus, 0)), 5);
    rp_corpus_close(corpus);
}

static void test_missing_token_file(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_corpus *whole, *gone;
    const char *shards[] = {"s.bin", "m", "long"}; /* not every block of "long" is sampled */
    const int32_t lengths[] = {3, 5}, many[] = {70 * RP_BLOCK_BYTES};
    struct rp_source_spec source = {
        .name = "s", .weight = 1, .shards = shards, .shard_count = 3, .eos = -1};
    struct rp_corpus_spec spec = {.sources = &source, .source_count = 1};
    put_sidecar();
    put_megatron("m", 8, 2, lengths, 2);
    assert_int_equal(rp_sidecar_build("m", NULL, &error), 0);
    put_megatron("long", 1, 1, many, 1);
    assert_int_equal(rp_sidecar_build("long", NULL, &error), 0);
    assert_int_equal(rp_corpus_open(&whole, &spec, &error), 0);
    assert_int_equal(unlink("s.bin") | unlink("m.bin") | unlink("long.bin"), 0);
    assert_true(rp_corpus_open(&gone, &spec, &error) < 0);
    spec.allow_missing_data = true;
    assert_int_equal(rp_corpus_open(&gone, &spec, &error), 0);
    struct rp_fingerprint a = rp_corpus_fingerprint(whole), b = rp_corpus_fingerprint(gone);
    assert_true(rp_hash128_equal(a.sampled, b.sampled) && rp_hash128_equal(a.full, b.full));
    assert_int_equal(rp_corpus_shard(gone, 0)->bytes, sizeof tokens);
    assert_int_equal(rp_source_documents(rp_corpus_source(gone, 0)),
                     rp_source_documents(rp_corpus_source(whole, 0)));
    rp_corpus_close(gone);
    rp_corpus_close(whole);
    assert_int_equal(unlink("s.bin.rpi"), 0);
    assert_true(rp_corpus_open(&gone, &spec, &error) < 0); /* unknown without a sidecar */
}

static void test_descriptor_zero_is_as_good_as_any(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_inspection inspection;
    const struct rp_inspect_options scanning = {.scan_tokens = true};
    const int32_t lengths[] = {3, 5};
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    put_shard();
    put_megatron("m", 8, 2, lengths, 2);
    int aside = free_zero();
    assert_int_equal(
        rp_sidecar_build("s.bin", &(struct rp_sidecar_build_options){.hints = &hints}, &error), 0);
    assert_int_equal(open_it(&error), 0);
    assert_int_equal(rp_inspect("s.bin", &scanning, &inspection, &error), 0);
    assert_int_equal(inspection.token_max, 36);
    assert_int_equal(rp_sidecar_build("m", NULL, &error), 0);
    assert_int_equal(rp_inspect("m", &scanning, &inspection, &error), 0);
    assert_int_equal(inspection.token_max, 7);
    give_back_zero(aside);
}

/* The sidecar knows that there was one; its name is printed, not an address. */
static void test_missing_index_is_named(void **state)
{
    (void)state;
    const int32_t lengths[] = {3, 5};
    struct rp_corpus *corpus;
    struct rp_error error;
    put_megatron("m", 8, 2, lengths, 2);
    assert_int_equal(rp_sidecar_build("m", NULL, &error), 0);
    assert_int_equal(unlink("m.idx"), 0);
    assert_int_equal(open_one(&corpus, "m.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -ENOENT);
    assert_says(&error, "m.idx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_older_files_are_refused),
        cmocka_unit_test(test_a_document_outside_of_the_file),
        cmocka_unit_test(test_pages_of_a_large_table_are_verified_at_first_use),
        cmocka_unit_test(test_every_bit_and_every_truncation),
        cmocka_unit_test(test_forged_values_never_reach_memory),
        cmocka_unit_test(test_a_count_of_documents_that_wraps_is_refused),
        cmocka_unit_test(test_a_large_block_table_is_read_when_it_is_used),
        cmocka_unit_test(test_stale_is_refused),
        cmocka_unit_test(test_block_hashes_locate_a_changed_token),
        cmocka_unit_test(test_index_directory),
        cmocka_unit_test(test_missing_token_file),
        cmocka_unit_test(test_descriptor_zero_is_as_good_as_any),
        cmocka_unit_test(test_missing_index_is_named),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
