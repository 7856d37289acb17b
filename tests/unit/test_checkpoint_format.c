/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint file: it is read as it was written; every bit flip, every truncation, every
 * mixture of pages and every hostile number is found out, or costs only the contents. Exhaustive,
 * not random. */
#include "checkpoint_sample.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "checkpoint/format.h"

#define FIRST "checkpoint-000000000001.rpc"
#define GOLDEN RP_SOURCE_DIR "/tests/golden/checkpoint-v1.rpc"

/* The file of a sample, in memory. */
static uint8_t *sample_file(uint64_t next_row, size_t *bytes)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    char *text;
    assert_int_equal(sample_open(&dir, "file", 3, NULL, &error), 0);
    assert_int_equal(sample_save(dir, next_row, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    assert_int_equal(rp_file_read_all("file/" FIRST, 1 << 20, &text, bytes, &error), 0);
    remove_directory("file");
    return (uint8_t *)text;
}

enum verdict { REFUSED, WHOLE, WITHOUT_CONTENTS };

static enum verdict judge(const uint8_t *file, size_t bytes, struct rp_checkpoint_head *head)
{
    struct rp_error error;
    struct rp_checkpoint_damage damage;
    if (bytes < RP_CHECKPOINT_BYTES_MIN ||
        rp_checkpoint_parse_head(head, file, bytes, "test", &error) < 0 ||
        rp_checkpoint_verify(head, file, "test", &damage, &error) < 0) {
        return REFUSED;
    }
    return damage.contents ? WITHOUT_CONTENTS : WHOLE;
}

/* ---- it is read as it was written
 * ----------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    sample_fill("round", 2);
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "round", false, &error), 1);
    const struct rp_checkpoint_info *info = rp_checkpoint_info(checkpoint);
    assert_int_equal(info->sequence, 2);
    assert_int_equal(info->next_row, 20);
    assert_int_equal(info->contents_end_row, 23);
    assert_int_equal(info->identity.low, 0x1234);
    assert_int_equal(info->identity.high, 0x5678);
    assert_int_equal(info->dp_world_size, 4);
    assert_int_equal(info->batch_size, 32);
    assert_string_equal(info->run, "sample");
    assert_string_equal(info->version, "0.1.0");
    assert_string_equal(rp_checkpoint_path(checkpoint), "round/checkpoint-000000000002.rpc");
    assert_false(rp_checkpoint_contents_bad(checkpoint));
    sample_check(checkpoint);

    size_t bytes, cursor = 0;
    const void *contents = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes);
    struct rp_content_record record;
    const void *tokens;
    for (unsigned k = 0; k < 3; k++) {
        assert_int_equal(rp_content_next(contents, bytes, &cursor, &record, &tokens), 1);
        assert_int_equal(record.row, 20 + k);
        assert_int_equal(record.count, SAMPLE_TOKENS);
        assert_int_equal(rp_load_u16(tokens), 20000 + k * 100 + 1);
    }
    assert_int_equal(rp_content_next(contents, bytes, &cursor, &record, &tokens), 0);
    rp_checkpoint_close(checkpoint);

    struct stat file;
    assert_int_equal(stat("round/" FIRST, &file), 0);
    assert_int_equal(file.st_mode & 07777, 0600);
}

static void test_saving_what_was_loaded_gives_the_same_bytes(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    size_t bytes, bytes_again;
    char *text, *text_again;
    sample_fill("once", 1);
    assert_int_equal(rp_checkpoint_open(&checkpoint, "once/" FIRST, &error), 0);
    struct rp_checkpoint_info info = *rp_checkpoint_info(checkpoint);
    struct rp_checkpoint_piece pieces[3];
    struct rp_checkpoint_part parts[3];
    for (unsigned i = 0; i < 3; i++) {
        enum rp_checkpoint_section_type type = RP_CHECKPOINT_STATE + i;
        pieces[i].data = rp_checkpoint_section(checkpoint, type, &pieces[i].bytes);
        parts[i] = (struct rp_checkpoint_part){
            .type = type, .pieces = &pieces[i], .piece_count = 1};
    }
    struct rp_checkpoint_dir *dir;
    assert_int_equal(sample_open(&dir, "again", 3, NULL, &error), 0);
    assert_int_equal(rp_checkpoint_save(dir, &info, parts, 3, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    rp_checkpoint_close(checkpoint);
    assert_int_equal(rp_file_read_all("once/" FIRST, 1 << 20, &text, &bytes, &error), 0);
    assert_int_equal(rp_file_read_all("again/" FIRST, 1 << 20, &text_again, &bytes_again, &error),
                     0);
    assert_int_equal(bytes, bytes_again);
    assert_memory_equal(text, text_again, bytes);
    free(text), free(text_again);
}

static void test_a_state_alone_is_enough(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct rp_checkpoint *checkpoint;
    struct sample sample;
    char *path;
    sample_make(&sample, 5);
    sample.info.contents_end_row = 5;
    assert_int_equal(sample_open(&dir, "alone", 3, NULL, &error), 0);
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 1, &path, &error), 0);
    assert_int_equal(rp_checkpoint_open(&checkpoint, path, &error), 0);
    size_t bytes;
    assert_non_null(rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes));
    assert_null(rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes));
    assert_int_equal(bytes, 0);
    assert_false(rp_checkpoint_contents_bad(checkpoint));
    rp_checkpoint_close(checkpoint);
    free(path);
    rp_checkpoint_dir_close(dir);
}

static void test_what_makes_no_sense_is_not_saved(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct sample sample;
    assert_int_equal(sample_open(&dir, "sense", 3, NULL, &error), 0);
    sample_make(&sample, 5);
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts + 1, 2, NULL, &error),
                     -RP_E_USAGE);
    assert_non_null(strstr(error.message, "no state token"));
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 2, NULL, &error),
                     -RP_E_USAGE);
    assert_non_null(strstr(error.message, "there are none")); /* contents announced */
    struct rp_checkpoint_part twice[2] = {sample.parts[0], sample.parts[0]};
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, twice, 2, NULL, &error), -RP_E_USAGE);
    sample.info.contents_end_row = 4;
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, NULL, &error),
                     -RP_E_USAGE);
    for (int text = 0; text < 3; text++) {
        sample_make(&sample, 5);
        if (text == 0)
            sample.info.run[0] = '\n';
        if (text == 1)
            sample.info.run[0] = 0x7f;
        if (text == 2) /* without an end */
            memset(sample.info.version, 'v', sizeof sample.info.version);
        assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, NULL, &error),
                         -RP_E_USAGE);
    }
    rp_checkpoint_dir_close(dir);
    assert_int_equal(count_names("sense", "checkpoint-"), 0);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void test_every_bit_flip(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = sample_file(7, &bytes);
    struct rp_checkpoint_head head;
    assert_int_equal(judge(file, bytes, &head), WHOLE);
    const struct rp_checkpoint_format_section *contents = rp_checkpoint_find(
        &head, RP_CHECKPOINT_CONTENTS);
    size_t begin = contents->offset, end = bytes - RP_CHECKPOINT_FOOTER_BYTES, without = 0;
    for (size_t i = 0; i < bytes; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            file[i] ^= (uint8_t)(1u << bit);
            enum verdict verdict = judge(file, bytes, &head);
            if (verdict != (i >= begin && i < end ? WITHOUT_CONTENTS : REFUSED))
                fail_msg("bit %u of byte %zu: verdict %d", bit, i, (int)verdict);
            without += verdict == WITHOUT_CONTENTS;
            file[i] ^= (uint8_t)(1u << bit);
        }
    }
    assert_int_equal(without, (end - begin) * 8); /* only the contents and their padding */
    free(file);
}

static void test_every_truncation_and_appended_bytes(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    size_t bytes;
    uint8_t *file = sample_file(7, &bytes);
    assert_int_equal(rp_file_replace("cut.rpc", file, bytes, &error), 0);
    for (size_t length = bytes + 4097; length-- > 0;) {
        assert_int_equal(truncate("cut.rpc", (off_t)length), 0);
        int code = rp_checkpoint_open(&checkpoint, "cut.rpc", &error);
        assert_int_equal(code, length == bytes ? 0 : -RP_E_CORRUPT);
        rp_checkpoint_close(checkpoint);
    }
    free(file);
}

static bool page_is_zero(const uint8_t *page)
{
    return page[0] == 0 && memcmp(page, page + 1, RP_CHECKPOINT_PAGE_BYTES - 1) == 0;
}

static void test_zero_pages(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = sample_file(7, &bytes), saved[RP_CHECKPOINT_PAGE_BYTES];
    struct rp_checkpoint_head head;
    for (size_t page = 0; page < bytes; page += RP_CHECKPOINT_PAGE_BYTES) {
        assert_false(page_is_zero(file + page)); /* so zeroing it is damage */
        memcpy(saved, file + page, sizeof saved);
        memset(file + page, 0, sizeof saved);
        enum verdict verdict = judge(file, bytes, &head);
        assert_int_equal(verdict,
                         page == bytes - 2 * RP_CHECKPOINT_PAGE_BYTES ? WITHOUT_CONTENTS : REFUSED);
        memcpy(file + page, saved, sizeof saved);
    }
    free(file);
}

/* Each page from one of two checkpoints of the same shape: all mixtures. */
static void test_stale_page_mixtures(void **state)
{
    (void)state;
    size_t bytes, bytes_other;
    uint8_t *file = sample_file(7, &bytes), *other = sample_file(8, &bytes_other);
    uint8_t *mixed = malloc(bytes);
    assert_int_equal(bytes, bytes_other);
    unsigned pages = (unsigned)(bytes / RP_CHECKPOINT_PAGE_BYTES), whole = 0, without = 0;
    for (unsigned mask = 0; mask < 1u << pages; mask++) {
        for (unsigned page = 0; page < pages; page++)
            memcpy(mixed + page * RP_CHECKPOINT_PAGE_BYTES,
                   (mask >> page & 1 ? other : file) + page * RP_CHECKPOINT_PAGE_BYTES,
                   RP_CHECKPOINT_PAGE_BYTES);
        struct rp_checkpoint_head head;
        enum verdict verdict = judge(mixed, bytes, &head);
        whole += verdict == WHOLE;
        without += verdict == WITHOUT_CONTENTS;
        if (verdict == REFUSED)
            continue;
        struct sample sample; /* an accepted file has the state that belongs to its head */
        sample_make(&sample, head.info.next_row);
        assert_memory_equal(mixed + head.sections[0].offset, sample.state, sizeof sample.state);
    }
    assert_int_equal(whole, 2);   /* the two that are no mixture */
    assert_int_equal(without, 2); /* those two with the contents of the other */
    free(file), free(other), free(mixed);
}

/* ---- forgery: hashes are right, numbers are not ---------------------------------------------- */

#define HEAD_HASH_AT 8176u
#define FOOTER_HEAD_HASH_AT 32u
#define FOOTER_HASH_AT 4080u

static void rehash(uint8_t *file, size_t bytes)
{
    struct rp_hash128 hash = rp_hash128(file, HEAD_HASH_AT);
    memcpy(file + HEAD_HASH_AT, &hash, sizeof hash);
    uint8_t *footer = file + bytes - RP_CHECKPOINT_FOOTER_BYTES;
    memcpy(footer + 16, file + 16, 16); /* length and sequence */
    memcpy(footer + FOOTER_HEAD_HASH_AT, &hash, sizeof hash);
    hash = rp_hash128(footer, FOOTER_HASH_AT);
    memcpy(footer + FOOTER_HASH_AT, &hash, sizeof hash);
}

static void test_hostile_numbers_behind_right_hashes(void **state)
{
    (void)state;
    static const uint64_t hostile[] = {0,
                                       1,
                                       63,
                                       65,
                                       4095,
                                       4096,
                                       8192,
                                       0xffffffff,
                                       1ull << 32,
                                       1ull << 62,
                                       1ull << 63,
                                       UINT64_MAX,
                                       UINT64_MAX - 4095,
                                       INT64_MAX,
                                       INT64_MAX - 8191};
    size_t bytes;
    uint8_t *file = sample_file(7, &bytes), *forged = malloc(bytes);
    unsigned accepted = 0, refused = 0;
    for (size_t at = 0; at + 8 <= HEAD_HASH_AT; at += 4) {
        for (unsigned i = 0; i < RP_ARRAY_COUNT(hostile); i++) {
            for (unsigned width = 4; width <= 8; width += 4) {
                memcpy(forged, file, bytes);
                memcpy(forged + at, &hostile[i], width);
                rehash(forged, bytes);
                struct rp_checkpoint_head head;
                enum verdict verdict = judge(forged, bytes, &head);
                refused += verdict == REFUSED;
                accepted += verdict != REFUSED;
                /* Only numbers that are free to have any value are accepted: sequence … rows, the
                 * text of the run, hash and length of the contents. */
                if (verdict == WHOLE && memcmp(forged, file, bytes) != 0 && (at < 16 || at > 180))
                    fail_msg("value %u of %u bytes at %zu was accepted", i, width, at);
            }
        }
    }
    assert_true(accepted > 0 && refused > accepted);
    free(file), free(forged);
}

static void test_versions_and_unknown_sections(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = sample_file(7, &bytes);
    struct rp_checkpoint_head head;
    struct rp_error error;
    rp_store_u32(file + 8, 3); /* not hashed again: damage, not another version */
    assert_int_equal(rp_checkpoint_parse_head(&head, file, bytes, "test", &error), -RP_E_CORRUPT);
    rehash(file, bytes);
    assert_int_equal(rp_checkpoint_parse_head(&head, file, bytes, "test", &error), -RP_E_VERSION);
    assert_non_null(strstr(error.message, "format 3"));
    rp_store_u32(file + 8, 1);

    rp_store_u32(file + 512 + 2 * 64,
                 99); /* contents become something advisory that we do not know */
    rehash(file, bytes);
    assert_int_equal(judge(file, bytes, &head), REFUSED); /* the head still announces contents */
    rp_store_u64(file + 40, 7);
    rehash(file, bytes);
    assert_int_equal(judge(file, bytes, &head), WHOLE);
    rp_store_u32(file + 512 + 2 * 64 + 4, 1); /* critical: we cannot do without */
    rehash(file, bytes);
    assert_int_equal(rp_checkpoint_parse_head(&head, file, bytes, "test", &error), -RP_E_VERSION);
    assert_non_null(strstr(error.message, "section 99"));
    free(file);
}

/* ---- contents -------------------------------------------------------------------------------- */

static void expect_contents(struct sample *sample, const char *what, bool bad)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct rp_checkpoint *checkpoint;
    char *path;
    assert_int_equal(sample_open(&dir, "contents", 3, NULL, &error), 0);
    assert_int_equal(rp_checkpoint_save(dir, &sample->info, sample->parts, 3, &path, &error), 0);
    assert_int_equal(rp_checkpoint_open(&checkpoint, path, &error), 0);
    if (rp_checkpoint_contents_bad(checkpoint) != bad)
        fail_msg("contents with %s: expected bad = %d", what, bad);
    size_t bytes;
    assert_true((rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes) == NULL) == bad);
    assert_int_equal(rp_checkpoint_info(checkpoint)->contents_end_row, bad ? 5 : 8);
    assert_non_null(rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes));
    rp_checkpoint_close(checkpoint);
    free(path);
    rp_checkpoint_dir_close(dir);
    sample_make(sample, 5);
}

static void test_contents_must_make_sense(void **state)
{
    (void)state;
    struct sample sample;
    sample_make(&sample, 5);
    expect_contents(&sample, "nothing wrong", false);
    sample.contents[1].record.row = 4;
    expect_contents(&sample, "a row before the state", true);
    sample.contents[2].record.row = 8;
    expect_contents(&sample, "a row after their end", true);
    sample.contents[1].record.row = 5;
    expect_contents(&sample, "an overlap", true);
    sample.contents[1].record.row = 5;
    sample.contents[1].record.offset = SAMPLE_TOKENS;
    expect_contents(&sample, "a row in two pieces", false);
    sample.contents[0].record.width = 3;
    expect_contents(&sample, "a width of 3", true);
    sample.contents[0].record.reserved = 1;
    expect_contents(&sample, "a reserved field", true);
    sample.contents[0].record.count = 0;
    expect_contents(&sample, "no tokens", true);
    sample.contents[2].record.count = SAMPLE_TOKENS + 1;
    expect_contents(&sample, "tokens beyond the end", true);
    sample.contents[2].record.count = UINT32_MAX;
    sample.contents[2].record.offset = UINT32_MAX;
    expect_contents(&sample, "a count that wraps", true);
    sample.contents[2].record.count = SAMPLE_TOKENS - 1; /* its padding is not zero */
    expect_contents(&sample, "dirty padding", true);
}

/* ---- files that are none, and the golden one ------------------------------------------------- */

static void test_what_is_no_checkpoint(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    char page[16384] = "#!/bin/sh";
    assert_int_equal(rp_checkpoint_open(&checkpoint, "missing.rpc", &error), -ENOENT);
    assert_non_null(strstr(error.message, "missing.rpc"));
    assert_int_equal(rp_checkpoint_open(&checkpoint, ".", &error), -RP_E_FORMAT);
    assert_int_equal(mkfifo("fifo.rpc", 0600), 0);
    assert_int_equal(rp_checkpoint_open(&checkpoint, "fifo.rpc", &error),
                     -RP_E_FORMAT); /* at once */
    assert_int_equal(rp_file_replace("other.rpc", page, sizeof page, &error), 0);
    assert_int_equal(rp_checkpoint_open(&checkpoint, "other.rpc", &error), -RP_E_FORMAT);
    assert_int_equal(rp_file_replace("empty.rpc", page, 0, &error), 0);
    assert_int_equal(rp_checkpoint_open(&checkpoint, "empty.rpc", &error), -RP_E_CORRUPT);
    assert_null(checkpoint);
    assert_int_equal(rp_checkpoint_open(&checkpoint, "empty.rpc", NULL), -RP_E_CORRUPT);
}

/* A false length in a file must not make us take memory for it. */
static void test_a_huge_sparse_file_costs_nothing(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    size_t bytes;
    uint8_t *file = sample_file(7, &bytes);
    assert_int_equal(rp_file_replace("sparse.rpc", file, bytes, &error), 0);
    assert_int_equal(truncate("sparse.rpc", (off_t)1 << 42), 0);
    assert_int_equal(rp_checkpoint_open(&checkpoint, "sparse.rpc", &error), -RP_E_CORRUPT);
    free(file);
}

static void test_the_golden_file_stays_readable(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    assert_int_equal(rp_checkpoint_open(&checkpoint, GOLDEN, &error), 0);
    const struct rp_checkpoint_info *info = rp_checkpoint_info(checkpoint);
    assert_int_equal(info->sequence, 7);
    assert_int_equal(info->next_row, 7);
    assert_int_equal(info->contents_end_row, 10);
    assert_true(info->identity.low == 0x0706050403020100 &&
                info->identity.high == 0x0f0e0d0c0b0a0908);
    assert_string_equal(info->run, "golden-1");
    assert_false(rp_checkpoint_contents_bad(checkpoint));
    size_t bytes, cursor = 0;
    const void *token = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes), *tokens;
    assert_int_equal(bytes, 496);
    assert_memory_equal(token, "RPSTATE", 8);
    const char *config = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    assert_int_equal(bytes, 26);
    assert_memory_equal(config, "run: golden-1\nseq_len: 64\n", bytes);
    const void *contents = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes);
    struct rp_content_record record;
    assert_int_equal(rp_content_next(contents, bytes, &cursor, &record, &tokens), 1);
    assert_true(record.row == 7 && record.offset == 0 && record.count == 50 && record.width == 2);
    assert_int_equal(rp_content_next(contents, bytes, &cursor, &record, &tokens), 1);
    assert_true(record.row == 7 && record.offset == 50 && record.count == 3 && record.width == 2);
    assert_int_equal(rp_content_next(contents, bytes, &cursor, &record, &tokens), 1);
    assert_true(record.row == 9 && record.offset == 5 && record.count == 3 && record.width == 4);
    assert_int_equal(rp_load_u32((const uint8_t *)tokens + 8), 65536);
    assert_int_equal(rp_content_next(contents, bytes, &cursor, &record, &tokens), 0);
    rp_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_saving_what_was_loaded_gives_the_same_bytes),
        cmocka_unit_test(test_a_state_alone_is_enough),
        cmocka_unit_test(test_what_makes_no_sense_is_not_saved),
        cmocka_unit_test(test_every_bit_flip),
        cmocka_unit_test(test_every_truncation_and_appended_bytes),
        cmocka_unit_test(test_zero_pages),
        cmocka_unit_test(test_stale_page_mixtures),
        cmocka_unit_test(test_hostile_numbers_behind_right_hashes),
        cmocka_unit_test(test_versions_and_unknown_sections),
        cmocka_unit_test(test_contents_must_make_sense),
        cmocka_unit_test(test_what_is_no_checkpoint),
        cmocka_unit_test(test_a_huge_sparse_file_costs_nothing),
        cmocka_unit_test(test_the_golden_file_stays_readable),
    };
    return cmocka_run_group_tests_name("checkpoint_format", tests, sample_enter, sample_leave);
}
