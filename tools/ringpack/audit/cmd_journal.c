/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_journal.c — `ringpack journal`: the history of a run, as its engines kept it. */
#include "audit/digests.h"
#include "audit/log.h"
#include "cmd.h"
#include "cmd_run.h"
#include "options.h"

struct arguments {
    struct rp_cmd_line line;
    const char *expected;
    bool json;
};

static const struct rp_option options[] = {
    {RP_TEXT("expect", "HASH", struct arguments, expected),
     .help = "an entry of the journal must have this hash"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {0},
};

/* The journal of a path, of a run, or of the run of a config. */
static int check(void *argument)
{
    struct rp_cmd_line *line = argument;
    const char *word = line->words[0];
    if (word && (line->run || line->path))
        return rp_cmd_misuse("journal", "give one of them: `%s`, and %s %s", word,
                             line->run ? "--run" : "-c", line->run ? line->run : line->path);
    if (!word && !line->run && !line->path)
        return rp_cmd_misuse("journal", "expected %s", line->verb->expected);
    return RP_EXIT_FINE;
}

int rp_cmd_journal(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "journal",
        .usage = "DIR|FILE|RUN\n-c CONFIG",
        .help = "Print the history of a run, and verify that its journal is whole.",
        .notes = "Engines keep the journal in the checkpoint directory: starts, ends, kills, "
                 "changes of the config, and the acts of operators. It is a chain of hashes. Exit "
                 "status: 0 whole, 1 not whole, 2 it could not be read.",
        .options = options,
        .takes = RP_TAKES_RUN_OR,
        .words_most = 1,
        .expected = "a checkpoint directory, a journal or a run; or -c CONFIG",
        .check = check};
    struct arguments arguments = {0};
    struct rp_error error = {0};
    struct rp_audit_log log;
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    const struct rp_cmd_line *line = &arguments.line;
    const char *name = line->run ? line->run : line->words[0];
    bool chooses = line->stream && !line->path && rp_cmd_is_run(name);
    int code = chooses ? rp_cmd_run_stream(line->run_dir, &name, line->stream, &error) : 0;
    log = (struct rp_audit_log){.path = NULL};
    if (code == 0)
        code = line->path
                   ? rp_audit_log_open_of(&log, line->path, line->stream, line->run_dir, &error)
                   : rp_audit_log_open(&log, name, line->run_dir, &error);
    if (code == -RP_E_EMPTY && !line->path && rp_audit_is_digests(name))
        code = rp_fail(&error, code, "give one of its files",
                       "%s: expected a run journal, found a folder of digests", name);
    if (code == 0 && !arguments.json)
        rp_audit_log_make_printable(&log);
    int status = code < 0 ? rp_cmd_report(&error)
                          : rp_audit_log_print(&log, arguments.expected, arguments.json);
    rp_audit_log_close(&log);
    return status;
}
