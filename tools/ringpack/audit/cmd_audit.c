/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_audit.c — the arguments of `ringpack audit`, and its output. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "audit/audit.h"
#include "audit/digests.h"
#include "cmd.h"
#include "explain/steps.h"
#include "interrupt.h"
#include "options.h"

struct arguments {
    struct rp_cmd_line line;
    const char *config;
    struct rp_steps_wanted wanted;
    bool json;
};

static const struct rp_option options[] = {
    {RP_TEXT("config", "FILE", struct arguments, config), .letter = 'c',
     .help = "the config with which rows of tokens and checkpoints are planned"},
    {RP_TEXT("stream", "NAME", struct arguments, line.stream),
     .help = "the one of the streams of configs and of saved states that is meant (default: the "
             "main one)"},
    RP_STEPS_OPTION(row, struct arguments, wanted,
                    "the row of a config (default: the position of the other side)"),
    RP_STEPS_OPTION(step, struct arguments, wanted, "the same, as the row at which step N begins"),
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {0},
};

static int check(void *argument)
{
    const struct arguments *arguments = argument;
    if (arguments->wanted.row_given && arguments->wanted.step_given)
        return rp_cmd_misuse("audit", "expected --row or --step, not both");
    return RP_EXIT_FINE;
}

/* ---- positions ------------------------------------------------------------------------------- */

/* The row of a config. */
static int choose_row(const struct arguments *arguments, const struct rp_audit_side *side,
                      const struct rp_audit_side *other, uint64_t *row, struct rp_error *error)
{
    struct rp_steps steps = rp_steps_of(&side->config, 0);
    *row = arguments->wanted.row_given ? arguments->wanted.row : other->row;
    if (arguments->wanted.step_given)
        return rp_steps_first(&steps, arguments->wanted.step, row, error);
    if (arguments->wanted.row_given || other->token)
        return 0;
    return rp_fail(error, -RP_E_USAGE, "give --row ROW or --step N",
                   "%s and %s are configs, which have no position", side->path, other->path);
}

static int open_sides(struct rp_audit *audit, const struct arguments *arguments,
                      struct rp_error *error)
{
    int code = 0;
    bool is_config = rp_audit_is_config(arguments->line.words[0]);
    for (unsigned i = 0; i < 2 && code == 0; i++) {
        unsigned s = is_config ? 1 - i : i;
        code = rp_audit_side_open(&audit->sides[s], arguments->line.words[s], arguments->config,
                                  &audit->sides[1 - s], error);
    }
    for (unsigned s = 0; s < 2 && code == 0; s++)
        code = rp_audit_side_borrow(&audit->sides[s], &audit->sides[1 - s], error);
    for (unsigned s = 0; s < 2 && code == 0; s++) {
        uint64_t row;
        struct rp_audit_side *side = &audit->sides[s];
        if (side->token)
            continue;
        code = choose_row(arguments, side, &audit->sides[1 - s], &row, error);
        if (code == 0)
            code = rp_audit_side_place(side, row, error);
    }
    return code;
}

/* ---- output ---------------------------------------------------------------------------------- */

static const char *const verdicts[] = {[RP_AUDIT_IDENTICAL] = "identical",
                                       [RP_AUDIT_CONTINUES] = "continues",
                                       [RP_AUDIT_DIFFERS] = "differs",
                                       [RP_AUDIT_DEVIATES] = "deviates",
                                       [RP_AUDIT_OTHER] = "other_stream"};

static const char *source_name(const struct rp_audit_side *side, uint32_t source)
{
    return rp_source_name(rp_corpus_source(side->walk.corpus, source));
}

static void print_fragment(const struct rp_audit *audit, unsigned s)
{
    const struct rp_fragment *fragment = &audit->fragment[s];
    printf("  %s: ", audit->sides[s].path);
    if (audit->has_fragment[s])
        printf("source %s, document %" PRIu64 ", tokens %" PRIu64 " to %" PRIu64 "\n",
               source_name(&audit->sides[s], fragment->source), fragment->document,
               fragment->offset, fragment->offset + fragment->length - 1);
    else
        printf("nothing more in this row\n");
}

static void print_fields(const struct rp_audit *audit)
{
    struct rp_record a = rp_audit_stream(&audit->sides[0]), b = rp_audit_stream(&audit->sides[1]);
    struct rp_record_pair pair = {.of = {&a, &b}};
    printf("different streams: these fields of their contracts differ\n");
    while (rp_audit_next_field(audit, &pair)) {
        const struct rp_field *name = &pair.field[pair.has[0] ? 0 : 1];
        printf("  %.*s:", (int)name->name_bytes, name->name);
        for (unsigned s = 0; s < 2; s++)
            printf(" %.*s%s", pair.has[s] ? (int)pair.field[s].value_bytes : 6,
                   pair.has[s] ? pair.field[s].value : "(none)", s == 0 ? "," : "\n");
    }
}

static void print_deviation(const struct rp_audit *audit)
{
    char row[RP_CMD_TEXT_BYTES];
    printf("different: some rows before row %s differ\n", rp_cmd_count_text(audit->rows, row));
    for (unsigned s = 0; s < 2; s++)
        printf("  %s: %s\n", audit->sides[s].path,
               audit->deviates[s]
                   ? "not what its config plans from row 0: the weights were changed at some row, "
                     "or its rows were planned by another config"
                   : "what its config plans from row 0");
    printf("To find the first of these rows, compare older checkpoints of the same run.\n");
}

static void print_verdict(const struct rp_audit *audit)
{
    char rows[RP_CMD_TEXT_BYTES], late[RP_CMD_TEXT_BYTES], hex[RP_HASH_HEX_BYTES];
    unsigned first = audit->sides[0].row <= audit->sides[1].row ? 0 : 1;
    rp_cmd_count_text(audit->rows, rows);
    rp_cmd_count_text(audit->sides[1 - first].row, late);
    switch (audit->verdict) {
    case RP_AUDIT_IDENTICAL:
        printf("identical: all rows before row %s, plan digest %s\n", rows,
               rp_hash128_hex(audit->sides[0].digest, hex));
        break;
    case RP_AUDIT_CONTINUES:
        printf("identical: all rows before row %s; %s continues %s to row %s\n", rows,
               audit->sides[1 - first].path, audit->sides[first].path, late);
        break;
    case RP_AUDIT_DIFFERS:
        printf("different: row %s is the first that differs\n", rows);
        print_fragment(audit, 0);
        print_fragment(audit, 1);
        break;
    case RP_AUDIT_DEVIATES:
        print_deviation(audit);
        break;
    case RP_AUDIT_OTHER:
        print_fields(audit);
        break;
    }
}

static json_t *json_side(const struct rp_audit *audit, unsigned s)
{
    const struct rp_audit_side *side = &audit->sides[s];
    const struct rp_fragment *fragment = &audit->fragment[s];
    char hex[RP_HASH_HEX_BYTES];
    bool is_known = rp_hash128_is_known(side->digest);
    json_t *value = json_pack(
        "{s:o, s:I, s:o}", "path", rp_cmd_json_text(side->path), "row", (json_int_t)side->row,
        "plan_digest", is_known ? json_string(rp_hash128_hex(side->digest, hex)) : json_null());
    if (audit->verdict == RP_AUDIT_DIFFERS)
        json_object_set_new(value, "first",
                            !audit->has_fragment[s]
                                ? json_null()
                                : json_pack("{s:o, s:I, s:I, s:I}", "source",
                                            rp_cmd_json_text(source_name(side, fragment->source)),
                                            "document", (json_int_t)fragment->document, "offset",
                                            (json_int_t)fragment->offset, "tokens",
                                            (json_int_t)fragment->length));
    if (audit->verdict == RP_AUDIT_DEVIATES)
        json_object_set_new(value, "is_plan_of_config", json_boolean(!audit->deviates[s]));
    return value;
}

static json_t *json_fields(const struct rp_audit *audit)
{
    struct rp_record a = rp_audit_stream(&audit->sides[0]), b = rp_audit_stream(&audit->sides[1]);
    struct rp_record_pair pair = {.of = {&a, &b}};
    json_t *fields = json_array();
    while (rp_audit_next_field(audit, &pair)) {
        const struct rp_field *name = &pair.field[pair.has[0] ? 0 : 1];
        json_t *values[2];
        for (unsigned s = 0; s < 2; s++)
            values[s] = pair.has[s] ? json_stringn(pair.field[s].value, pair.field[s].value_bytes)
                                    : json_null();
        json_array_append_new(fields,
                              json_pack("{s:s%, s:o, s:o}", "field", name->name,
                                        (size_t)name->name_bytes, "a", values[0], "b", values[1]));
    }
    return fields;
}

static void print_json(const struct rp_audit *audit)
{
    bool is_other = audit->verdict == RP_AUDIT_OTHER;
    rp_cmd_print_json(json_pack("{s:s, s:I, s:o, s:o, s:o}", "verdict", verdicts[audit->verdict],
                                "rows", (json_int_t)audit->rows, "a", json_side(audit, 0), "b",
                                json_side(audit, 1), "fields",
                                is_other ? json_fields(audit) : json_array()));
}

/* At least one side is digests: they have rows of their own, and two of them need no plan. */
static int audit_digests(const struct arguments *arguments, bool are_both)
{
    struct rp_error error = {0};
    bool has_row = arguments->wanted.row_given || arguments->wanted.step_given;
    if (!has_row && !(are_both && arguments->config))
        return rp_audit_compare_digests(arguments->line.words, arguments->config, arguments->json);
    (void)rp_fail(&error, -RP_E_USAGE, "leave it out: all rows that both sides have are compared",
                  "%s: not with %s", has_row ? "--row or --step" : "--config",
                  has_row ? "digests" : "digests on both sides");
    return rp_cmd_report(&error);
}

/* Its name was `audit --log`. Returns the place of the option, or 0. */
static int is_journal(int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--log") == 0)
            return i;
    return 0;
}

int rp_cmd_audit(int argc, char **argv)
{
    int log = is_journal(argc, argv);
    if (log) {
        fputs("ringpack: `audit --log` is now `ringpack journal`; the next version refuses it\n",
              stderr);
        memmove(argv + log, argv + log + 1, (size_t)(argc - log) * sizeof *argv);
        return rp_cmd_journal(argc - 1, argv);
    }
    static const struct rp_verb verb = {
        .name = "audit",
        .usage = "A B",
        .help = "Prove that two positions have the same rows before them.",
        .notes =
            "A and B are state tokens, checkpoints, directories of checkpoints (the newest is "
            "taken), configs, or folders of digests that trainers wrote (digest_log), whose "
            "tokens are also compared. Plan digests in the state tokens prove that all rows "
            "before a position are equal, whatever engine delivered them, in any number of lives "
            "of a run. If the positions are of different rows, or the digests differ, rows are "
            "planned again, with the config of either side or of `-c`. The runs are not changed. "
            "`ringpack journal` shows the history of a run. Exit status: 0 identical; 1 "
            "different; 2 the sides could not be compared; 3 not proven: all that could be "
            "compared is equal, and it does not prove that all is identical.",
        .options = options,
        .words_least = 2,
        .words_most = 2,
        .expected = "two paths: state tokens, checkpoints or configs",
        .check = check};
    struct arguments arguments = {0};
    struct rp_audit audit = {.rows = 0};
    struct rp_error error = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    rp_interrupt_catch();
    bool is_digests[] = {rp_audit_is_digests(arguments.line.words[0]),
                         rp_audit_is_digests(arguments.line.words[1])};
    if (is_digests[0] || is_digests[1])
        return audit_digests(&arguments, is_digests[0] && is_digests[1]);
    int code = open_sides(&audit, &arguments, &error);
    if (code == 0)
        code = rp_audit_compare(&audit, &error);
    if (code == 0 && arguments.json)
        print_json(&audit);
    else if (code == 0)
        print_verdict(&audit);
    for (unsigned s = 0; s < 2; s++)
        rp_audit_side_close(&audit.sides[s]);
    if (code < 0) {
        int status = rp_cmd_report(&error);
        return audit.is_unproven ? RP_EXIT_UNPROVEN : status;
    }
    return audit.verdict <= RP_AUDIT_CONTINUES ? RP_EXIT_FINE : RP_EXIT_DIFFERS;
}
