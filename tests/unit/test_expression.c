/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of select and repeat: the grammar, the place of each mistake, limits, exact
 * comparisons. tests/oracle/test_select.py compares random ones with the oracle. */
#include "system_faults.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "plan/v2/selection.h"

static struct rp_expression *parse(const char *text)
{
    struct rp_error error = {0};
    struct rp_expression *expression;
    if (rp_expression_parse(&expression, text, &error) < 0)
        fail_msg("%s: %s", text, error.message);
    return expression;
}

/* An expression of one column of some kind: its truth for a value. */
static bool test_one(const char *text, enum rp_value_kind kind, union rp_value value)
{
    const struct rp_value_column column = {0, kind};
    struct rp_expression *expression = parse(text);
    rp_expression_bind(expression, &column);
    uint64_t bits = rp_expression_test(expression, &value, 1, 1);
    rp_expression_free(expression);
    assert_true(bits <= 1);
    return bits;
}

static bool of_word(const char *text, enum rp_value_kind kind, uint64_t word)
{
    return test_one(text, kind, (union rp_value){.word = word});
}

static bool of_real(const char *text, double real)
{
    return test_one(text, RP_VALUE_REAL, (union rp_value){.real = real});
}

static void the_canonical_text_has_one_space(void **state)
{
    (void)state;
    const char *const texts[][2] = {
        {"a<1", "a < 1"},
        {"  a\n<=\t-1.50 ", "a <= -1.50"},
        {"a in(1,2 , 3)and not(b!=00)", "a in ( 1 , 2 , 3 ) and not ( b != 00 )"},
        {"_x1 == 1 or A_ > 2", "_x1 == 1 or A_ > 2"},
        {"android > 1 and nota < 1", "android > 1 and nota < 1"},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(texts); i++) {
        struct rp_expression *expression = parse(texts[i][0]);
        assert_string_equal(rp_expression_text(expression), texts[i][1]);
        rp_expression_free(expression);
    }
    struct rp_expression *expression = parse("b < 1 or a < 1 and b > 3 or length == 2");
    assert_int_equal(rp_expression_names(expression), 3);
    assert_string_equal(rp_expression_name(expression, 0), "b");
    assert_string_equal(rp_expression_name(expression, 2), "length");
    rp_expression_free(expression);
}

static void a_mistake_is_told_by_line_and_column(void **state)
{
    (void)state;
    const char *const bad[][2] = {
        {"", "line 1, column 1: expected the name of a column, `not` or `(`, found the end"},
        {"a", "line 1, column 2: expected <, <=, ==, !=, >=, > or `in`, found the end"},
        {"a = 1", "line 1, column 3: expected <, <=, ==, !=, >=, > or `in`, found `=`"},
        {"a <\n  b", "line 2, column 3: expected a number, found `b`"},
        {"a < 1\nand\n\n and", "line 4, column 2: expected the name of a column"},
        {"a < 1 b", "line 1, column 7: expected `and`, `or` or the end, found `b`"},
        {"(a < 1", "line 1, column 7: expected `and`, `or` or `)`, found the end"},
        {"a < 1)", "line 1, column 6: expected `and`, `or` or the end, found `)`"},
        {"a in 1", "line 1, column 6: expected `(`, found `1`"},
        {"a in (1 2)", "line 1, column 9: expected `,` or `)`, found `2`"},
        {"a in ()", "line 1, column 7: expected a number, found `)`"},
        {"a < 1.", "line 1, column 6: expected `and`, `or` or the end, found `.`"},
        {"a < .5", "line 1, column 5: expected a number, found `.`"},
        {"a < 1e5", "line 1, column 6: expected `and`, `or` or the end, found `e5`"},
        {"a < - 1", "line 1, column 5: expected a number, found `-`"},
        {"a < 1,5", "line 1, column 6: expected `and`, `or` or the end, found `,`"},
        {"a < \"x\"", "line 1, column 5: expected a number, found `\"`"},
        {"a < nan", "line 1, column 5: expected a number, found `nan`"},
        {"1 < a", "line 1, column 1: expected the name of a column"},
        {"in < 1", "line 1, column 1: expected the name of a column"},
        {"not", "line 1, column 4: expected the name of a column"},
        {"a\xc3\xa4 < 1",
         "line 1, column 2: expected <, <=, ==, !=, >=, > or `in`, found byte 0xc3"},
        {"a < 12345678901234567890", "line 1, column 5: expected a number of at most 19 digits"},
        {"a < 0.1234567890123456789", "line 1, column 5: expected a number of at most 19 digits"},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++) {
        struct rp_error error = {0};
        struct rp_expression *expression;
        assert_int_equal(rp_expression_parse(&expression, bad[i][0], &error), -RP_E_CONFIG);
        assert_null(expression);
        if (strncmp(error.message, bad[i][1], strlen(bad[i][1])) != 0)
            fail_msg("`%s`:\n%s\nexpected: %s", bad[i][0], error.message, bad[i][1]);
    }
}

/* `count` times `text`, between two others. The caller frees it. */
static char *repeated(const char *before, const char *text, size_t count, const char *after)
{
    size_t bytes = strlen(text);
    char *made = malloc(strlen(before) + count * bytes + strlen(after) + 1), *to = made;
    to = stpcpy(to, before);
    for (size_t i = 0; i < count; i++)
        to = stpcpy(to, text);
    stpcpy(to, after);
    return made;
}

static void check_limit(char *text, bool is_fine, const char *expected)
{
    struct rp_error error = {0};
    struct rp_expression *expression;
    int code = rp_expression_parse(&expression, text, &error);
    if (is_fine != (code == 0))
        fail_msg("%.60s…: %d %s", text, code, error.message);
    if (!is_fine && !strstr(error.message, expected))
        fail_msg("%s", error.message);
    if (code == 0) { /* the deepest stack that there is */
        const struct rp_value_column columns[] = {{0, RP_VALUE_UNSIGNED}, {0, RP_VALUE_UNSIGNED}};
        const union rp_value value = {.word = 1};
        rp_expression_bind(expression, columns);
        (void)rp_expression_test(expression, &value, 1, 1);
    }
    rp_expression_free(expression);
    free(text);
}

static void limits_are_kept(void **state)
{
    (void)state;
    check_limit(repeated("a<1", " or a<1", 1023, ""), true, NULL);
    check_limit(repeated("a<1", " or a<1", 1024, ""), false, "at most 1024 comparisons");
    check_limit(repeated("a in (1", ",1", 1023, ")"), true, NULL);
    check_limit(repeated("a in (1", ",1", 1024, ")"), false, "at most 1024 comparisons");
    check_limit(repeated("", "(", 64, "a<1" /* and */), false, "expected `and`, `or` or `)`");
    char *close = repeated("a<1", ")", 64, "");
    check_limit(repeated("", "(", 64, close), true, NULL);
    check_limit(repeated("", "(", 65, close), false, "at most 64 open");
    free(close);
    check_limit(repeated("", "not ", 64, "a<1"), true, NULL);
    check_limit(repeated("", "not ", 65, "a<1"), false, "at most 64 open");
    close = repeated("a<1", ")", 64, "");
    check_limit(repeated("", "a<1 or a<1 and (", 64, close), true, NULL);
    free(close);
    check_limit(repeated("a<1 or not a<1 and ", "not not ", 32, "a<1"), true, NULL);
    check_limit(repeated("", "a", 47, "<1"), true, NULL);
    check_limit(repeated("", "a", 48, "<1"), false, "a name of at most 47 bytes");
    check_limit(repeated("a<1", " ", 65533, ""), true, NULL);
    check_limit(repeated("a<1", " ", 65534, ""), false, "at most 65536 bytes, found 65537");
    check_limit(repeated("a<1", " or a<1", 142857, ""), false, "found 1000002");
}

static void integers_are_compared_exactly(void **state)
{
    (void)state;
    const uint64_t large = UINT64_MAX - 1, least = (uint64_t)INT64_MIN;
    assert_false(of_word("a < 2.5", RP_VALUE_UNSIGNED, 3));
    assert_true(of_word("a < 3.000000000000000001", RP_VALUE_UNSIGNED, 3));
    assert_false(of_word("a >= 3.000000000000000001", RP_VALUE_UNSIGNED, 3));
    assert_true(of_word("a <= 3.0", RP_VALUE_UNSIGNED, 3));
    assert_false(of_word("a == 3.5", RP_VALUE_UNSIGNED, 3));
    assert_true(of_word("a != 3.5", RP_VALUE_UNSIGNED, 3));
    assert_true(of_word("a > -1", RP_VALUE_UNSIGNED, 0));
    assert_false(of_word("a <= -1", RP_VALUE_UNSIGNED, UINT64_MAX));
    assert_true(of_word("a > 9223372036854775807", RP_VALUE_UNSIGNED, large));
    assert_false(of_word("a > 9999999999999999999", RP_VALUE_SIGNED, INT64_MAX));
    assert_true(of_word("a < -0.5", RP_VALUE_SIGNED, UINT64_MAX));
    assert_false(of_word("a < -1", RP_VALUE_SIGNED, UINT64_MAX));
    assert_true(of_word("a >= -9223372036854775808", RP_VALUE_SIGNED, least));
    assert_false(of_word("a > -9223372036854775808", RP_VALUE_SIGNED, least));
    assert_true(of_word("a > -9223372036854775808.1", RP_VALUE_SIGNED, least));
    assert_true(of_word("a == -0", RP_VALUE_SIGNED, 0));
    /* 0.1 is between two words of 32 bits; 0.25 is one */
    assert_true(of_word("a < 0.1", RP_VALUE_FRACTION, 429496729));
    assert_false(of_word("a < 0.1", RP_VALUE_FRACTION, 429496730));
    assert_true(of_word("a == 0.25", RP_VALUE_FRACTION, 1u << 30));
    assert_false(of_word("a < 0.25", RP_VALUE_FRACTION, 1u << 30));
    assert_true(of_word("a < 1", RP_VALUE_FRACTION, UINT32_MAX));
    assert_true(of_word("a >= 0", RP_VALUE_FRACTION, 0));
    assert_true(of_word("not_in == 1", RP_VALUE_UNSIGNED, 1)); /* a name like a keyword */
}

static void real_numbers_are_compared_as_f64(void **state)
{
    (void)state;
    /* the locale of a program that is embedded may have a comma */
    (void)setlocale(LC_ALL, "de_DE.UTF-8");
    assert_true(of_real("a == 0.1", 0.1));
    assert_false(of_real("a == 0.1", (double)0.1f));
    assert_true(of_real("a == 0", -0.0));
    assert_true(of_real("a == -0.0", 0.0));
    /* ties to even: 2^53 + 1 is between 2^53 and 2^53 + 2 */
    assert_true(of_real("a == 9007199254740993", 0x1p53));
    assert_true(of_real("a == 9007199254740995", 0x1p53 + 4));
    assert_true(of_real("a == 9007199254740993.000000000000000001", 0x1p53 + 2));
    assert_true(of_real("a == 0.000000000000000001", 1e-18));
    assert_true(of_real("a == 9999999999999999999.999999999999999999", 1e19));
    assert_true(of_real("a == -123.456", -123.456));
    (void)setlocale(LC_ALL, "C");
}

static void programs_keep_the_order_of_the_operators(void **state)
{
    (void)state;
    assert_true(of_word("a == 1 or a == 1 and a == 2", RP_VALUE_UNSIGNED, 1));
    assert_false(of_word("(a == 1 or a == 1) and a == 2", RP_VALUE_UNSIGNED, 1));
    assert_true(of_word("not a == 1 or a == 1", RP_VALUE_UNSIGNED, 1));
    assert_false(of_word("not (a == 1 or a == 2)", RP_VALUE_UNSIGNED, 1));
    assert_true(of_word("not not (a == 1 or a == 2)", RP_VALUE_UNSIGNED, 1));
    assert_true(of_word("not (not (a == 1 or a == 2))", RP_VALUE_UNSIGNED, 2));
    assert_true(of_word("not (not (not a in (1, 2)))", RP_VALUE_UNSIGNED, 3));
    /* many documents, of two columns with a stride */
    union rp_value values[2 * 64];
    const struct rp_value_column columns[] = {{1, RP_VALUE_SIGNED}, {0, RP_VALUE_REAL}};
    for (uint32_t i = 0; i < 64; i++) {
        values[i].real = i / 2.0;
        values[64 + i].word = (uint64_t) - (int64_t)i;
    }
    struct rp_expression *expression = parse("a <= -10 and b < 20.25");
    rp_expression_bind(expression, columns);
    for (uint32_t count = 1; count <= 64; count++)
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(rp_expression_test(expression, values, 64, count) >> i & 1,
                             i >= 10 && i <= 40);
    assert_int_equal(rp_expression_test(expression, values, 64, 11), 1u << 10);
    rp_expression_free(expression);
}

static const struct rp_selection_spec spec; /* without columns of an index */

static int open_selection(struct rp_error *error_out)
{
    const struct rp_selection_repeat repeats[] = {{2, "fraction < 0.5"}, {9, "document in (1, 2)"}};
    struct rp_selection_spec all = spec;
    struct rp_selection *selection;
    uint64_t hash;
    all.select = "document < 4 and fraction >= 0.01";
    all.repeats = repeats;
    all.repeat_count = 2;
    all.source.name = "web";
    int code = rp_selection_open(&selection, &all, error_out);
    if (code == 0)
        code = rp_selection_hash(selection, 6, &hash, error_out);
    rp_selection_close(selection);
    return code;
}

static void every_allocation_of_a_selection_fails(void **state)
{
    (void)state;
    every_allocation(open_selection, false);
    every_allocation(open_selection, true);
}

static void bad_repeats_are_refused(void **state)
{
    (void)state;
    const struct {
        uint32_t first, second;
        const char *expected;
    } bad[] = {{1, 2, "repeat: 1: expected 2 to 255"},
               {3, 3, "repeat: 3: expected 4 to 255"},
               {3, 2, "repeat: 2: expected 4 to 255"},
               {2, 256, "repeat: 256: expected 3 to 255"}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++) {
        const struct rp_selection_repeat repeats[] = {{bad[i].first, "length < 1"},
                                                      {bad[i].second, "length < 1"}};
        struct rp_selection_spec all = spec;
        struct rp_selection *selection;
        struct rp_error error = {0};
        all.repeats = repeats;
        all.repeat_count = 2;
        all.source.name = "web";
        assert_int_equal(rp_selection_open(&selection, &all, &error), -RP_E_CONFIG);
        if (!strstr(error.message, bad[i].expected) || !strstr(error.message, "source `web`"))
            fail_msg("%s", error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_canonical_text_has_one_space),
        cmocka_unit_test(a_mistake_is_told_by_line_and_column),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(integers_are_compared_exactly),
        cmocka_unit_test(real_numbers_are_compared_as_f64),
        cmocka_unit_test(programs_keep_the_order_of_the_operators),
        cmocka_unit_test(every_allocation_of_a_selection_fails),
        cmocka_unit_test(bad_repeats_are_refused),
    };
    return run_with_faults("expression", tests, NULL, NULL);
}
