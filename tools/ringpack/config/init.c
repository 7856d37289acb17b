/* SPDX-License-Identifier: Apache-2.0 */
/* init.c — `ringpack config init PATH...`: a config for a corpus, with every other key and its
 * default as a comment. It is checked before it is written, and no file is ever replaced. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/out_dir.h"
#include "base/text.h"
#include "cmd.h"
#include "config/keys.h"
#include "object/url.h"

/* The values of a new config that no option has set. */
static const struct {
    const char *key, *value;
} beginnings[] = {{"seq_len", "4096"}, {"batch_size", "8"}};

/* A text as YAML takes it: plain where it cannot be taken for anything else, else in quotes. */
static void write_text(FILE *out, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    if (text[0] != '-' && text[strspn(text, plain)] == '\0') {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fputc('\\', out);
        if ((unsigned char)*c < ' ')
            fprintf(out, "\\x%02x", (unsigned char)*c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void write_sources(FILE *out, const struct rp_config *config)
{
    char value[RP_KEYS_VALUE_BYTES];
    fputs("sources:\n", out);
    for (uint32_t i = 0; i < config->source_count; i++) {
        const struct rp_config_source *source = &config->sources[i];
        fputs("  - path: ", out);
        write_text(out, source->shards[0]);
        rp_config_source_value_text(source, "weight", value, sizeof value);
        fprintf(out, "\n    weight: %s\n", value);
    }
}

static void write_key(FILE *out, const struct rp_config *config, size_t i)
{
    const struct rp_config_key *key = &rp_config_keys()[i];
    static char value[RP_KEYS_STAGE_BYTES];
    if (!strcmp(key->name, "sources")) {
        write_sources(out, config);
        return;
    }
    if (config->lines[i] != 0) {
        rp_keys_value(config, i, value, sizeof value);
        fprintf(out, "%s: ", key->name);
        bool is_nested = strstr(key->type, "mapping") && strchr("[{", value[0]);
        if (is_nested) /* YAML on one line, as the option was */
            fputs(value, out);
        else
            write_text(out, value);
        fprintf(out, " # %s\n", key->help);
    } else {
        bool is_described = key->standard[0] == '(';
        fprintf(out, "# %s:%s%s # %s%s%s\n", key->name, is_described ? "" : " ",
                is_described ? "" : key->standard, key->help, is_described ? " " : "",
                is_described ? key->standard : "");
    }
}

static void write_config(FILE *out, const struct rp_config *config)
{
    fputs(
        "# A config of ringpack. `ringpack config check -c FILE` checks it, `ringpack plan` shows\n"
        "# how it packs, `ringpack serve` serves it. Keys after a # have their defaults.\n",
        out);
    for (size_t i = 0; rp_config_keys()[i].name; i++)
        write_key(out, config, i);
}

/* The words of the command line as sources, and the required keys. */
static int set_required(struct rp_config *config, const struct rp_keys_arguments *arguments,
                        struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; i < arguments->word_count && code >= 0; i++)
        code = rp_config_set(config, "sources", arguments->words[i], error);
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings && code >= 0; i++) {
        size_t key = 0;
        while (strcmp(rp_config_keys()[key].name, beginnings[i].key) != 0)
            key++;
        if (config->lines[key] == 0)
            code = rp_config_set(config, beginnings[i].key, beginnings[i].value, error);
    }
    return code < 0 ? code : 0;
}

static bool is_relative(const char *path)
{
    return path[0] && path[0] != '/' && !rp_url_is(path);
}

/* Make a path absolute. */
static int write_out(char **path, const char *here, struct rp_error *error)
{
    if (!is_relative(*path))
        return 0;
    char *whole = rp_asprintf("%s/%s", here, *path);
    if (!whole)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a path");
    free(*path);
    *path = whole;
    return 0;
}

/* Paths inside of other values: of the alert command's program, and of files of stages. */
static int write_out_inner(struct rp_config *config, const char *here, struct rp_error *error)
{
    char *command = config->alert_command;
    bool has_path = command && memchr(command, '/', strcspn(command, ","));
    int code = has_path ? write_out(&config->alert_command, here, error) : 0;
    for (uint32_t i = 0; i < config->stages.count; i++) {
        struct rp_config_by_source *without = &config->stages.stages[i].without;
        for (uint32_t j = 0; j < without->count && code == 0; j++)
            code = write_out(&without->pairs[j].path, here, error);
    }
    return code;
}

static int write_out_keys(struct rp_config *config, const char *here, struct rp_error *error)
{
    char value[RP_KEYS_VALUE_BYTES];
    int code = 0;
    for (size_t i = 0; rp_config_keys()[i].name && code >= 0; i++) {
        if (config->lines[i] == 0 || strcmp(rp_config_keys()[i].type, "path") != 0)
            continue;
        rp_keys_value(config, i, value, sizeof value);
        if (!is_relative(value) || !strcmp(value, "none"))
            continue;
        char *whole = rp_asprintf("%s/%s", here, value);
        code = whole ? rp_config_set(config, rp_config_keys()[i].name, whole, error)
                     : rp_fail(error, -ENOMEM, NULL, "out of memory for a path");
        free(whole);
    }
    return code < 0 ? code : 0;
}

/* Paths in a config are relative to it. Paths of the command line are relative to the working
 * directory, so they are written out for a config in another directory. */
static int write_out_paths(struct rp_config *config, const char *output, struct rp_error *error)
{
    if (!output || !strchr(output, '/'))
        return 0;
    char *here = getcwd(NULL, 0);
    int code = here
                   ? 0
                   : rp_fail(error, -errno, NULL, "the working directory: %s", rp_strerror(-errno));
    for (uint32_t i = 0; i < config->source_count && code == 0; i++)
        code = write_out(&config->sources[i].shards[0], here, error);
    if (code == 0)
        code = write_out_inner(config, here, error);
    if (code == 0)
        code = write_out_keys(config, here, error);
    free(here);
    return code;
}

static int write_file(const char *path, const char *text, size_t bytes, struct rp_error *error)
{
    const char *name;
    int dir = rp_out_dir_of(path, &name, error);
    if (dir < 0)
        return dir;
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    close(dir);
    if (fd < 0)
        return rp_fail(error, -errno,
                       errno == EEXIST ? "give another name, or move the file" : NULL, "%s: %s",
                       path, rp_strerror(-errno));
    int code = rp_file_write(fd, path, text, bytes, error);
    close(fd);
    if (code < 0)
        unlink(path); /* ours: it did not exist */
    return code;
}

/* Make the text, check the config, and only then write. */
static int make(struct rp_config *config, const char *output, struct rp_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the config");
    write_config(out, config);
    int code = fclose(out) == 0 ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for the config");
    if (code == 0)
        code = rp_keys_finish(config, error);
    if (code == 0 && output)
        code = write_file(output, text, bytes, error);
    else if (code == 0)
        fputs(text, stdout);
    free(text);
    return code;
}

int rp_keys_init(const struct rp_keys_arguments *arguments, struct rp_config *config)
{
    struct rp_error error;
    if (arguments->line.path)
        return rp_cmd_misuse("config", "init makes a config, so it takes no -c");
    if (arguments->word_count == 0 && config->source_count == 0)
        return rp_cmd_misuse("config", "init: expected the paths of a corpus");
    int code = set_required(config, arguments, &error);
    if (code == 0)
        code = write_out_paths(config, arguments->output, &error);
    if (code == 0)
        code = make(config, arguments->output, &error);
    if (code < 0)
        return rp_cmd_report(&error);
    if (arguments->output)
        printf("%s: written; `ringpack plan -c %s` shows how it packs\n", arguments->output,
               RP_TEXT_SHELL(arguments->output));
    return RP_EXIT_FINE;
}
