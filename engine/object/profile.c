/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c — read the profile of AWS's tools. The files are INI files, as Python's configparser
 * reads them: names of keys in any case, `=` or `:` after them, comments of # and ;. Lines that are
 * indented below a key without a value are settings of that key. */
#include "object/profile.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/mem.h"

#define FILE_BYTES_MAX (1u << 20)

const char *rp_environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static char *path_of(const char *variable, const char *name)
{
    const char *given = rp_environment(variable), *home = rp_environment("HOME");
    return given ? strdup(given) : home ? rp_asprintf("%s/.aws/%s", home, name) : NULL;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

/* "[profile NAME]" in config, "[NAME]" in credentials; config has its default without the word. For
 * other sections the caller passes the word: "services". */
static bool is_header_of(char *line, const char *word, const char *wanted)
{
    char *end = strrchr(line, ']');
    size_t length = strlen(word);
    if (*line != '[' || !end)
        return false;
    *end = '\0';
    char *name = trim(line + 1);
    bool has_word = !strncmp(name, word, length) && isspace((unsigned char)name[length]);
    if (has_word)
        name = trim(name + length);
    size_t bytes = strlen(name);
    bool is_quoted = bytes > 1 && strchr("\"'", name[0]) && name[bytes - 1] == name[0];
    if (is_quoted) {
        name[bytes - 1] = '\0';
        name++;
    }
    return !strcmp(name, wanted) && (has_word || !strcmp(word, "profile"));
}

/* The wanted value: a key of a section, or a setting of a key. */
struct wanted {
    const char *word, *section; /* "profile" and its name */
    const char *parent;         /* NULL: a key of the section itself */
    const char *key;            /* NULL: is the section there? */
};

/* The value in a line of the section; NULL if the line has another key. *inside: do the next lines,
 * if they are indented, belong to the parent? */
static char *value_in(char *line, const struct wanted *wanted, bool *inside)
{
    bool is_indented = isspace((unsigned char)*line);
    char *equals = line + strcspn(line, "=:"), *name = line + strspn(line, " \t");
    if (!*equals || *name == '#' || *name == ';')
        return NULL;
    *equals = '\0';
    name = trim(name);
    char *value = trim(equals + 1);
    if (!is_indented)
        *inside = wanted->parent && !strcasecmp(name, wanted->parent) && !*value;
    bool is_here = wanted->parent ? is_indented && *inside : !is_indented;
    return is_here && !strcasecmp(name, wanted->key) ? value : NULL;
}

/* The value; for a NULL key "" if the section exists. The caller frees it. */
static char *search_file(const char *path, const struct wanted *wanted)
{
    char *text, *rest, *found = NULL;
    size_t bytes;
    if (!path || rp_file_read_all(path, FILE_BYTES_MAX, &text, &bytes, NULL) < 0)
        return NULL;
    bool is_inside = false, is_below = false;
    for (char *line = strtok_r(text, "\n", &rest); line && !found;
         line = strtok_r(NULL, "\n", &rest)) {
        if (*line == '[') {
            is_inside = is_header_of(line, wanted->word, wanted->section);
            is_below = false;
            found = is_inside && !wanted->key ? strdup("") : NULL;
        } else if (is_inside && wanted->key) {
            const char *value = value_in(line, wanted, &is_below);
            found = value ? strdup(value) : NULL;
        }
    }
    explicit_bzero(text, bytes);
    free(text);
    return found;
}

static const struct {
    const char *variable, *name;
} files[] = {{"AWS_SHARED_CREDENTIALS_FILE", "credentials"}, {"AWS_CONFIG_FILE", "config"}};

static char *search(const struct wanted *wanted)
{
    char *found = NULL;
    for (size_t i = 0; i < RP_ARRAY_COUNT(files) && !found; i++) {
        char *path = path_of(files[i].variable, files[i].name);
        found = search_file(path, wanted);
        free(path);
    }
    return found;
}

/* ---- from outside ---------------------------------------------------------------------------- */

int rp_environment_flag(const char *name, bool *value, struct rp_error *error)
{
    static const char *const words[][2] = {
        {"false", "true"}, {"0", "1"}, {"no", "yes"}, {"off", "on"}};
    const char *given = rp_environment(name);
    *value = false;
    for (size_t i = 0; given && i < RP_ARRAY_COUNT(words); i++)
        for (int yes = 0; yes < 2; yes++)
            if (!strcasecmp(given, words[i][yes])) {
                *value = yes;
                return 0;
            }
    return given ? rp_fail(error, -RP_E_CONFIG, "set it to true or false, or unset it",
                           "%s: expected true or false, found `%.64s`", name, given)
                 : 0;
}

const char *rp_environment_authorities(void)
{
    static const char *const names[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    const char *given = NULL;
    for (size_t i = 0; i < RP_ARRAY_COUNT(names) && !given; i++)
        given = rp_environment(names[i]);
    return given;
}

const char *rp_profile_name(void)
{
    const char *given = rp_environment("AWS_PROFILE");
    if (!given)
        given = rp_environment("AWS_DEFAULT_PROFILE");
    return given ? given : "default";
}

int rp_profile_check(struct rp_error *error)
{
    const char *one = rp_environment("AWS_PROFILE"), *two = rp_environment("AWS_DEFAULT_PROFILE");
    int code = 0;
    if (one && two && strcmp(one, two) != 0)
        code = rp_fail(error, -RP_E_CONFIG, "unset one of them: AWS's tools differ in which counts",
                       "credentials: AWS_PROFILE is `%.64s`, and AWS_DEFAULT_PROFILE is `%.64s`",
                       one, two);
    for (size_t i = 0; i < RP_ARRAY_COUNT(files) && code == 0; i++) {
        char *path = path_of(files[i].variable, files[i].name), *text = NULL;
        size_t bytes;
        struct rp_error local;
        int read = path ? rp_file_read_all(path, FILE_BYTES_MAX, &text, &bytes, &local) : -ENOENT;
        if (read == 0)
            explicit_bzero(text, bytes);
        if (read < 0 && read != -ENOENT && read != -ENOTDIR)
            code = rp_fail(error, read,
                           "make it readable, or name another by AWS_CONFIG_FILE and "
                           "AWS_SHARED_CREDENTIALS_FILE",
                           "credentials: %s", local.message);
        free(text);
        free(path);
    }
    return code;
}

char *rp_profile_value(const char *key)
{
    char parent[16] = "";
    const char *slash = strchr(key, '/');
    if (slash)
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - key), key);
    return search(&(struct wanted){"profile", rp_profile_name(), slash ? parent : NULL,
                                   slash ? slash + 1 : key});
}

char *rp_profile_service_value(const char *key)
{
    char *services = rp_profile_value("services"), *found = NULL;
    if (services)
        found = search(&(struct wanted){"services", services, "s3", key});
    free(services);
    return found ? found : rp_profile_value(key);
}

void rp_profile_keys(struct rp_profile_keys *keys)
{
    *keys = (struct rp_profile_keys){0};
    for (size_t i = 0; i < RP_ARRAY_COUNT(files) && !keys->key_id && !keys->secret; i++) {
        char *path = path_of(files[i].variable, files[i].name);
        struct wanted wanted = {"profile", rp_profile_name(), NULL, "aws_access_key_id"};
        keys->key_id = search_file(path, &wanted);
        wanted.key = "aws_secret_access_key";
        keys->secret = search_file(path, &wanted);
        wanted.key = "aws_session_token";
        rp_free_secret(keys->session_token);
        keys->session_token = search_file(path, &wanted);
        free(path);
    }
}

bool rp_profile_exists(void)
{
    char *found = search(&(struct wanted){"profile", rp_profile_name(), NULL, NULL});
    free(found);
    return found != NULL;
}
