/* SPDX-License-Identifier: Apache-2.0 */
/* Rights that URLs carry are hidden, in the text of a config and in messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/hide.h"
#include "config/config.h"

static void check_hidden(const char *text, const char *expected)
{
    char *hidden = rp_config_hide_yaml(text);
    assert_string_equal(hidden, expected);
    free(hidden);
}

/* In every spelling that YAML has. Texts that are not hidden are not changed. */
static void queries_of_urls_are_hidden(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"", ""},
        {"a: https://h/x", "a: https://h/x"},
        {"a: https://h/x?", "a: https://h/x?"},
        {"a: https://h/x?sig=1\nb: 2 # n\n", "a: https://h/x?*****\nb: 2 # n\n"},
        {"[https://h/x?a=b, 'https://h?b' ]", "[https://h/x?***, 'https://h?*' ]"},
        {"a: s3://b/x?.bin\nb: http://\nc: https://?a",
         "a: s3://b/x?.bin\nb: http://\nc: https://?*"},
        {"a: https://h/x?n='f g'&sig=1\nb: 1", "a: https://h/x?*************\nb: 1"},
        {"a: &z !!str \"https://h/x?a\\\n  \\x26sig=1\"\nb: *z",
         "a: &z !!str \"https://h/x?*******\"\nb: *z"},
        {"a: \"https://h/x\\x3fsig=1\"", "a: \"https://h/x?*****\""},
        {"{\"a\": \"https:\\/\\/h\\/x?sig=1\"}", "{\"a\": \"https://h/x?*****\"}"},
        {"a: \"\\u0068ttps://h/\\xe9?s\"", "a: \"https://h/\xc3\xa9?*\""},
        {"\xc3\xa9: 'https://h/it''s?a'", "\xc3\xa9: \"https://h/it's?*\""},
        {"a: >- # https://h?s=1\n  https://h/x?sig\n  =1\nb: 1",
         "a: \"https://h/x?******\"\nb: 1"}, /* lines that are joined by blanks */
        {"a: |-\n  https://h/x?sig=1\nb: 1\n", "a: |-\n  https://h/x?*****\nb: 1\n"},
        {"a: 1 # was https://h/x?\"s\\x3d\" \n# /x?sv=1\n",
         "a: 1 # was https://************\n# /x?****\n"},
        {"a: https://u:p@h/x", "a: https://***@h/x"},
        {"- HTTPS://h?A\n- 'x, http://h?a'", "- HTTPS://h?*\n- 'x, http://h?*'"},
        {"\xef\xbb\xbf"
         "a: https://h?a",
         "\xef\xbb\xbf"
         "a: https://h?*"},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++)
        check_hidden(cases[i].text, cases[i].shown);
    char lines[] = "# ringpack: sources https://h/a?s,https://h/b?t\n# ringpack: seed 1\n";
    rp_config_hide_options(lines);
    assert_string_equal(lines,
                        "# ringpack: sources https://h/a?***************\n# ringpack: seed 1\n");
}

/* Messages name their subject in quotes, or before a colon. */
static void queries_in_sentences_are_hidden(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"nothing", "nothing"},
        {"found `https://h/x?a'b c&sig=1`, and more", "found `https://h/x?***********`, and more"},
        {"https://h/x?a b&sig=1: not found", "https://h/x?*********: not found"},
        {"write https://HOST, or mail a@b", "write https://HOST, or mail a@b"},
        {"http://u:p@h/x: no", "http://***@h/x: no"},
        {"is this right?", "is this right?"},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        char text[128];
        snprintf(text, sizeof text, "%s", cases[i].text);
        rp_hide_in_sentence(text);
        assert_string_equal(text, cases[i].shown);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_of_urls_are_hidden),
        cmocka_unit_test(queries_in_sentences_are_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
