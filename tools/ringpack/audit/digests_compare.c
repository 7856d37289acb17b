/* SPDX-License-Identifier: Apache-2.0 */
/* digests_compare.c — digests of one run against another run's, or against a position:
 *
 *   digests, digests             content and plan, at the rows at which intervals of both end
 *   digests, token or checkpoint the plan at the row of that position, if an interval ends there;
 *                                else, and to find the first interval that differs, as the config
 *                                that a checkpoint keeps, or -c, plans it
 *   digests, config              the plan at the end of each interval
 *
 * A plan digest covers all rows before its row. So equal ones prove all of these rows, and
 * different ones name an interval only if all rows before that interval are known to be equal.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "audit/digests.h"
#include "base/bits.h"
#include "cmd.h"
#include "interrupt.h"

enum verdict { IDENTICAL, CONTENT_DIFFERS, PLAN_DIFFERS, NOT_PROVEN };

/* The result of a comparison. */
struct finding {
    enum verdict verdict;
    uint64_t first_row, row; /* the first interval that differs */
    bool is_somewhere;       /* the difference is somewhere before `row`: first_row is not known */
    uint64_t proven;         /* all rows before this one are equal */
    uint64_t rows, tokens;   /* that were compared and are equal */
    uint64_t intervals;      /* the same */
    uint64_t from, to;       /* the first row of these, and the row after the last */
    uint64_t gaps;           /* places between them with rows that were not compared */
    bool has_content;        /* tokens were compared, not only the plan */
    bool is_unproven;        /* it failed: there is too little to compare */
    struct rp_audit_doubts left_out, doubts; /* rows that were not compared; all that is in doubt */
};

/* Whether the plans of all ranks at the end of an interval are this one. */
static bool is_plan(const struct rp_audit_interval *interval, struct rp_hash128 plan)
{
    return rp_hash128_equal(interval->plan, plan) && !rp_hash128_is_known(interval->other);
}

static void count(struct finding *finding, uint64_t first_row, const struct rp_audit_interval *last)
{
    if (finding->intervals == 0)
        finding->from = first_row;
    else
        finding->gaps += finding->to != first_row;
    finding->to = last->row;
    finding->rows += last->rows;
    finding->tokens += last->tokens;
    finding->intervals++;
}

/* ---- two runs -------------------------------------------------------------------------------- */

/* The sum of some intervals that follow each other. */
struct run {
    const struct rp_audit_digests *digests;
    size_t at;
    struct rp_audit_interval sum;
};

/* Begin with the next interval. */
static bool begin(struct run *run)
{
    if (run->at == run->digests->count)
        return false;
    run->sum = run->digests->intervals[run->at++];
    return true;
}

/* Add the interval that follows; false at a gap. */
static bool extend(struct run *run)
{
    const struct rp_audit_interval *next = run->digests->intervals + run->at;
    if (run->at == run->digests->count || next->first_row != run->sum.row)
        return false;
    rp_audit_extend(&run->sum, next);
    run->at++;
    return true;
}

/* Move both to the next rows that both have. False at the end of either. */
static bool next_common(struct run *a, struct run *b)
{
    if (!begin(a) || !begin(b))
        return false;
    for (;;) {
        struct run *early = a->sum.first_row < b->sum.first_row ? a : b;
        if (a->sum.first_row != b->sum.first_row) {
            if (!begin(early))
                return false;
            continue;
        }
        if (a->sum.row == b->sum.row)
            return true;
        struct run *shorter = a->sum.row < b->sum.row ? a : b;
        if (!extend(shorter) && !begin(shorter))
            return false;
    }
}

/* The plans at `row`, the end of an interval, differ. */
static void set_plan_differs(struct finding *finding, uint64_t first_row, uint64_t row)
{
    finding->verdict = PLAN_DIFFERS;
    finding->is_somewhere = finding->proven != first_row;
    finding->first_row = first_row;
    finding->row = row;
}

/* Rows that both sides were given, and that were not compared. */
static int leave_out(struct finding *finding, uint64_t first_row, uint64_t row,
                     struct rp_error *error)
{
    return first_row >= row
               ? 0
               : rp_audit_doubt_add(&finding->left_out, RP_AUDIT_LEFT_OUT, first_row, row, error);
}

static int compare_runs(const struct rp_audit_digests sides[2], struct finding *finding,
                        struct rp_error *error)
{
    struct run a = {.digests = &sides[0]}, b = {.digests = &sides[1]};
    uint64_t at = rp_max_u64(sides[0].first_row, sides[1].first_row);
    uint64_t end = rp_min_u64(sides[0].end_row, sides[1].end_row);
    int code = 0;
    finding->has_content = true;
    while (code == 0 && finding->verdict == IDENTICAL && next_common(&a, &b)) {
        uint64_t first_row = a.sum.first_row;
        bool has_plans = rp_hash128_is_known(a.sum.plan) && rp_hash128_is_known(b.sum.plan);
        if (has_plans && (!is_plan(&a.sum, b.sum.plan) || !is_plan(&b.sum, a.sum.plan))) {
            set_plan_differs(finding, first_row, a.sum.row);
        } else if (!rp_hash128_equal(a.sum.content, b.sum.content) || a.sum.rows != b.sum.rows) {
            finding->verdict = CONTENT_DIFFERS;
            finding->first_row = first_row;
            finding->row = a.sum.row;
        } else {
            count(finding, first_row, &a.sum);
            if (has_plans || first_row == finding->proven)
                finding->proven = a.sum.row;
        }
        code = leave_out(finding, at, first_row, error);
        at = a.sum.row;
    }
    return code == 0 && finding->verdict == IDENTICAL ? leave_out(finding, at, end, error) : code;
}

/* ---- a run and a position -------------------------------------------------------------------- */

static void compare_plan(struct finding *finding, const struct rp_audit_interval *interval,
                         struct rp_hash128 plan)
{
    if (!is_plan(interval, plan)) {
        set_plan_differs(finding, interval->first_row, interval->row);
        return;
    }
    count(finding, interval->first_row, interval);
    finding->proven = interval->row;
    finding->from = 0;
    finding->gaps = 0;
}

/* Plan the rows of the config again, up to each of the first `intervals` intervals. */
static int compare_config(const struct rp_audit_digests *digests, size_t intervals,
                          struct rp_audit_side *side, struct finding *finding,
                          struct rp_error *error)
{
    int code = rp_audit_side_plan(side, error);
    for (size_t i = 0; code == 0 && finding->verdict == IDENTICAL && i < intervals; i++) {
        const struct rp_audit_interval *interval = &digests->intervals[i];
        if (interval->lacks_plan)
            continue;
        code = rp_walk_to(&side->walk, interval->row, error);
        struct rp_hash128 plan = code == 0 ? rp_plan_digest(side->walk.plan)
                                           : (struct rp_hash128){0, 0};
        if (code >= 0) /* 1: the stream of the config ends before */
            compare_plan(finding, interval, plan);
        code = code > 0 ? 0 : code;
    }
    return code;
}

/* The interval `at` ends at the row of the token. */
static int compare_token(const struct rp_audit_digests *digests, size_t at,
                         struct rp_audit_side *side, struct finding *finding,
                         struct rp_error *error)
{
    const struct rp_audit_interval *interval = &digests->intervals[at];
    if (is_plan(interval, side->digest)) {
        for (size_t i = 0; i < at; i++)
            count(finding, digests->intervals[i].first_row, &digests->intervals[i]);
        compare_plan(finding, interval, side->digest);
        return 0;
    }
    int code = side->has_config ? compare_config(digests, at + 1, side, finding, error) : 0;
    if (code < 0 && rp_interrupted())
        return code;
    if (code < 0 || finding->verdict == IDENTICAL) { /* the config does not plan the difference */
        *finding = (struct finding){.verdict = IDENTICAL};
        set_plan_differs(finding, interval->first_row, interval->row);
    }
    return 0;
}

static int compare_position(const struct rp_audit_digests *digests, struct rp_audit_side *side,
                            struct finding *finding, struct rp_error *error)
{
    for (size_t i = 0; side->token && i < digests->count; i++)
        if (digests->intervals[i].row == side->row && !digests->intervals[i].lacks_plan &&
            rp_hash128_is_known(side->digest))
            return compare_token(digests, i, side, finding, error);
    if (side->has_config)
        return compare_config(digests, digests->count, side, finding, error);
    finding->is_unproven = true;
    return rp_fail(error, -RP_E_USAGE, "give the config of the run: `-c CONFIG`",
                   "not proven: %s: no interval ends at row %" PRIu64
                   " of %s, so the two cannot be compared",
                   digests->path, side->row, side->path);
}

/* ---- doubts ---------------------------------------------------------------------------------- */

/* Whether a doubt of a side is one about the rows that were compared. A plan digest covers all rows
 * before its row, so entries that a rank lacks before it leave no doubt about the plan. */
static bool concerns(const struct finding *finding, const struct rp_audit_doubt *doubt)
{
    bool is_lack = doubt->reason == RP_AUDIT_LACKS_RANK || doubt->reason == RP_AUDIT_LACKS_ROWS ||
                   doubt->reason == RP_AUDIT_LACKS_PLAN;
    if (finding->has_content)
        return doubt->first_row < finding->to && finding->from < doubt->row;
    return doubt->first_row < finding->to && !is_lack;
}

/* Gather the doubts. Two equal sides with a doubt are not proven. */
static int weigh(struct finding *finding, const struct rp_audit_digests sides[2],
                 struct rp_error *error)
{
    const struct rp_audit_doubts *all[] = {&finding->left_out, &sides[0].doubts, &sides[1].doubts};
    int code = 0;
    for (unsigned s = 0; s < 3; s++)
        for (size_t i = 0; code == 0 && i < all[s]->count; i++) {
            const struct rp_audit_doubt *doubt = &all[s]->list[i];
            if (s == 0 || concerns(finding, doubt))
                code = rp_audit_doubt_add(&finding->doubts, doubt->reason, doubt->first_row,
                                          doubt->row, error);
        }
    if (finding->verdict == IDENTICAL && finding->doubts.count > 0)
        finding->verdict = NOT_PROVEN;
    return code;
}

/* ---- output ---------------------------------------------------------------------------------- */

#define DOUBTS_SHOWN 8u

static const struct {
    const char *word, *text;
} reasons[] = {
    [RP_AUDIT_TWO_CONTENTS] = {"two_contents", "given twice, with different tokens"},
    [RP_AUDIT_TWO_PLANS] = {"two_plans", "planned in two ways, by two ranks or at two times"},
    [RP_AUDIT_NO_ORDER] = {"no_order", "given twice, and no entry says which delivery was later"},
    [RP_AUDIT_LACKS_RANK] = {"lacks_rank", "not every rank has a digest"},
    [RP_AUDIT_LACKS_ROWS] = {"lacks_rows", "the ranks together were given another number of rows"},
    [RP_AUDIT_LACKS_PLAN] = {"lacks_plan", "the plan of a rank is not known: its state has none"},
    [RP_AUDIT_LOST] = {"lost", "entries that were written are in none of the files"},
    [RP_AUDIT_DAMAGED] = {"damaged", "a file is damaged, and lost entries may be of these rows"},
    [RP_AUDIT_LEFT_OUT] = {"left_out", "not compared: both sides have no digests of just these "
                                       "rows"},
};

static void print_doubts(const struct finding *finding)
{
    char from[RP_CMD_TEXT_BYTES], to[RP_CMD_TEXT_BYTES];
    const struct rp_audit_doubts *doubts = &finding->doubts;
    for (size_t i = 0; i < doubts->count && i < DOUBTS_SHOWN; i++)
        printf("  rows %s to before %s: %s\n", rp_cmd_count_text(doubts->list[i].first_row, from),
               rp_cmd_count_text(doubts->list[i].row, to), reasons[doubts->list[i].reason].text);
    if (doubts->count > DOUBTS_SHOWN)
        printf("  and %zu more; `--json` lists them\n", doubts->count - DOUBTS_SHOWN);
}

static json_t *json_doubts(const struct finding *finding)
{
    json_t *list = json_array();
    for (size_t i = 0; i < finding->doubts.count; i++) {
        const struct rp_audit_doubt *doubt = &finding->doubts.list[i];
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I}", "reason", reasons[doubt->reason].word, "first_row",
                            (json_int_t)doubt->first_row, "row", (json_int_t)doubt->row));
    }
    return list;
}

static void print_notes(const struct rp_audit_digests *digests)
{
    if (digests->damaged)
        printf("  note: %s is not whole: `ringpack journal` says where; the rest is used\n",
               digests->damaged_name);
    if (digests->twice)
        printf("  note: %s: %zu deliveries differ from later ones of the same rows\n",
               digests->path, digests->twice);
}

static void print_equal(const struct finding *finding)
{
    char from[RP_CMD_TEXT_BYTES], to[RP_CMD_TEXT_BYTES], tokens[RP_CMD_TEXT_BYTES];
    const char *verdict = finding->verdict == IDENTICAL ? "identical" : "  compared and equal";
    rp_cmd_count_text(finding->from, from);
    rp_cmd_count_text(finding->to, to);
    if (finding->has_content)
        printf("%s: rows %s to before %s, %s tokens, in %" PRIu64 " intervals, by content%s\n",
               verdict, from, to, rp_cmd_count_text(finding->tokens, tokens), finding->intervals,
               finding->gaps ? "; between them are rows that were not compared" : "");
    else
        printf("%s: all rows before row %s, by plan\n", verdict, to);
}

static void print_text(const struct finding *finding)
{
    char from[RP_CMD_TEXT_BYTES], to[RP_CMD_TEXT_BYTES];
    if (finding->verdict == NOT_PROVEN) {
        printf("not proven: nothing differs, and some rows are in doubt\n");
        print_doubts(finding);
    }
    if (finding->verdict == IDENTICAL || finding->verdict == NOT_PROVEN)
        print_equal(finding);
    rp_cmd_count_text(finding->first_row, from);
    rp_cmd_count_text(finding->row, to);
    if (finding->verdict == PLAN_DIFFERS && finding->is_somewhere)
        printf("different: some rows before row %s are other documents\n", to);
    else if (finding->verdict == PLAN_DIFFERS)
        printf("different: rows before row %s are other documents; the first interval that differs "
               "begins at row %s\n",
               to, from);
    if (finding->verdict == PLAN_DIFFERS)
        printf("  next: `ringpack audit A.yaml B.yaml --row %" PRIu64
               "` with both configs names the first row, source and document\n",
               finding->row);
    if (finding->verdict == CONTENT_DIFFERS)
        printf("different: rows %s to before %s have other tokens, of the same documents\n"
               "  next: `ringpack explain -c CONFIG --row %" PRIu64 "-%" PRIu64
               "` lists these documents; `ringpack index` makes changes of the corpus noticed\n",
               from, to, finding->first_row, finding->row - 1);
    if (finding->verdict != IDENTICAL && finding->verdict != NOT_PROVEN) {
        if (finding->intervals > 0)
            print_equal(finding);
        print_doubts(finding);
    }
}

static void print_json(const struct finding *finding, const struct rp_audit_digests sides[2])
{
    static const char *const words[] = {[IDENTICAL] = "identical",
                                        [CONTENT_DIFFERS] = "content_differs",
                                        [PLAN_DIFFERS] = "plan_differs",
                                        [NOT_PROVEN] = "not_proven"};
    bool differs = finding->verdict == CONTENT_DIFFERS || finding->verdict == PLAN_DIFFERS;
    bool has_first = differs && !finding->is_somewhere;
    rp_cmd_print_json(
        json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:o}", "verdict",
                  words[finding->verdict], "by_content", finding->has_content, "first_row",
                  (json_int_t)finding->from, "row", (json_int_t)finding->to, "rows",
                  (json_int_t)finding->rows, "tokens", (json_int_t)finding->tokens, "intervals",
                  (json_int_t)finding->intervals, "gaps", (json_int_t)finding->gaps, "differs_from",
                  has_first ? json_integer((json_int_t)finding->first_row) : json_null(),
                  "differs_before", differs ? json_integer((json_int_t)finding->row) : json_null(),
                  "twice", (json_int_t)sides[0].twice + (json_int_t)sides[1].twice, "damaged",
                  (json_int_t)sides[0].damaged + (json_int_t)sides[1].damaged, "doubts",
                  json_doubts(finding)));
}

/* ---------------------------------------------------------------------------------------------- */

static int compare(const char *const paths[2], const char *config, struct rp_audit_digests sides[2],
                   struct finding *finding, struct rp_error *error)
{
    struct rp_audit_side position = {.path = NULL};
    bool has_position = false;
    size_t read = 0;
    int code = 0;
    for (unsigned s = 0; s < 2 && code == 0; s++) {
        if (rp_audit_is_digests(paths[s])) {
            code = rp_audit_digests_open(&sides[read++], paths[s], error);
        } else {
            has_position = true;
            code = rp_audit_side_open(&position, paths[s], config, &position, error);
        }
    }
    if (code == 0 && has_position)
        code = compare_position(&sides[0], &position, finding, error);
    else if (code == 0)
        code = compare_runs(sides, finding, error);
    if (code == 0)
        code = weigh(finding, sides, error);
    if (has_position)
        rp_audit_side_close(&position);
    if (code == 0 && finding->intervals == 0 &&
        (finding->verdict == IDENTICAL || finding->verdict == NOT_PROVEN)) {
        finding->is_unproven = true;
        return rp_fail(error, -RP_E_USAGE,
                       "use the same digest_steps, and the same global batch, or multiples",
                       "not proven: %s and %s: no interval of rows that both have begins and ends "
                       "at the same rows",
                       paths[0], paths[1]);
    }
    return code;
}

int rp_audit_compare_digests(const char *const paths[2], const char *config, bool json)
{
    struct rp_audit_digests sides[2] = {{.path = NULL}, {.path = NULL}};
    struct finding finding = {.verdict = IDENTICAL};
    struct rp_error error = {0};
    int code = compare(paths, config, sides, &finding, &error);
    if (code == 0 && json)
        print_json(&finding, sides);
    else if (code == 0)
        print_text(&finding);
    for (unsigned s = 0; s < 2; s++) {
        if (code == 0 && !json)
            print_notes(&sides[s]);
        rp_audit_digests_close(&sides[s]);
    }
    bool is_unproven = finding.is_unproven || sides[0].is_unproven || sides[1].is_unproven;
    free(finding.left_out.list);
    free(finding.doubts.list);
    if (code < 0) {
        int status = rp_cmd_report(&error);
        return is_unproven ? RP_EXIT_UNPROVEN : status;
    }
    if (finding.verdict == IDENTICAL)
        return RP_EXIT_FINE;
    return finding.verdict == NOT_PROVEN ? RP_EXIT_UNPROVEN : RP_EXIT_DIFFERS;
}
