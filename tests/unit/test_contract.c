/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts: a single differing field is noticed at each moment that forbids it, by name and with
 * both values; permitted differences pass; damaged text is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/contract.h"
#include "contract_sample.h"

#define TEXT_BYTES_MAX 4096u
#define NONE SAMPLE_FIELDS

static const enum rp_contract_moment moments[] = {RP_AT_RESUME, RP_AT_REWEIGHTED, RP_AT_REATTACH,
                                                  RP_AT_EXTENSION, RP_ON_NODES};

/* The sample with another value in one line (`other`) and without another line (`missing`). */
static size_t write_text(char *text, size_t other, size_t missing)
{
    size_t bytes = 0;
    for (size_t i = 0; i < SAMPLE_FIELDS; i++) {
        const struct sample_field *field = &sample_fields[i];
        if (i == missing)
            continue;
        if (!field->name)
            bytes += (size_t)sprintf(text + bytes, "\n");
        else
            bytes += (size_t)sprintf(text + bytes, "%s%c%s\n", field->name, field->sign,
                                     i == other ? field->other : field->value);
    }
    assert_true(bytes < TEXT_BYTES_MAX);
    return bytes;
}

static struct rp_contract open_text(const char *text, size_t bytes)
{
    struct rp_contract contract;
    struct rp_error error = {0};
    if (rp_contract_open(&contract, text, bytes, &error) < 0)
        fail_msg("%s", error.message);
    return contract;
}

static bool may_differ(const struct sample_field *field, enum rp_contract_moment moment)
{
    return field->freedom == LABEL ||
           (field->freedom == FREE && (moment == RP_AT_RESUME || moment == RP_AT_REWEIGHTED)) ||
           (field->freedom == EXTEND && moment == RP_AT_EXTENSION) ||
           (field->freedom == REWEIGHT && moment == RP_AT_REWEIGHTED);
}

static int compare(const struct rp_contract *had, const struct rp_contract *has,
                   enum rp_contract_moment moment, struct rp_error *error)
{
    struct rp_contract_sides sides = {moment, "one", "the other", 0, 0};
    *error = (struct rp_error){0};
    return rp_contract_compare(had, has, &sides, error);
}

static void each_field_alone_is_refused_by_name(void **state)
{
    (void)state;
    static char was[TEXT_BYTES_MAX], is[TEXT_BYTES_MAX], expected[768];
    struct rp_contract had = open_text(was, write_text(was, NONE, NONE));
    struct rp_error error;
    for (size_t i = 0; i < SAMPLE_FIELDS; i++) {
        const struct sample_field *field = &sample_fields[i];
        if (!field->name)
            continue;
        struct rp_contract has = open_text(is, write_text(is, i, NONE));
        for (size_t m = 0; m < sizeof moments / sizeof *moments; m++) {
            int code = compare(&had, &has, moments[m], &error);
            if (may_differ(field, moments[m])) {
                assert_int_equal(code, 0);
                continue;
            }
            snprintf(expected, sizeof expected, "%s differs: one has %s, the other has %s",
                     field->called, field->value, field->other);
            assert_int_equal(code, -RP_E_MISMATCH);
            assert_string_equal(error.message, expected);
            assert_true(error.hint[0] != 0);
            const char *may = field->freedom == BOUND    ? "it never changes"
                              : field->freedom == EXTEND ? "it may change when an engine starts"
                              : field->freedom == FREE   ? "it may change when trainers start again"
                                                         : "--accept-weights";
            if (moments[m] != RP_ON_NODES && !strstr(error.hint, may))
                fail_msg("%s: `%s` lacks `%s`", field->name, error.hint, may);
        }
    }
}

/* A line that only one side has. */
static void a_field_that_one_side_lacks_differs_unless_it_need_not_be_known(void **state)
{
    (void)state;
    static char was[TEXT_BYTES_MAX], is[TEXT_BYTES_MAX];
    struct rp_contract had = open_text(was, write_text(was, NONE, NONE));
    struct rp_error error;
    for (size_t i = 0; i < SAMPLE_FIELDS; i++) {
        if (!sample_fields[i].name)
            continue;
        struct rp_contract has = open_text(is, write_text(is, NONE, i));
        int expected = sample_fields[i].sign == '=' ? -RP_E_MISMATCH : 0;
        assert_int_equal(compare(&had, &has, RP_ON_NODES, &error), expected);
        assert_true(expected == 0 || strstr(error.message, ", the other has none"));
        assert_int_equal(compare(&has, &had, RP_ON_NODES, &error), expected);
        bool is_full = strcmp(sample_fields[i].name, "corpus_full") == 0;
        assert_true(rp_contract_knows_whole(&had));
        assert_int_equal(rp_contract_knows_whole(&has), !is_full);
    }
}

static void a_field_of_another_ringpack_binds_as_its_sign_says(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int code;
    } cases[] = {{"mask_source=labels", -RP_E_MISMATCH}, {"mask_source~labels", 0}};
    static char was[TEXT_BYTES_MAX], is[TEXT_BYTES_MAX];
    struct rp_contract had = open_text(was, write_text(was, NONE, NONE));
    struct rp_error error;
    for (size_t i = 0; i < 2; i++) {
        size_t bytes = write_text(is, NONE, NONE);
        char *place = strstr(is, "pad_id");
        memmove(place + strlen(cases[i].line) + 1, place, bytes - (size_t)(place - is));
        memcpy(place, cases[i].line, strlen(cases[i].line));
        place[strlen(cases[i].line)] = '\n';
        struct rp_contract has = open_text(is, bytes + strlen(cases[i].line) + 1);
        assert_int_equal(compare(&had, &has, RP_AT_REATTACH, &error), cases[i].code);
        assert_true(cases[i].code == 0 ||
                    strstr(error.message, "mask_source differs: one has none"));
    }
}

static void all_differences_are_told_and_the_most_telling_first(void **state)
{
    (void)state;
    static char was[TEXT_BYTES_MAX];
    struct rp_contract had = open_text(was, write_text(was, NONE, NONE));
    static const char other[] = "corpus_sampled=5\nseed=1\nsources=2\n\npad_id=4\n";
    struct rp_contract has = open_text(other, sizeof other - 1);
    struct rp_error error;
    assert_int_equal(compare(&had, &has, RP_ON_NODES, &error), -RP_E_MISMATCH);
    assert_ptr_equal(strstr(error.message, "stream_version differs: one has 1, the other has none"),
                     error.message);
    assert_non_null(strstr(error.message, "; block_documents differs: one has 7"));
    assert_non_null(strstr(error.message, "; and "));
}

static void the_hash_is_of_what_is_compared(void **state)
{
    (void)state;
    static char was[TEXT_BYTES_MAX], is[TEXT_BYTES_MAX];
    struct rp_contract had = open_text(was, write_text(was, NONE, NONE));
    for (size_t i = 0; i < SAMPLE_FIELDS; i++) {
        if (!sample_fields[i].name)
            continue;
        struct rp_contract has = open_text(is, write_text(is, i, NONE));
        bool same = rp_hash128_equal(rp_contract_hash(&had), rp_contract_hash(&has));
        assert_int_equal(same, sample_fields[i].sign == ':');
    }
}

static void damaged_text_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "\n",
        "\n\n",
        "a=1\n",
        "a=1",
        "a=1\n\nb=2",
        "a\n\n",
        "=1\n\n",
        "A=1\n\n",
        "a=\t\n\n",
        "a=1\na=2\n\n",
        "b=1\na=2\n\n",
        "a=1\n\n\n",
        "a=1\n\nb=1\n\nc=1\n",
        "a=\x7f\n\n",
        "a=\xc3\xa4\n\n",
    };
    struct rp_contract contract;
    struct rp_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int code = rp_contract_open(&contract, bad[i], strlen(bad[i]), &error);
        if (code != -RP_E_CORRUPT)
            fail_msg("`%s` was taken", bad[i]);
    }
    static char large[RP_CONTRACT_BYTES_MAX + 1];
    memset(large, 'a', sizeof large);
    memcpy(large, "a=1\n\n", 5);
    assert_int_equal(rp_contract_open(&contract, large, sizeof large, &error), -RP_E_CORRUPT);
    static char name[RP_RECORD_NAME_MAX + 4] = "", value[RP_RECORD_VALUE_MAX + 5] = "a=";
    for (size_t extra = 0; extra < 2; extra++) { /* as long as it may be, and one byte more */
        size_t bytes = RP_RECORD_NAME_MAX + extra;
        memset(name, 'a', bytes);
        memcpy(name + bytes, "=\n", 2);
        assert_int_equal(rp_record_open(&contract.stream, name, bytes + 2, &error) < 0, extra);
        memset(value + 2, 'v', RP_RECORD_VALUE_MAX + extra);
        value[2 + RP_RECORD_VALUE_MAX + extra] = '\n';
        bytes = 3 + RP_RECORD_VALUE_MAX + extra;
        assert_int_equal(rp_record_open(&contract.stream, value, bytes, &error) < 0, extra);
    }
}

static void what_a_line_cannot_hold_is_escaped(void **state)
{
    (void)state;
    struct rp_record_writer writer = {0};
    rp_contract_add(&writer, "seed", "%u", 7u);
    rp_contract_add_of(&writer, "source", 0, "name", "%s", "a\nb=\\\x7f\xff");
    rp_record_end(&writer);
    rp_contract_add(&writer, "pad_id", "%d", -1);
    static const char expected[] = "seed=7\nsource[0000].name:a\\0ab=\\5c\\7f\\ff\n\npad_id=-1\n";
    assert_false(writer.out_of_memory);
    assert_int_equal(writer.bytes, sizeof expected - 1);
    assert_memory_equal(writer.text, expected, writer.bytes);
    (void)open_text(writer.text, writer.bytes);
    free(writer.text);
}

/* Records of version 2 from the earlier side's next row on may differ at an attach. */
static void records_ahead_may_differ(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "record[0000].from=40\nrecord[0000].weight[0000]=3\nseed=1\n\nbatch_size=1\n",
        ("record[0000].from=40\nrecord[0000].weight[0000]=3\nrecord[0001].from=80\n"
         "record[0001].weight[0000]=5\nseed=1\n\nbatch_size=1\n"),
        "record[0000].from=60\nrecord[0000].weight[0000]=3\nseed=1\n\nbatch_size=1\n",
    };
    const struct {
        int had, has;
        uint64_t row;
        int code;
    } cases[] = {{0, 1, 80, 0},
                 {0, 1, 41, 0},
                 {1, 0, 80, 0},
                 {0, 1, 81, -RP_E_MISMATCH},
                 {0, 1, 0, -RP_E_MISMATCH},
                 {0, 2, 40, 0},
                 {0, 2, 41, -RP_E_MISMATCH},
                 {0, 2, 61, -RP_E_MISMATCH}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rp_contract had = open_text(texts[cases[i].had], strlen(texts[cases[i].had]));
        struct rp_contract has = open_text(texts[cases[i].has], strlen(texts[cases[i].has]));
        struct rp_contract_sides sides = {RP_AT_REATTACH, "one", "the other", 0, cases[i].row};
        struct rp_error error;
        if (rp_contract_compare(&had, &has, &sides, &error) != cases[i].code)
            fail_msg("case %zu", i);
        assert_true(rp_hash128_equal(rp_contract_hash(&had), rp_contract_hash(&has)));
        assert_false(rp_hash128_equal(rp_record_hash(&had.stream), rp_record_hash(&has.stream)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_alone_is_refused_by_name),
        cmocka_unit_test(a_field_that_one_side_lacks_differs_unless_it_need_not_be_known),
        cmocka_unit_test(a_field_of_another_ringpack_binds_as_its_sign_says),
        cmocka_unit_test(all_differences_are_told_and_the_most_telling_first),
        cmocka_unit_test(the_hash_is_of_what_is_compared),
        cmocka_unit_test(damaged_text_is_refused),
        cmocka_unit_test(what_a_line_cannot_hold_is_escaped),
        cmocka_unit_test(records_ahead_may_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
