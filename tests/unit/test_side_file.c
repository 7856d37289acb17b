/* SPDX-License-Identifier: Apache-2.0 */
/* A file of a side column: it is read as it was written; every bit flip and every truncation is
 * noticed, when it is opened or when its blocks are compared; names and types; its tokenizer. */
#include "corpus_files.h"

#include "corpus/side_file.h"

#define ENTRIES 3000u
#define PATH "m.weight.col"

static const struct rp_side_type type = {RP_DTYPE_F32, 2, 8};

static void put_column_of(const struct rp_tokenizer_id *tokenizer)
{
    struct rp_error error = {0};
    struct rp_side_writer writer;
    uint64_t entries[ENTRIES];
    for (uint32_t i = 0; i < ENTRIES; i++)
        entries[i] = i * 0x9e3779b97f4a7c15u;
    assert_int_equal(rp_sidefile_begin(&writer, PATH, &type, &error), 0);
    if (tokenizer)
        writer.tokenizer = *tokenizer;
    for (size_t at = 0, some = 1; at < sizeof entries; at += some, some = 3 * some + 1) {
        some = at + some > sizeof entries ? sizeof entries - at : some;
        assert_int_equal(rp_sidefile_add(&writer, (const uint8_t *)entries + at, some, &error), 0);
    }
    assert_int_equal(rp_sidefile_finish(&writer, &error), 0);
    rp_sidefile_discard(&writer);
}

static void put_column(void)
{
    put_column_of(NULL);
}

/* 0, or the code of the first check that failed. */
static int examine(struct rp_error *error)
{
    struct rp_side_file file;
    int code = rp_sidefile_open(&file, "m.bin", "weight", error);
    code = code < 0 ? code : rp_sidefile_verify(&file, error);
    rp_sidefile_close(&file);
    return code;
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_side_file file;
    char text[RP_SIDE_TYPE_BYTES];
    put_column();
    assert_int_equal(rp_sidefile_open(&file, "m.bin", "weight", &error), 0);
    assert_int_equal(file.entries, ENTRIES);
    assert_memory_equal(&file.type, &type, sizeof type);
    rp_sidefile_type_text(&file.type, text);
    assert_string_equal(text, "f32x2");
    uint64_t last;
    memcpy(&last, file.map.data + RP_SIDE_DATA_OFFSET + 8 * (ENTRIES - 1), sizeof last);
    assert_int_equal(last, (ENTRIES - 1) * 0x9e3779b97f4a7c15u);
    assert_int_equal(file.shard.block_count, 7);
    assert_int_equal(file.shard.bytes, 7 * 4096);
    assert_int_equal(rp_sidefile_verify(&file, &error), 0);
    rp_sidefile_close(&file);
}

static void every_change_is_noticed(void **state)
{
    (void)state;
    struct rp_error error;
    put_column();
    FILE *file = fopen(PATH, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long bytes = ftell(file);
    assert_int_equal(bytes, 7 * 4096 + 7 * 8);
    for (long at = 0; at<bytes; at += at> 4200 && at + 997 < 7 * 4096 ? 997 : 3) {
        fseek(file, at, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ (1 << (at % 8)), file);
        fflush(file);
        assert_true(examine(&error) < 0);
        fseek(file, at, SEEK_SET);
        fputc(byte, file);
        fflush(file);
    }
    assert_int_equal(examine(&error), 0);
    fclose(file);
    for (long cut = bytes - 1; cut > 0; cut -= 611) {
        assert_int_equal(truncate(PATH, cut), 0);
        assert_true(examine(&error) < 0);
    }
}

/* Its hash and name are in bytes that were zeros; besides, only the header's own hash changes. */
static void a_tokenizer_is_in_the_header_alone(void **state)
{
    (void)state;
    static uint8_t bare[32768], bytes[32768], zeros[RP_BLOCK_BYTES];
    const struct rp_tokenizer_id id = {"gpt2", {0x0011223344556677, 0x0123456789abcdef}};
    struct rp_error error;
    struct rp_side_file file;
    char text[RP_TOKENIZER_TEXT_BYTES];
    put_column();
    size_t count = get_file(PATH, bare, sizeof bare);
    assert_memory_equal(bare + 56, zeros, RP_BLOCK_BYTES - 16 - 56);
    assert_int_equal(rp_sidefile_open(&file, "m.bin", "weight", &error), 0);
    assert_false(rp_ids_know_tokenizer(&file.tokenizer));
    assert_string_equal(rp_ids_tokenizer_text(&file.tokenizer, text), "none declared");
    struct rp_hash128 content = file.content;
    rp_sidefile_close(&file);
    put_column_of(&id);
    assert_int_equal(get_file(PATH, bytes, sizeof bytes), count);
    assert_memory_equal(bytes, bare, 56);
    assert_memory_equal(bytes + 56, &id.hash, 16);
    assert_memory_equal(bytes + 72, id.name, sizeof id.name);
    assert_memory_equal(bytes + 120, zeros, RP_BLOCK_BYTES - 16 - 120);
    assert_memory_equal(bytes + RP_BLOCK_BYTES, bare + RP_BLOCK_BYTES, count - RP_BLOCK_BYTES);
    assert_int_equal(rp_sidefile_open(&file, "m.bin", "weight", &error), 0);
    assert_string_equal(rp_ids_tokenizer_text(&file.tokenizer, text),
                        "gpt2 (0123456789abcdef0011223344556677)");
    assert_true(rp_hash128_equal(file.content, content));
    rp_sidefile_close(&file);
    memset(bytes + 72, 'x', 48);
    rp_hash128_store(bytes + RP_BLOCK_BYTES - 16, rp_hash128(bytes, RP_BLOCK_BYTES - 16));
    put_file(PATH, bytes, count);
    assert_int_equal(examine(&error), -RP_E_CORRUPT);
    assert_says(&error, "m.weight.col: the name of its tokenizer has no end");
}

static void names_are_those_of_fields(void **state)
{
    (void)state;
    static const char *const good[] = {"weight", "_a9", "log_prob"};
    static const char *const bad[] = {
        "",         "9a",     "Weight",     "a-b",
        "labels_2", "labels", "cu_seqlens", "a123456789012345678901234567890123"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(good); i++)
        assert_true(rp_sidefile_is_name(good[i]));
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++)
        assert_false(rp_sidefile_is_name(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(every_change_is_noticed),
        cmocka_unit_test(a_tokenizer_is_in_the_header_alone),
        cmocka_unit_test(names_are_those_of_fields),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
