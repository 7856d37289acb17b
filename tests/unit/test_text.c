/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and near words, as people type them, and paths, as they are to type them. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/escape.h"
#include "base/text.h"

static void whole_numbers(void **state)
{
    (void)state;
    uint64_t value = 7;
    assert_true(rp_text_u64("18446744073709551615", &value) && value == UINT64_MAX);
    assert_false(rp_text_u64("18446744073709551616", &value));
    static const char *const none[] = {"", " 3", "+3", "-3", "3 ", "0x3", "3k", "k"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(rp_text_u64(none[i], &value));
    assert_true(value == UINT64_MAX); /* untouched */
}

static void decimals_as_programs_print_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum rp_decimal read;
        uint64_t millionths;
    } cases[] = {
        {"0.7", RP_DECIMAL_FINE, 700000},
        {".5", RP_DECIMAL_FINE, 500000},
        {"5.", RP_DECIMAL_FINE, 5000000},
        {"007", RP_DECIMAL_FINE, 7000000},
        {"1e-3", RP_DECIMAL_FINE, 1000},
        {"1e-05", RP_DECIMAL_FINE, 10},
        {"7e0", RP_DECIMAL_FINE, 7000000},
        {"2.50E+1", RP_DECIMAL_FINE, 25000000},
        {"0.70000000000000000000000", RP_DECIMAL_FINE, 700000},
        {"0e99", RP_DECIMAL_FINE, 0},
        {"18446744073709.551615", RP_DECIMAL_FINE, UINT64_MAX},
        {"18446744073709.551616", RP_DECIMAL_LARGE, 0},
        {"9223372036854775808", RP_DECIMAL_LARGE, 0},
        {"1e99999999999", RP_DECIMAL_LARGE, 0},
        {"1e-7", RP_DECIMAL_PARTS, 0},
        {"0.30000000000000004", RP_DECIMAL_PARTS, 0},
        {"1e-99999999999", RP_DECIMAL_PARTS, 0},
    };
    static const char *const none[] = {"",      ".",
                                       "e5",    "1e",
                                       "1e1.5", "1.2.3",
                                       "-0",    "-1",
                                       "+1",    "1_000",
                                       "0x10",  "nan",
                                       "inf",   "1,5",
                                       " 1",    "1 ",
                                       "1e-",   "1k",
                                       "1e5k",  ".e1",
                                       "NaN",   "np.float64(0.7)"};
    uint64_t value;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        value = 0;
        if (rp_text_decimal(cases[i].text, 6, &value) != cases[i].read ||
            value != cases[i].millionths)
            fail_msg("%s: found %" PRIu64, cases[i].text, value);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (rp_text_decimal(none[i], 6, &value) != RP_DECIMAL_NONE)
            fail_msg("`%s` is taken for a number", none[i]);
    static const char *const billions[] = {"1e9", "1.0e9", "1000000000.0", "10e8", "1g", "1000m"};
    for (size_t i = 0; i < sizeof billions / sizeof *billions; i++)
        assert_true(rp_text_count(billions[i], &value) && value == 1000000000);
    assert_true(rp_text_bytes("1e9", &value) && value == 1000000000);
    assert_true(rp_text_count("9.223372036854775808e18", &value) && value == UINT64_C(1) << 63);
    assert_false(rp_text_count("1e20", &value) || rp_text_count("1.5", &value));
    assert_false(rp_text_count("1_000", &value) || rp_text_count("1e-1", &value));
}

static void counts_have_powers_of_1000(void **state)
{
    (void)state;
    uint64_t value;
    assert_true(rp_text_count("3M", &value) && value == 3000000);
    assert_true(rp_text_count("7", &value) && value == 7);
    assert_true(rp_text_count("8Ki", &value) && value == 8192);
    assert_true(rp_text_count("2mi", &value) && value == 2 << 20);
    assert_false(rp_text_count("3mb", &value));
    assert_false(rp_text_count("3Kib", &value));
    assert_false(rp_text_count("3i", &value));
    assert_false(rp_text_count("18446745t", &value));
}

static void sizes_have_powers_of_1024(void **state)
{
    (void)state;
    uint64_t value;
    assert_true(rp_text_bytes("64MiB", &value) && value == 64 << 20);
    assert_true(rp_text_bytes("64mb", &value) && value == 64 << 20);
    assert_true(rp_text_bytes("100b", &value) && value == 100);
    assert_true(rp_text_bytes("16t", &value) && value == UINT64_C(16) << 40);
    assert_false(rp_text_bytes("100ib", &value));
    assert_false(rp_text_bytes("16777216t", &value));
}

static void expect_nearest(const char *word, const char *expected)
{
    static const char *const words[] = {"packers", "packing", "seed", "seq_len", "io"};
    struct rp_text_near near = {.word = word};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        rp_text_offer(&near, words[i]);
    if (expected)
        assert_string_equal(near.best, expected);
    else
        assert_null(near.best);
}

static void the_nearest_word_is_suggested_if_it_is_near(void **state)
{
    (void)state;
    expect_nearest("packing", "packing");
    expect_nearest("paking", "packing");
    expect_nearest("pakcers", "packers"); /* neighbours swapped: one mistake, not two */
    expect_nearest("seqlen", "seq_len");
    expect_nearest("oi", "io");
    expect_nearest("", NULL);
    expect_nearest("weather", NULL);
    char endless[200];
    for (size_t i = 0; i < sizeof endless; i++)
        endless[i] = i + 1 < sizeof endless ? 'a' : '\0';
    expect_nearest(endless, NULL);
}

static void a_suffix_has_something_before_it(void **state)
{
    (void)state;
    assert_true(rp_text_has_suffix("web/part-0.idx", ".idx"));
    assert_false(rp_text_has_suffix("part-0.bin", ".idx"));
    assert_false(rp_text_has_suffix(".idx", ".idx"));
    assert_false(rp_text_has_suffix("x", ".idx"));
}

/* A shell's reading of the word: the path. */
static void check_shell(const char *name, const char *path)
{
    struct rp_text_shell word;
    char command[sizeof word + 64], found[sizeof word + 8];
    snprintf(command, sizeof command, "exec %s <<'END'\nprintf %%s %s\nEND\n", name,
             rp_text_shell(&word, path));
    FILE *shell = popen(command, "r");
    assert_non_null(shell);
    found[fread(found, 1, sizeof found - 1, shell)] = 0;
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(path[0] == '-' ? found + 2 : found, path);
    assert_true(path[0] != '-' || !strncmp(found, "./", 2));
}

static void a_path_is_one_word_of_a_command(void **state)
{
    (void)state;
    assert_string_equal(RP_TEXT_SHELL("/data/a-b_c.bin"), "/data/a-b_c.bin");
    assert_string_equal(RP_TEXT_SHELL("s3://b/k%20=+,@.bin"), "s3://b/k%20=+,@.bin");
    assert_string_equal(RP_TEXT_SHELL("a b"), "'a b'");
    assert_string_equal(RP_TEXT_SHELL("it's"), "'it'\\''s'");
    assert_string_equal(RP_TEXT_SHELL("-x"), "./-x");
    assert_string_equal(RP_TEXT_SHELL_WORD("-x"), "-x");
    assert_string_equal(RP_TEXT_SHELL_WORD("- x"), "'- x'");
    static const char *const hostile[] = {"",
                                          "-rf",
                                          "- x",
                                          "~",
                                          "a;b",
                                          "$(x)`y`",
                                          "\"q\" 'r'",
                                          "\\",
                                          "''",
                                          "'",
                                          "*?[]{}!#&|<>()",
                                          "\xc3\xa9t\xc3\xa9"};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        check_shell("sh", hostile[i]);
    check_shell("bash", "a\n\033[31m'b\\\\c \xc2\x9bm"); /* sh need not know these quotes */
    char quotes[4096];
    memset(quotes, '\'', sizeof quotes - 1);
    quotes[sizeof quotes - 1] = 0;
    const char *cut = RP_TEXT_SHELL(quotes); /* and still one word */
    assert_true(strlen(cut) < sizeof(struct rp_text_shell) && cut[strlen(cut) - 1] == '\'');
    quotes[200] = 0;
    check_shell("sh", quotes);
    char path[RP_HINT_PATH_BYTES + 2];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    assert_string_equal(RP_HINT_PATH(path), "PATH");
    assert_string_equal(RP_HINT_PATH(path + 1), path + 1);
    path[sizeof path - 2] = ' '; /* it needs quotes, whose bytes count */
    assert_string_equal(RP_HINT_PATH(path + 1), "PATH");
}

static void a_text_becomes_utf8(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"caf\xe9/x", "caf?/x"},                  /* ISO 8859-1 */
        {"cut \xe2\x82", "cut ??"},               /* within a character */
        {"\xc0\xaf \xe0\x80\xaf", "?? ???"},      /* longer than needed */
        {"\xed\xa0\x80", "???"},                  /* a surrogate */
        {"\xf4\x90\x80\x80 \xff\x80", "???? ??"}, /* above the last character */
        {"\xef\xbf\xbf\xf4\x8f\xbf\xbf", "\xef\xbf\xbf\xf4\x8f\xbf\xbf"}, /* the last ones */
        {"\xe2\x82\xe2\x82\xac", "??\xe2\x82\xac"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", texts[i][0]);
        rp_text_make_utf8(text);
        assert_string_equal(text, texts[i][1]);
    }
}

static void control_characters_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *kept, *escaped;
    } cases[] = {
        {"", "", ""},
        {"plain \\ \xc3\xa9 \xe2\x82\xac", "", "plain \\ \xc3\xa9 \xe2\x82\xac"},
        {"a\033[2J\r\nb\177", "", "a\\033[2J\\015\\012b\\177"},
        {"a\tb\nc\a", "\n\t", "a\tb\nc\\007"},
        {"\xc2\x9bm\xc2\xa0", "", "\\302\\233m\xc2\xa0"}, /* U+009B; U+00A0 is a blank */
        {"a\xe2\x80\xae"
         "b\xd8\x9c\xe2\x81\xa6",
         "", "a\\342\\200\\256b\\330\\234\\342\\201\\246"},           /* they turn the direction */
        {"\xe2\x80\x94\xe2\x81\x84", "", "\xe2\x80\x94\xe2\x81\x84"}, /* a dash, a stroke */
        {"cut \xe2\x80", "", "cut \xe2\x80"},
        {"cut \xc2", "", "cut \xc2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[RP_ESCAPED_BYTES(64)];
        rp_escape(out, sizeof out, cases[i].text, cases[i].kept);
        assert_string_equal(out, cases[i].escaped);
    }
    char all[257] = "", out[RP_ESCAPED_BYTES(sizeof all)];
    memset(all, 0x1b, sizeof all - 1);
    for (size_t room = 1; room < sizeof out; room++) { /* whatever fits, and whole escapes */
        memset(out, 'x', sizeof out);
        rp_escape(out, room, all, "");
        assert_true(strlen(out) < room && strlen(out) % 4 == 0);
        assert_true(room == sizeof out - 1 || out[room] == 'x');
    }
    assert_int_equal(strlen(out), 4 * 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(decimals_as_programs_print_them),
        cmocka_unit_test(counts_have_powers_of_1000),
        cmocka_unit_test(sizes_have_powers_of_1024),
        cmocka_unit_test(the_nearest_word_is_suggested_if_it_is_near),
        cmocka_unit_test(a_suffix_has_something_before_it),
        cmocka_unit_test(a_path_is_one_word_of_a_command),
        cmocka_unit_test(a_text_becomes_utf8),
        cmocka_unit_test(control_characters_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
