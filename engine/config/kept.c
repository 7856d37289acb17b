/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c — read the config that a checkpoint keeps. */
#include "config/kept.h"

#include <errno.h>
#include <string.h>

#include "config/config.h"

static int no_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory while keeping the config");
}

static void unescape(char *text)
{
    char *to = text;
    for (; *text; text++) {
        bool is_escape = *text == '\\' && text[1];
        text += is_escape;
        *to++ = is_escape && *text == 'n' ? '\n' : *text;
    }
    *to = '\0';
}

/* The text after a prefix; NULL if the text does not begin with it. */
static char *after(char *text, const char *prefix)
{
    size_t bytes = strlen(prefix);
    return strncmp(text, prefix, bytes) ? NULL : text + bytes;
}

static char *kept_line(char *line)
{
    return after(line, RP_KEPT_LINE);
}

/* The begin of the last `file` or `no file`; NULL if the text has neither. */
static char *find_kept(char *text)
{
    char *found = NULL;
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        char *rest = kept_line(line);
        if (rest && (after(rest, RP_KEPT_FILE) || after(rest, RP_KEPT_NO_FILE)))
            found = line;
        if (!*line)
            break;
    }
    return found;
}

/* Apply the options after the first kept line. */
static int set_options(struct rp_config *config, char *rest, struct rp_error *error)
{
    int code = 0;
    for (char *line; code == 0 && (line = strsep(&rest, "\n")) != NULL;) {
        char *key = kept_line(line);
        char *value = key ? strchr(key, ' ') : NULL;
        if (!value)
            continue;
        *value++ = '\0';
        unescape(value);
        code = rp_config_set(config, key, value, error);
    }
    return code;
}

int rp_config_read_kept(struct rp_config *config, const char *text, size_t bytes, const char *name,
                        struct rp_error *error)
{
    char *copy = strndup(text, bytes), *rest = copy ? find_kept(copy) : NULL;
    if (!copy)
        return no_memory(error);
    int code = 0;
    config->is_kept = true;
    if (!rest) {
        code = rp_fail(error, -RP_E_VERSION, "give its config, too: `-c CONFIG`",
                       "%s: its config does not say where relative paths begin: it is of an older "
                       "ringpack",
                       name);
    } else {
        char *line = strsep(&rest, "\n");
        char *path = after(kept_line(line), RP_KEPT_FILE);
        if (path) {
            unescape(path);
            code = rp_config_read_text(config, copy, (size_t)(line - copy), path, error);
        }
        if (code == 0)
            code = set_options(config, rest, error);
    }
    config->is_kept = false; /* options that follow are the user's */
    if (code < 0 && code != -RP_E_VERSION)
        code = rp_fail_context(error, code, "the config that is kept in %s", name);
    free(copy);
    return code;
}
