/* SPDX-License-Identifier: Apache-2.0 */
#include "options_help.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS 79
#define HELP_AT 24 /* the column of the texts of options */

static int columns_of(const char *text, size_t bytes)
{
    int columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += (text[i] & 0xc0) != 0x80; /* a character of UTF-8 has one such byte */
    return columns;
}

/* Print lines that begin with a space as they are. Returns the rest. */
static const char *print_verbatim(const char *text)
{
    while (*text == ' ') {
        size_t bytes = strcspn(text, "\n");
        printf("%.*s\n", (int)bytes, text);
        text += bytes + (text[bytes] == '\n');
    }
    return text;
}

/* Print a text from column `at` on, broken between words, with `indent` columns before its further
 * lines. */
static void print_text(const char *text, int indent, int at)
{
    while (*text) {
        size_t bytes = strcspn(text, " \n");
        int columns = columns_of(text, bytes);
        if (at > indent && at + 1 + columns > COLUMNS) {
            printf("\n%*s", indent, "");
            at = indent;
        }
        at += printf("%s", at > indent ? " " : "") + columns;
        printf("%.*s", (int)bytes, text);
        text += bytes;
        if (*text == '\n') {
            putchar('\n');
            text = print_verbatim(text + 1);
            at = 0;
        } else if (*text == ' ') {
            text++;
        }
    }
    if (at > 0)
        putchar('\n');
}

static void print_option(const struct rp_option *option, bool all)
{
    char letter[] = {'-', option->letter, ',', ' ', '\0'};
    int at = printf("  %s--%s%s%s", option->letter ? letter : "", option->name,
                    option->value ? "=" : "", option->value ? option->value : "");
    if (at + 2 > HELP_AT) {
        putchar('\n');
        at = 0;
    }
    printf("%*s", HELP_AT - at, "");
    print_text(option->help, HELP_AT, HELP_AT);
    if (all && option->more) {
        printf("%*s", HELP_AT, "");
        print_text(option->more, HELP_AT, HELP_AT);
    }
}

void rp_help_print(const struct rp_verb *verb, const struct rp_option *options, size_t count,
                   bool all)
{
    const char *form = verb->usage ? verb->usage : "";
    for (const char *start = "Usage:"; form; start = "  or: ") {
        size_t bytes = strcspn(form, "\n");
        printf("%s ringpack %s [OPTION...]%s%.*s\n", start, verb->name, bytes ? " " : "",
               (int)bytes, form);
        form = form[bytes] ? form + bytes + 1 : NULL;
    }
    putchar('\n');
    print_text(verb->help, 0, 0);
    putchar('\n');
    for (size_t i = 0; i < count; i++)
        if (options[i].help)
            print_option(&options[i], all);
    if (verb->notes) {
        putchar('\n');
        print_text(verb->notes, 0, 0);
    }
    if (all && verb->all) {
        putchar('\n');
        print_text(verb->all, 0, 0);
    }
}
