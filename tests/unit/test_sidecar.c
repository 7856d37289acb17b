/* SPDX-License-Identifier: Apache-2.0 */
/* Sidecars: every damaged bit and every truncation is noticed, a stale one is refused, an old one
 * stays until the new one is whole, and a changed token is located. */
#include "corpus_files.h"

#include <errno.h>

#include "corpus/sidecar.h"
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
    assert_int_equal(rp_index_build("s.bin", &hints, NULL, NULL, NULL, &error), 0);
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
#define TABLE_AT (256 + 8 * BLOCKS)
#define TABLE_BYTES (8 * DOCUMENTS + 4 * DOCUMENTS) /* of so many: a multiple of 8 */

static void test_layout(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    put_sidecar();
    size_t count = get_file("s.bin.rpx", bytes, sizeof bytes);
    assert_int_equal(count, TABLE_AT + TABLE_BYTES + 8);
    uint64_t words[22];
    memcpy(words, bytes, sizeof words);
    assert_memory_equal(bytes, "\x89RPX\r\n\x1a\n", 8);
    assert_int_equal(words[1], 2 | (uint64_t)4096 << 32);
    assert_int_equal(words[2], RP_FORMAT_RAW | (uint64_t)RP_TOKEN_U16 << 32);
    assert_int_equal(words[3], EOS);
    assert_int_equal(words[4], sizeof tokens);
    assert_int_equal(words[6], TOKENS);
    assert_int_equal(words[7], DOCUMENTS);
    assert_int_equal(words[8], 36);
    assert_int_equal(words[9], BLOCKS);
    assert_int_equal(words[10], TABLE_BYTES);
    assert_int_equal(words[18], 1); /* extents, no spans */
    uint64_t hash = rp_hash64((const uint8_t *)tokens + 8192, sizeof tokens - 8192), place;
    assert_memory_equal(bytes + 256 + 16, &hash, 8);
    memcpy(&place, bytes + TABLE_AT + 8, 8);
    assert_int_equal(place, 2 * (EOS + 1));
    uint32_t length;
    memcpy(&length, bytes + TABLE_AT + 8 * DOCUMENTS + 4, 4);
    assert_int_equal(length, 37);
    hash = rp_hash64(bytes + TABLE_AT, TABLE_BYTES);
    assert_memory_equal(bytes + TABLE_AT + TABLE_BYTES, &hash, 8);
    struct rp_hash128 root = rp_hash128(&hash, 8);
    assert_memory_equal(bytes + 160, &root, 16);
}

static void test_every_bit_and_every_truncation(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_error error;
    put_sidecar();
    size_t count = get_file("s.bin.rpx", bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * count; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        put_file("s.bin.rpx", bytes, count);
        struct rp_sidecar sidecar;
        if (rp_sidecar_open(&sidecar, "s.bin.rpx", "s.bin", &error) >= 0)
            fail_msg("bit %zu of byte %zu is not checked", bit % 8, bit / 8);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < count; cut++) {
        put_file("s.bin.rpx", bytes, cut);
        assert_true(open_it(&error) < 0);
        assert_says(&error, "s.bin.rpx|ringpack index s.bin");
    }
    put_file("s.bin.rpx", bytes, count + 1);
    assert_true(open_it(&error) < 0);
    put_file("s.bin.rpx", bytes, count);
    assert_int_equal(open_it(&error), 0); /* the control */
}

/* Make the hashes right that damage has made wrong. */
static void mend(uint8_t *bytes)
{
    uint64_t page = rp_hash64(bytes + TABLE_AT, TABLE_BYTES);
    memcpy(bytes + TABLE_AT + TABLE_BYTES, &page, 8);
    struct rp_hash128 root = rp_hash128(&page, 8);
    memcpy(bytes + 160, &root, 16);
    struct rp_hash128 header = rp_hash128(bytes, 240);
    memcpy(bytes + 240, &header, 16);
}

/* Damage with a right hash: a writer with a bug, or a forger. */
static void test_forged_values_never_reach_memory(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_error error;
    put_sidecar();
    size_t count = get_file("s.bin.rpx", bytes, sizeof bytes);
    static const uint64_t values[] = {
        0, 1, 3, UINT64_MAX, UINT64_MAX / 8, UINT64_MAX / 8 + 1, INT64_MAX, 1u << 20};
    for (size_t at = 12; at < 176; at += 4)
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            uint8_t forged[256];
            memcpy(forged, bytes, sizeof forged);
            memcpy(forged + at, &values[v], at % 8 || at < 24 ? 4 : 8);
            struct rp_hash128 hash = rp_hash128(forged, 240);
            memcpy(forged + 240, &hash, 16);
            FILE *file = fopen("s.bin.rpx", "r+b");
            assert_int_equal(fwrite(forged, 1, sizeof forged, file), sizeof forged);
            fclose(file);
            struct rp_corpus *corpus;
            if (open_one(&corpus, "s.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error) == 0) {
                const struct rp_source *source = rp_corpus_source(corpus, 0);
                assert_int_equal(rp_source_documents(source), DOCUMENTS);
                for (uint64_t d = 0; d < rp_source_documents(source); d++) {
                    struct rp_extent extent;
                    if (rp_source_extent(source, d, &extent, &error) == 0)
                        assert_true(extent.byte_offset + extent.tokens * extent.width <=
                                    sizeof tokens);
                }
                rp_corpus_close(corpus);
            }
        }
    /* A document outside the file, with right hashes: refused where it is used. */
    uint64_t far = 1u << 30;
    uint8_t place[8];
    memcpy(place, bytes + TABLE_AT + 8, 8);
    memcpy(bytes + TABLE_AT + 8, &far, 8);
    mend(bytes);
    put_file("s.bin.rpx", bytes, count);
    struct rp_corpus *corpus;
    struct rp_extent extent;
    assert_int_equal(open_one(&corpus, "s.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    assert_int_equal(rp_source_extent(source, 1, &extent, &error), -RP_E_CORRUPT);
    assert_says(&error, "document 1|s.bin|outside");
    assert_int_equal(rp_source_extent(source, 2, &extent, &error), 0);
    assert_int_equal(extent.tokens, 37);
    rp_corpus_close(corpus);
    /* One with more tokens than the file has. */
    uint32_t length = UINT32_MAX;
    memcpy(bytes + TABLE_AT + 8, place, 8);
    memcpy(bytes + TABLE_AT + 8 * DOCUMENTS + 4, &length, 4);
    mend(bytes);
    put_file("s.bin.rpx", bytes, count);
    assert_int_equal(open_one(&corpus, "s.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    source = rp_corpus_source(corpus, 0);
    assert_int_equal(rp_source_extent(source, 1, &extent, &error), -RP_E_CORRUPT);
    rp_corpus_close(corpus);
}

static void test_a_count_of_documents_that_wraps_is_refused(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_error error;
    struct rp_sidecar sidecar;
    put_sidecar();
    size_t count = get_file("s.bin.rpx", bytes, sizeof bytes);
    for (unsigned sections = 1; sections <= 3; sections += 2) {
        memset(bytes + 56, 0xff, 8); /* documents */
        memset(bytes + 80, 0, 16);   /* bytes of the table, and of the index */
        bytes[144] = (uint8_t)sections;
        struct rp_hash128 hash = rp_hash128(bytes, 240);
        memcpy(bytes + 240, &hash, 16);
        put_file("s.bin.rpx", bytes, count);
        assert_int_equal(rp_sidecar_open(&sidecar, "s.bin.rpx", "s.bin", &error), -RP_E_CORRUPT);
        assert_says(&error, "bytes of the document table");
    }
}

/* The version before had another table: refused by name, with the command. Without a table it is
 * the same file, so a Megatron shard need not be indexed again. */
static void test_version_1(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_error error;
    struct rp_corpus *corpus;
    put_sidecar();
    size_t count = get_file("s.bin.rpx", bytes, sizeof bytes);
    bytes[8] = 1;
    mend(bytes);
    put_file("s.bin.rpx", bytes, count);
    assert_int_equal(open_it(&error), -RP_E_VERSION);
    assert_says(&error, "s.bin.rpx|expected 2, found 1|ringpack index s.bin");
    put_megatron("old", 8, 2, (const int32_t[]){3, 5}, 2);
    assert_int_equal(rp_index_build("old", NULL, NULL, NULL, NULL, &error), 0);
    count = get_file("old.bin.rpx", bytes, sizeof bytes);
    bytes[8] = 1;
    struct rp_hash128 hash = rp_hash128(bytes, 240);
    memcpy(bytes + 240, &hash, 16);
    put_file("old.bin.rpx", bytes, count);
    assert_int_equal(open_one(&corpus, "old", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    assert_true(rp_corpus_fingerprint(corpus).full.low != 0);
    rp_corpus_close(corpus);
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
    const uint64_t table = 256 + 8 * (sizeof many / 4096);
    const uint64_t wrong[] = {table + 8 * 20000, table + 8 * MANY + 4 * 9000};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rp_index_build("many.bin", &hints, NULL, NULL, NULL, &error), 0);
        FILE *file = fopen("many.bin.rpx", "r+b");
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
    assert_int_equal(rp_index_build("large.bin", &hints, NULL, NULL, NULL, &error), 0);
    FILE *file = fopen("large.bin.rpx", "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 256 + 8 * WRONG, SEEK_SET), 0);
    assert_int_equal(fputc(1, file), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(open_one(&corpus, "large.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    assert_int_equal(rp_shard_check_sidecar(rp_corpus_shard(corpus, 0), &error), -RP_E_CORRUPT);
    assert_says(&error, "large.bin.rpx|block table");
    assert_non_null(strstr(error.hint, "ringpack index large.bin"));
    rp_corpus_close(corpus);
    assert_int_equal(rp_index_build("large.bin", &hints, NULL, NULL, NULL, &error), 0);
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
    assert_int_equal(rp_index_build("m", NULL, NULL, NULL, NULL, &error), 0);
    assert_int_equal(open_one(&corpus, "m", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    rp_corpus_close(corpus);
    put_megatron("m", 8, 2, others, 2); /* the same tokens, cut elsewhere */
    assert_int_equal(open_one(&corpus, "m", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_CHANGED);
    assert_says(&error, "hash of the index");
    assert_int_equal(rp_index_build("m", NULL, NULL, NULL, NULL, &error),
                     0); /* index replaces it */
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
        assert_int_equal(rp_index_build(shards[i], &hints, "index/deep", NULL, NULL, &error), 0);
    assert_int_not_equal(access("a/s.bin.rpx", F_OK), 0);
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
    const char *shards[] = {"s.bin", "m", "long"}; /* of "long" not every block is sampled */
    const int32_t lengths[] = {3, 5}, many[] = {70 * RP_BLOCK_BYTES};
    struct rp_source_spec source = {
        .name = "s", .weight = 1, .shards = shards, .shard_count = 3, .eos = -1};
    struct rp_corpus_spec spec = {.sources = &source, .source_count = 1};
    put_sidecar();
    put_megatron("m", 8, 2, lengths, 2);
    assert_int_equal(rp_index_build("m", NULL, NULL, NULL, NULL, &error), 0);
    put_megatron("long", 1, 1, many, 1);
    assert_int_equal(rp_index_build("long", NULL, NULL, NULL, NULL, &error), 0);
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
    assert_int_equal(unlink("s.bin.rpx"), 0);
    assert_true(rp_corpus_open(&gone, &spec, &error) < 0); /* without a sidecar nothing is known */
}

static void test_descriptor_zero_is_as_good_as_any(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_inspection inspection;
    const int32_t lengths[] = {3, 5};
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    put_shard();
    put_megatron("m", 8, 2, lengths, 2);
    int aside = free_zero();
    assert_int_equal(rp_index_build("s.bin", &hints, NULL, NULL, NULL, &error), 0);
    assert_int_equal(open_it(&error), 0);
    assert_int_equal(rp_inspect("s.bin", NULL, NULL, true, NULL, NULL, &inspection, &error), 0);
    assert_int_equal(inspection.token_max, 36);
    assert_int_equal(rp_index_build("m", NULL, NULL, NULL, NULL, &error), 0);
    assert_int_equal(rp_inspect("m", NULL, NULL, true, NULL, NULL, &inspection, &error), 0);
    assert_int_equal(inspection.token_max, 7);
    give_back_zero(aside);
}

/* The sidecar knows that there was one; its name is what is told, not an address. */
static void test_missing_index_is_named(void **state)
{
    (void)state;
    const int32_t lengths[] = {3, 5};
    struct rp_corpus *corpus;
    struct rp_error error;
    put_megatron("m", 8, 2, lengths, 2);
    assert_int_equal(rp_index_build("m", NULL, NULL, NULL, NULL, &error), 0);
    assert_int_equal(unlink("m.idx"), 0);
    assert_int_equal(open_one(&corpus, "m.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -ENOENT);
    assert_says(&error, "m.idx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_version_1),
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
