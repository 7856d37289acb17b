/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.c — see cmd_run.h. */
#include "cmd_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "cmd.h"
#include "cmd_config.h"
#include "cmd_options.h"
#include "shm/run_dir.h"

#define FIRST 3 /* words before those that were typed: the program, --run-dir and RUN */

/* The command line that the verb's parser gets. Its words live until the process ends. */
struct line {
    const struct argp_option *options;
    char **words;
    int count;
    bool has_run_dir;
    const char *run, *config; /* that were given */
    char *run_dir;            /* of the config */
};

/* The option of a word, and its value; NULL if it is none. `*next`: the value is the next word. */
static const struct argp_option *option_of(const struct line *line, const char *word,
                                           const char **value, bool *next)
{
    bool is_long = strncmp(word, "--", 2) == 0;
    size_t length = is_long ? strcspn(word + 2, "=") : 1;
    const struct argp_option *found = NULL;
    for (const struct argp_option *o = line->options; o->name || o->key; o++) {
        if (is_long && o->name && strncmp(o->name, word + 2, length) == 0 &&
            (!found || strlen(o->name) == length))
            found = o;
        if (!is_long && word[0] == '-' && word[1] != '\0' && o->key == word[1])
            found = o;
    }
    const char *end = word + (is_long ? 2 + length : 2);
    bool has_value = found && found->arg;
    *next = has_value && *end == '\0';
    *value = has_value && *end != '\0' ? end + is_long : NULL;
    return found;
}

int rp_cmd_run_of(const char *config_path, struct rp_run_of *of, struct rp_error *error)
{
    struct rp_config config;
    rp_config_init(&config);
    *of = (struct rp_run_of){.run = NULL};
    int code = rp_cmd_config_read_file(&config, config_path, error);
    if (code >= 0) {
        const char *saved = config.checkpoint_dir;
        bool saves = saved && strcmp(saved, "none") != 0;
        of->run = strdup(config.run ? config.run : "default");
        of->run_dir = config.run_dir ? strdup(config.run_dir) : NULL;
        of->checkpoint_dir = saves ? strdup(saved) : NULL;
        if (!of->run || (config.run_dir && !of->run_dir) || (saves && !of->checkpoint_dir))
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for its run", config_path);
    }
    rp_config_free(&config);
    if (code >= 0)
        return 0;
    rp_cmd_run_free(of);
    return code;
}

bool rp_cmd_is_run(const char *word)
{
    struct stat info;
    return stat(word, &info) < 0 && errno == ENOENT && rp_run_name_check(word, NULL) == 0;
}

void rp_cmd_run_free(struct rp_run_of *of)
{
    free(of->run);
    free(of->run_dir);
    free(of->checkpoint_dir);
    *of = (struct rp_run_of){.run = NULL};
}

static int take_config(struct line *line, struct rp_error *error)
{
    struct rp_run_of of;
    int code = rp_cmd_run_of(line->config, &of, error);
    bool has_dir = code == 0 && of.run_dir && !line->has_run_dir;
    line->run = of.run;
    of.run = NULL; /* of the line now */
    line->run_dir = has_dir ? rp_format("--run-dir=%s", of.run_dir) : NULL;
    rp_cmd_run_free(&of);
    if (has_dir && !line->run_dir)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for its run", line->config);
    return code;
}

/* Leave out --run and -c. */
static void take_words(struct line *line, int argc, char **argv)
{
    bool is_end = false, next = false;
    const char *value;
    for (int i = 1; i < argc; i++) {
        is_end = is_end || strcmp(argv[i], "--") == 0;
        const struct argp_option *option = is_end ? NULL : option_of(line, argv[i], &value, &next);
        bool is_run = option && option->key == RP_OPTION_RUN;
        bool is_config = option && option->key == 'c';
        bool has_next = option && next && i + 1 < argc;
        line->has_run_dir |= option && option->name && !strcmp(option->name, "run-dir");
        if ((is_run || is_config) && (has_next || value))
            *(is_run ? &line->run : &line->config) = has_next ? argv[++i] : value;
        else {
            line->words[line->count++] = argv[i];
            if (has_next)
                line->words[line->count++] = argv[++i];
        }
    }
}

int rp_cmd_parse_run(const struct argp *argp, int argc, char **argv, void *input)
{
    struct rp_error error = {0};
    struct line line = {.options = argp->options,
                        .words = rp_calloc((size_t)argc + 4, sizeof *line.words)};
    if (!line.words) {
        rp_fail(&error, -ENOMEM, NULL, "no memory for the command line");
        return rp_cmd_report(&error);
    }
    line.count = FIRST;
    take_words(&line, argc, argv);
    if (line.config && line.run) {
        rp_fail(&error, -RP_E_USAGE, "give one of them", "--run %s, and -c %s", line.run,
                line.config);
        return rp_cmd_report(&error);
    }
    if (line.config && take_config(&line, &error) < 0)
        return rp_cmd_report(&error);
    int first = FIRST; /* before the others, of which one may be `--` */
    if (line.run)
        line.words[--first] = (char *)(uintptr_t)line.run;
    if (line.run_dir)
        line.words[--first] = line.run_dir;
    line.words[--first] = argv[0];
    return rp_cmd_parse(argp, line.count - first, line.words + first, input);
}
