/* SPDX-License-Identifier: Apache-2.0 */
/* profile — see profile.h. The files are INI files; nested settings (lines that are indented below
 * a key) are left out. */
#include "object/profile.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return given ? strdup(given) : home ? rp_format("%s/.aws/%s", home, name) : NULL;
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

/* "[profile NAME]" in config, "[NAME]" in credentials; config has its default without the word. */
static bool is_header_of(char *line, const char *profile)
{
    char *end = strchr(line, ']');
    if (*line != '[' || !end)
        return false;
    *end = '\0';
    char *name = trim(line + 1);
    if (!strncmp(name, "profile", 7) && isspace((unsigned char)name[7]))
        name = trim(name + 7);
    return !strcmp(name, profile);
}

/* The value of a key, "" of a NULL key if the profile is there; the caller frees it. */
static char *look_into(const char *path, const char *profile, const char *key)
{
    char *text, *rest, *found = NULL;
    size_t bytes;
    if (!path || rp_file_read_all(path, FILE_BYTES_MAX, &text, &bytes, NULL) < 0)
        return NULL;
    bool is_inside = false;
    for (char *line = strtok_r(text, "\n", &rest); line && !found;
         line = strtok_r(NULL, "\n", &rest)) {
        char *equals = strchr(line, '=');
        if (*line == '[')
            is_inside = is_header_of(line, profile);
        if (is_inside && !key)
            found = strdup("");
        if (!is_inside || !key || !equals || isspace((unsigned char)*line) || *line == '#')
            continue;
        *equals = '\0';
        if (!strcmp(trim(line), key))
            found = strdup(trim(equals + 1));
    }
    explicit_bzero(text, bytes);
    free(text);
    return found;
}

static char *look_for(const char *key)
{
    const char *profile = rp_environment("AWS_PROFILE");
    char *config = path_of("AWS_CONFIG_FILE", "config");
    char *credentials = path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    char *found = look_into(credentials, profile ? profile : "default", key);
    if (!found)
        found = look_into(config, profile ? profile : "default", key);
    free(config);
    free(credentials);
    return found;
}

char *rp_profile_value(const char *key)
{
    return look_for(key);
}

bool rp_profile_exists(void)
{
    char *found = look_for(NULL);
    free(found);
    return found != NULL;
}
