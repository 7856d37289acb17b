/* SPDX-License-Identifier: Apache-2.0 */
/* list.c — `ringpack config keys`: every key with its type, its default and its meaning, as text
 * or as the manual page ringpack.yaml(5). Both are made of the table that the reader of configs
 * uses. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cmd.h"
#include "config/keys.h"

struct list {
    const char *title, *about;
    const struct rp_config_key *keys;
    const char *(*at_resume)(const char *key); /* NULL: the key that has the mapping says it */
    bool is_inner;                             /* a key of this name in an earlier list is meant */
};

/* The default in brackets; one in parentheses is a description. */
static void print_standard(const struct rp_config_key *key)
{
    if (key->standard[0] == '(')
        printf("%s", key->standard);
    else
        printf("(default: %s)", key->standard);
}

static void print_at_resume(const struct list *list, const struct rp_config_key *key)
{
    static const char may[] = "may change";
    const char *words = list->at_resume ? list->at_resume(key->name) : NULL;
    if (!words)
        printf("\n");
    else if (!strncmp(words, may, sizeof may - 1))
        printf("; %s on resume%s\n", may, words + sizeof may - 1);
    else
        printf("; must not change on resume\n");
}

static void print_key(const struct list *list, const struct rp_config_key *key)
{
    printf("  %-22s %s\n%25s%s ", key->name, key->help, "", key->type);
    print_standard(key);
    print_at_resume(list, key);
}

static void print_text(const struct list *list)
{
    printf("%s\n%s\n\n", list->title, list->about);
    for (const struct rp_config_key *key = list->keys; key->name; key++)
        print_key(list, key);
    printf("\n");
}

static const char *of_stage(const char *key)
{
    (void)key;
    return "may change, in a stage that is not begun";
}

/* One key, which may be written as in its option: batch-size. A name may be in several lists. */
static int print_named(const struct list *lists, size_t list_count, const char *word)
{
    char name[RP_TEXT_WORD_MAX];
    struct rp_text_near near = {.word = name};
    bool found = false;
    snprintf(name, sizeof name, "%s", word);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : *c;
    for (size_t i = 0; i < list_count; i++)
        for (const struct rp_config_key *key = lists[i].keys; key->name; key++) {
            rp_text_offer(&near, key->name);
            if (strcmp(key->name, name) != 0 || (found && lists[i].is_inner))
                continue;
            print_key(&lists[i], key);
            found = true;
        }
    if (found)
        return RP_EXIT_FINE;
    if (near.best)
        return rp_cmd_misuse("config", "keys: there is no key `%s`; did you mean `%s`?", name,
                             near.best);
    return rp_cmd_misuse("config", "keys: there is no key `%s`", name);
}

/* A text in a page of man(7): no character of it is taken for a request. */
static void print_escaped(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
    }
}

static void print_manual(const struct list *list)
{
    printf(".SH %s\n%s\n", list->title, list->about);
    for (const struct rp_config_key *key = list->keys; key->name; key++) {
        printf(".TP\n.B %s\n", key->name);
        print_escaped(key->help);
        printf("\n.br\n");
        print_escaped(key->type);
        putchar(' ');
        print_escaped(key->standard[0] == '(' ? key->standard : "(default: ");
        if (key->standard[0] != '(') {
            print_escaped(key->standard);
            putchar(')');
        }
        print_at_resume(list, key);
    }
}

static const char manual_head[] =
    ".TH RINGPACK.YAML 5 \"\" \"ringpack " RP_VERSION "\" \"File formats\"\n"
    ".SH NAME\nringpack.yaml \\- the config of a run of ringpack\n"
    ".SH DESCRIPTION\n"
    "A YAML file whose keys are those below. Each is also an option of the commands that take a\n"
    "config (\\-\\-batch\\-size) and a parameter of the Loader in Python. Options override the "
    "file.\n"
    "Paths are relative to the file. Counts take k, m, g and t for powers of 1000, and Ki, Mi, Gi\n"
    "and Ti for powers of 1024; sizes in bytes take k, m, g and t for powers of 1024.\n"
    ".PP\n"
    ".BR \"ringpack config init\" \" writes such a file, \" \"ringpack config check\"\n"
    "checks one.\n";

int rp_keys_list(const struct rp_keys_arguments *arguments)
{
    const struct list lists[] = {
        {"KEYS", "Every key of a config.", rp_config_keys(), rp_keys_at_resume, false},
        {"KEYS OF A SOURCE", "Each entry of sources is a path, or a mapping with the keys below.",
         rp_config_source_keys(), rp_keys_of_source_at_resume, false},
        {"KEYS OF A STAGE", "Each entry of stages is a mapping with the keys below.",
         rp_config_stage_keys(), of_stage, true},
        {"KEYS OF A DEAL", "`deal` is off, auto, or a mapping with the keys below.",
         rp_config_deal_keys(), NULL, true},
        {"KEYS OF A COST", "`cost` is a number, or a mapping with the keys below.",
         rp_config_cost_keys(), NULL, true},
        {"KEYS OF LIMITS", "`limits` has for each source a mapping with the keys below.",
         rp_config_limits_keys(), NULL, true},
    };
    if (arguments->word_count > 0) {
        int status = RP_EXIT_FINE;
        for (size_t i = 0; i < arguments->word_count && status == RP_EXIT_FINE; i++)
            status = print_named(lists, sizeof lists / sizeof *lists, arguments->words[i]);
        return status;
    }
    if (arguments->manual)
        fputs(manual_head, stdout);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (arguments->manual)
            print_manual(&lists[i]);
        else
            print_text(&lists[i]);
    }
    if (arguments->manual)
        fputs(".SH SEE ALSO\n.BR ringpack (1),\n.BR ringpack\\-config (1)\n", stdout);
    return RP_EXIT_FINE;
}
