/* SPDX-License-Identifier: Apache-2.0 */
/* given.c — record the keys that options set, and write the kept text of a config. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/config.h"
#include "config/kept.h"
#include "config/key.h"

/* The absolute form of a path of an option. */
static char *absolute(const char *path)
{
    char directory[PATH_MAX];
    if (!*path || !getcwd(directory, sizeof directory))
        return strdup(path);
    return rp_config_path_behind(directory, path);
}

/* Make each path of a list absolute. */
static char *absolute_list(const char *text)
{
    char *copy = strdup(text), *rest = copy, *list = NULL;
    for (char *path; copy && (path = strsep(&rest, ",")) != NULL;) {
        char *one = absolute(path);
        char *longer = one ? rp_asprintf("%s%s%s", list ? list : "", list ? "," : "", one) : NULL;
        free(one);
        free(list);
        list = longer;
        if (!list)
            break;
    }
    free(copy);
    return list;
}

/* A newline or a backslash of a value takes two characters. */
static char *escape(const char *text)
{
    char *out = malloc(2 * strlen(text) + 1), *to = out;
    for (; out && *text; text++) {
        if (*text == '\n' || *text == '\\')
            *to++ = '\\';
        *to++ = *text == '\n' ? 'n' : *text;
    }
    if (out)
        *to = '\0';
    return out;
}

int rp_config_note_given(struct rp_config *config, const struct rp_key *key, const char *name,
                         const char *text, struct rp_error *error)
{
    bool is_word = key->words && rp_word_index(key->words, text) >= 0;
    bool is_path = (key->kind == RP_KIND_PATH && !is_word) || rp_key_is_program_path(key, text);
    char *value = key->kind == RP_KIND_SOURCES ? absolute_list(text)
                  : is_path                    ? absolute(text)
                                               : strdup(text);
    char *escaped = value ? escape(value) : NULL;
    char *given = escaped ? rp_asprintf("%s" RP_KEPT_LINE "%s %s\n",
                                        config->given ? config->given : "", name, escaped)
                          : NULL;
    free(value);
    free(escaped);
    if (!given)
        return rp_fail(error, -ENOMEM, NULL, "out of memory while keeping the config");
    free(config->given);
    config->given = given;
    return 0;
}

static char *text_of_file(const struct rp_config *config, const char *given)
{
    char *path = absolute(config->path), *escaped = path ? escape(path) : NULL;
    char *hidden = rp_config_hide_yaml(config->text);
    size_t bytes = hidden ? strlen(hidden) : 0;
    const char *end = bytes && hidden[bytes - 1] != '\n' ? "\n" : "";
    char *text = escaped && hidden ? rp_asprintf("%s%s" RP_KEPT_LINE RP_KEPT_FILE "%s\n%s", hidden,
                                                 end, escaped, given)
                                   : NULL;
    free(path);
    free(escaped);
    free(hidden);
    return text;
}

char *rp_config_kept_text(const struct rp_config *config)
{
    char *given = strdup(config->given ? config->given : ""), *text = NULL;
    if (given) {
        rp_config_hide_options(given);
        text = config->path ? text_of_file(config, given)
                            : rp_asprintf(RP_KEPT_LINE RP_KEPT_NO_FILE "\n%s", given);
    }
    rp_free_secret(given);
    return text;
}
