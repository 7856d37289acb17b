/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_checkpoint.c — `ringpack checkpoint list | show | verify | diff | export | import | rewind`.
 * Only `rewind` changes anything: it renames files. No file is ever removed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_run.h"
#include "cmd_state.h"
#include "checkpoint/run_journal.h"
#include "checkpoint_show.h"
#include "options.h"
#include "state/state_copy.h"

struct arguments {
    struct rp_cmd_line line;
    const char *path, *other; /* `other`: of diff */
    const char *output;
    uint64_t to, to_row;
    bool json, to_given, to_row_given;
};

static const struct rp_option options[] = {
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {RP_LOCAL("output", "FILE", struct arguments, output), .letter = 'o',
     .help = "the file that export and import write"},
    {RP_COUNT("to", "SEQUENCE", struct arguments, to),
     .given = offsetof(struct arguments, to_given), .expected = "a sequence number",
     .help = "rewind to this checkpoint"},
    {RP_COUNT("to-row", "ROW", struct arguments, to_row),
     .given = offsetof(struct arguments, to_row_given), .expected = "a row number",
     .help = "rewind to the newest checkpoint whose position is ROW or before it"},
    {0},
};

/* ---- list ------------------------------------------------------------------------------------ */

/* List the directories that fresh starts have made. */
static int list_set_aside(const char *path)
{
    struct rp_error error;
    struct rp_set_aside *asides;
    size_t count;
    int code = rp_checkpoint_set_asides(path, &asides, &count, &error);
    for (size_t i = 0; i < count && code == 0; i++) {
        char *place = rp_asprintf("%s/%s", path, asides[i].name);
        printf("%s: %zu set aside by a fresh start, sequences %" PRIu64 " to %" PRIu64
               "; `ringpack checkpoint list %s` shows them\n",
               asides[i].name, asides[i].count, asides[i].oldest_sequence,
               asides[i].newest_sequence, RP_TEXT_SHELL(place ? place : path));
        free(place);
    }
    free(asides);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int list(const struct arguments *arguments)
{
    struct rp_error error;
    struct rp_checkpoint_entry *entries;
    size_t count;
    if (rp_checkpoint_list(arguments->path, &entries, &count, &error) < 0)
        return rp_cmd_report(&error);
    if (arguments->json)
        rp_cmd_print_json(rp_show_checkpoint_entries_json(entries, count));
    else
        rp_show_checkpoint_entries_print(entries, count);
    rp_checkpoint_list_free(entries, count);
    return arguments->json ? RP_EXIT_FINE : list_set_aside(arguments->path);
}

/* ---- show ------------------------------------------------------------------------------------ */

static int show(const struct arguments *arguments)
{
    json_t *value = NULL;
    int status = rp_show_path(arguments->path, arguments->json ? &value : NULL);
    if (value)
        rp_cmd_print_json(value);
    return status;
}

/* ---- verify ---------------------------------------------------------------------------------- */

/* Set `message` to the damage that costs no run its stream, or to "". */
static void say_damage(const struct rp_checkpoint *checkpoint, char message[static 256])
{
    bool contents = rp_checkpoint_contents_bad(checkpoint);
    uint32_t type = rp_checkpoint_other_bad(checkpoint);
    char section[64] = "";
    message[0] = 0;
    if (type)
        snprintf(section, sizeof section, "section %" PRIu32 ", which no run needs", type);
    if (contents || type)
        snprintf(message, 256, "%.150s: %s%s%s: the stream is safe", rp_checkpoint_path(checkpoint),
                 contents ? "its contents, which will be read again" : "",
                 contents && type ? ", and " : "", section);
}

/* Set `message` to the damage, or to "". Returns an error if the file could not be checked. */
static int verify_one(const char *path, char message[static 256], struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    struct rp_state_info token;
    int code = rp_checkpoint_open(&checkpoint, path, error);
    if (code == 0)
        code = rp_show_checkpoint_token(checkpoint, &token, error);
    message[0] = 0;
    if (code == -RP_E_CORRUPT || code == -RP_E_FORMAT) {
        snprintf(message, 256, "%.255s", error->message);
        code = 0;
    } else if (code == 0) {
        say_damage(checkpoint, message);
    }
    rp_checkpoint_close(checkpoint);
    return code;
}

struct verdict {
    json_t *files; /* NULL = print lines */
    size_t checked, damaged;
};

static void judge(struct verdict *verdict, const char *path, const char *message)
{
    verdict->checked++;
    verdict->damaged += message[0] != 0;
    if (verdict->files)
        json_array_append_new(verdict->files,
                              json_pack("{s:o, s:b, s:o}", "path", rp_cmd_json_text(path), "good",
                                        message[0] == 0, "message", rp_cmd_json_text(message)));
    else if (message[0])
        printf("damaged  %s\n", message);
    else
        printf("good     %s\n", path);
}

static int verify_file(const char *path, struct verdict *verdict, struct rp_error *error)
{
    char message[256];
    int code = verify_one(path, message, error);
    if (code == 0)
        judge(verdict, path, message);
    return code;
}

static int verify_directory(const char *path, struct verdict *verdict, struct rp_error *error)
{
    struct rp_checkpoint_entry *entries;
    size_t count;
    int code = rp_checkpoint_list(path, &entries, &count, error);
    if (code < 0)
        return code;
    for (size_t i = 0; code == 0 && i < count; i++) {
        if (entries[i].status != RP_CHECKPOINT_BAD && entries[i].status != RP_CHECKPOINT_GOOD)
            continue; /* named .bad or .rewound: not in use */
        char *file = rp_asprintf("%s/%s", path, entries[i].name);
        code = file ? verify_file(file, verdict, error)
                    : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a path", path);
        free(file);
    }
    rp_checkpoint_list_free(entries, count);
    if (code == 0 && verdict->checked == 0)
        return rp_fail(error, -RP_E_EMPTY, "give the checkpoint directory of a run",
                       "%s: no checkpoint is here", path);
    return code;
}

static int verify(const struct arguments *arguments)
{
    struct rp_error error;
    struct verdict verdict = {.files = arguments->json ? json_array() : NULL};
    int code = rp_cmd_is_directory(arguments->path)
                   ? verify_directory(arguments->path, &verdict, &error)
                   : verify_file(arguments->path, &verdict, &error);
    if (code < 0) {
        json_decref(verdict.files);
        return rp_cmd_report(&error);
    }
    if (arguments->json)
        rp_cmd_print_json(json_pack("{s:I, s:I, s:o}", "checked", (json_int_t)verdict.checked,
                                    "damaged", (json_int_t)verdict.damaged, "files",
                                    verdict.files));
    else
        printf("%zu checked, %zu damaged\n", verdict.checked, verdict.damaged);
    return verdict.damaged ? RP_EXIT_DIFFERS : RP_EXIT_FINE;
}

/* ---- rewind ---------------------------------------------------------------------------------- */

static int find_target(const struct arguments *arguments, uint64_t *sequence,
                       struct rp_error *error)
{
    if (arguments->to_given) {
        *sequence = arguments->to;
        return 0;
    }
    struct rp_checkpoint_entry *entries;
    size_t count, i = 0;
    int code = rp_checkpoint_list(arguments->path, &entries, &count, error);
    if (code < 0)
        return code;
    while (i < count && (entries[i].status != RP_CHECKPOINT_GOOD ||
                         entries[i].info.next_row > arguments->to_row))
        i++;
    if (i < count)
        *sequence = entries[i].sequence;
    else
        code = rp_fail(error, -RP_E_USAGE, "`ringpack checkpoint list` shows the checkpoints",
                       "%s: no good checkpoint has a position of %" PRIu64 " or less",
                       arguments->path, arguments->to_row);
    rp_checkpoint_list_free(entries, count);
    return code;
}

static void journal_rewind(const char *directory, const struct rp_checkpoint *checkpoint)
{
    const char *path = rp_checkpoint_path(checkpoint), *slash = strrchr(path, '/');
    rp_checkpoint_journal_add_act(
        directory, json_pack("{s:s, s:o, s:I, s:I}", "event", "rewound", "checkpoint",
                             rp_checkpoint_journal_text(slash ? slash + 1 : path), "row",
                             (json_int_t)rp_checkpoint_info(checkpoint)->next_row, "uid",
                             (json_int_t)getuid()));
}

static int rewind_directory(const struct arguments *arguments)
{
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    uint64_t sequence = 0;
    if (arguments->to_given == arguments->to_row_given)
        return rp_cmd_misuse("checkpoint", "rewind: expected --to SEQUENCE or --to-row ROW");
    int code = find_target(arguments, &sequence, &error);
    if (code == 0)
        code = rp_checkpoint_rewind(arguments->path, sequence, &error);
    if (code == 0)
        code = rp_cmd_open_checkpoint(&checkpoint, arguments->path, &error);
    if (code < 0)
        return rp_cmd_report(&error);
    journal_rewind(arguments->path, checkpoint);
    printf("%s: the newest is now checkpoint %" PRIu64 ", at row %" PRIu64
           "; later ones are called NAME.rewound, and the next start renames copies of them, "
           "too\n",
           arguments->path, sequence, rp_checkpoint_info(checkpoint)->next_row);
    rp_checkpoint_close(checkpoint);
    return RP_EXIT_FINE;
}

/* ---- diff, export, import -------------------------------------------------------------------- */

static int diff(const struct arguments *arguments)
{
    if (!arguments->other)
        return rp_cmd_misuse("checkpoint", "diff: expected two checkpoints or states");
    return rp_saved_diff(arguments->path, arguments->other, arguments->json);
}

static int export_state(const struct arguments *arguments)
{
    struct rp_error error;
    struct rp_run_of of = {.run = NULL};
    struct rp_saved_copy copy = {.path = arguments->path,
                                 .run = arguments->line.run,
                                 .run_dir = arguments->line.run_dir,
                                 .output = arguments->output,
                                 .json = arguments->json};
    if (!arguments->output)
        return rp_cmd_misuse("checkpoint", "export: expected -o FILE");
    if (arguments->line.path &&
        rp_cmd_run_of(arguments->line.path, arguments->line.stream, &of, &error) < 0)
        return rp_cmd_report(&error);
    if (arguments->line.path)
        copy.run = of.run;
    if (copy.path && rp_cmd_is_run(copy.path)) {
        copy.run = copy.path;
        copy.path = NULL;
    }
    if (!copy.run_dir)
        copy.run_dir = of.run_dir;
    int code = copy.run && !arguments->line.path && arguments->line.stream
                   ? rp_cmd_run_stream(copy.run_dir, &copy.run, arguments->line.stream, &error)
                   : 0;
    int status = code < 0 ? rp_cmd_report(&error) : rp_saved_copy(&copy);
    rp_cmd_run_free(&of);
    return status;
}

static int import_state(const struct arguments *arguments)
{
    struct rp_saved_copy copy = {.path = arguments->path,
                                 .output = arguments->output,
                                 .is_import = true,
                                 .json = arguments->json};
    if (!arguments->output || !arguments->path)
        return rp_cmd_misuse("checkpoint", "import: expected a file, and -o FILE");
    return rp_saved_copy(&copy);
}

/* --------------------------------------------------------------------------------------------- */

/* The checkpoint directory of a config or of a running engine becomes the path. */
static int find_path(struct arguments *arguments, char **directory, struct rp_error *error)
{
    const struct rp_cmd_line *line = &arguments->line;
    struct rp_run_of of = {.run = NULL};
    int code = 0;
    if (line->path) {
        code = rp_cmd_run_of(line->path, line->stream, &of, error);
        if (code == 0 && !of.checkpoint_dir)
            code = rp_fail(error, -RP_E_EMPTY, "give the directory of its checkpoints",
                           "%s: has no checkpoint_dir", line->path);
        *directory = of.checkpoint_dir;
        of.checkpoint_dir = NULL;
        rp_cmd_run_free(&of);
    } else if (line->run || rp_cmd_is_run(arguments->path)) {
        const char *run = line->run ? line->run : arguments->path;
        if (line->stream)
            code = rp_cmd_run_stream(line->run_dir, &run, line->stream, error);
        if (code == 0)
            code = rp_cmd_run_directory(line->run_dir, run, directory, error);
        if (code == -RP_E_GONE && !line->run)
            return 0; /* the word is a path that does not exist */
    }
    if (*directory)
        arguments->path = *directory;
    return code;
}

static int run_action(struct arguments *arguments)
{
    static const struct {
        const char *name;
        int (*run)(const struct arguments *arguments);
        bool takes_directory; /* or a run */
    } actions[] = {{"list", list, true},
                   {"show", show, true},
                   {"verify", verify, true},
                   {"diff", diff, false},
                   {"export", export_state, false},
                   {"import", import_state, false},
                   {"rewind", rewind_directory, true}};
    const struct rp_cmd_line *line = &arguments->line;
    bool has_run = line->run || line->path;
    struct rp_text_near near = {.word = line->words[0]};
    for (size_t i = 0; i < RP_ARRAY_COUNT(actions); i++) {
        rp_text_offer(&near, actions[i].name);
        if (strcmp(actions[i].name, near.word) != 0)
            continue;
        bool is_diff = actions[i].run == diff;
        if (has_run && (is_diff || actions[i].run == import_state))
            return rp_cmd_misuse("checkpoint", "%s: expected a path, found %s", near.word,
                                 line->run ? "--run" : "-c");
        const char *more = has_run ? arguments->path : arguments->other;
        if (more && !is_diff)
            return rp_cmd_misuse("checkpoint", "%s: expected one path or run, found also `%s`",
                                 near.word, more);
        struct rp_error error;
        char *directory = NULL;
        if (actions[i].takes_directory && find_path(arguments, &directory, &error) < 0)
            return rp_cmd_report(&error);
        int status = actions[i].run(arguments);
        free(directory);
        return status;
    }
    return rp_cmd_misuse("checkpoint",
                         "expected list, show, verify, diff, export, import or rewind, found "
                         "`%s`%s%s%s",
                         near.word, near.best ? "; did you mean `" : "", near.best ? near.best : "",
                         near.best ? "`?" : "");
}

int rp_cmd_checkpoint(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "checkpoint",
        .usage = "list DIR|RUN\nshow FILE|DIR|RUN\nverify FILE|DIR|RUN\ndiff A B\n"
                 "export FILE|DIR|RUN -o FILE\nimport FILE -o FILE\n"
                 "rewind DIR|RUN --to=SEQUENCE|--to-row=ROW",
        .help = "Show the checkpoints of a run, take the state out of one, or go back to an "
                "earlier one.",
        .notes =
            "`show DIR` shows the newest that verifies; `show FILE` also shows a state token of a "
            "trainer. Both show the contract: every field on which the parts of a run must agree, "
            "and the hash of the fields of the stream and of the delivery. `verify` exits 1 if "
            "anything is damaged. `diff` exits 1 if the position, the packing, the contents or a "
            "field of the contract differ. `export` writes the state token in the form that the "
            "name says: .token, .json, .npz or .safetensors (ringpack.export_state in Python "
            "writes .pt); the engine of a RUN saves a checkpoint first. `import` takes the token "
            "out of such a file, or of one of torch.save. All of them, and `serve --state`, read "
            "these forms, checkpoints and directories; no pickle is loaded. `rewind` renames later "
            "checkpoints to NAME.rewound: rename them back to undo it. The next start with a "
            "mirror also renames the copies there. If trainers rolled back to older state "
            "tokens and ended before any progress, the newest checkpoint is ahead of them: "
            "`rewind` before a start without tokens.",
        .options = options,
        .takes = RP_TAKES_RUN_OR,
        .words_least = 1,
        .words_most = 3,
        .expected = "an action and a path, such as `list DIR`"};
    struct arguments arguments = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    const struct rp_cmd_line *line = &arguments.line;
    arguments.path = line->words[1];
    arguments.other = line->count == 3 ? line->words[2] : NULL;
    if (!arguments.path && !line->run && !line->path)
        return rp_cmd_misuse(verb.name, "expected %s", verb.expected);
    return run_action(&arguments);
}
