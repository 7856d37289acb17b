/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c — compares two positions. The method follows from the known facts:
 *
 *   fields of the contract differ           different streams
 *   equal rows, equal digests               identical
 *   other rows                              plan from the earlier position to the later one, with
 *                                           the config of either side
 *   digests differ, two configs             the first row, by bisection over landmarks
 *   digests differ, one config              the side that deviates from its plan from row 0
 * */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "plan/plan.h"

#define BISECTION_ROWS 4096u /* bisection ends here: these rows are compared one by one */

/* ---- streams --------------------------------------------------------------------------------- */

struct rp_record rp_audit_stream(const struct rp_audit_side *side)
{
    return (struct rp_record){side->stream.text, side->stream.bytes};
}

/* `source[0003].weight` */
static bool is_weight(const char *name)
{
    static const char end[] = "].weight";
    size_t bytes = sizeof end - 1, length = strlen(name);
    return length > bytes && strcmp(name + length - bytes, end) == 0;
}

/* `stage[0000].max_epochs[0003]`: a start may set other limits. */
static bool is_limit(const char *name)
{
    static const char *const limits[] = {"].max_epochs[", "].max_tokens[", "].on_exhausted["};
    bool is_one = false;
    for (size_t i = 0; i < RP_ARRAY_COUNT(limits); i++)
        is_one |= strncmp(name, "stage[", 6) == 0 && strstr(name, limits[i]) != NULL;
    return is_one;
}

/* Whether a line is of a record after the first of both positions. */
static bool is_ahead(const struct rp_audit *audit, const struct rp_record *record, const char *name)
{
    const struct rp_audit_side *sides = audit->sides;
    struct rp_field field;
    char from[sizeof "record[0000].from"], value[24];
    if (strncmp(name, "record[", 7) != 0)
        return false;
    snprintf(from, sizeof from, "%.13sfrom", name);
    if (!rp_record_find(record, from, &field))
        return false;
    snprintf(value, sizeof value, "%.*s", (int)field.value_bytes, field.value);
    uint64_t row = strtoull(value, NULL, 10);
    return row > 0 && row >= rp_min_u64(sides[0].row, sides[1].row);
}

bool rp_audit_next_field(const struct rp_audit *audit, struct rp_record_pair *pair)
{
    char name[RP_RECORD_NAME_MAX + 1];
    while (rp_record_next_difference(pair)) {
        bool is_free = true;
        for (unsigned s = 0; s < 2; s++) {
            const struct rp_field *field = &pair->field[s];
            snprintf(name, sizeof name, "%.*s", (int)field->name_bytes, field->name);
            is_free &= !pair->has[s] || is_weight(name) || is_limit(name) ||
                       is_ahead(audit, pair->of[s], name);
        }
        if (!is_free)
            return true;
    }
    return false;
}

static bool are_other_streams(const struct rp_audit *audit)
{
    struct rp_record a = rp_audit_stream(&audit->sides[0]), b = rp_audit_stream(&audit->sides[1]);
    struct rp_record_pair pair = {.of = {&a, &b}};
    return rp_audit_next_field(audit, &pair);
}

/* ---- planning again -------------------------------------------------------------------------- */

/* The digest of a side's config at a row, planned from row 0. */
static int plan_from_zero(struct rp_audit_side *side, uint64_t row, struct rp_hash128 *digest,
                          struct rp_error *error)
{
    int code = rp_audit_side_plan(side, error);
    if (code == 0)
        code = rp_walk_to(&side->walk, row, error);
    if (code == 0)
        *digest = rp_plan_digest(side->walk.plan);
    return code < 0 ? rp_fail_context(error, code, "%s", side->path) : code;
}

/* Whether the side equals the plan of its config from row 0. */
static int is_its_plan(struct rp_audit_side *side, struct rp_error *error)
{
    struct rp_hash128 digest = {0, 0};
    int code = plan_from_zero(side, side->row, &digest, error);
    return code < 0 ? code : code == 0 && rp_hash128_equal(digest, side->digest);
}

/* The state of a side at its position. A config has none: it is planned from row 0. */
static int find_state(struct rp_audit_side *side, struct rp_known_state *state,
                      struct rp_error *error)
{
    *state = (struct rp_known_state){side->row, side->token, side->token_bytes, false};
    if (side->token)
        return 0;
    int code = rp_walk_to(&side->walk, side->row, error);
    RP_ASSERT(code <= 0); /* rp_audit_side_place has been there */
    *state = side->walk.near;
    return code;
}

/* Whether the digest of `late` follows from the state of `early` by the config of `planner`. */
static int follows(struct rp_audit_side *planner, struct rp_audit_side *early,
                   const struct rp_audit_side *late, struct rp_error *error)
{
    struct rp_known_state state;
    int code = rp_audit_side_plan(planner, error);
    if (code == 0)
        code = find_state(early, &state, error);
    if (code == 0)
        code = rp_walk_continue(&planner->walk, state.token, state.bytes, late->row, error);
    if (code < 0)
        return rp_fail_context(error, code, "%s, planned on with the config %s", early->path,
                               planner->config_path);
    return code == 0 && rp_hash128_equal(rp_plan_digest(planner->walk.plan), late->digest);
}

/* Whether the later side continues the earlier one. Weights that were changed at the row of the
 * earlier side are as in the later side's config, and records after it are the later side's. */
static int continues(struct rp_audit_side *early, struct rp_audit_side *late,
                     struct rp_error *error)
{
    int code = follows(early, early, late, error);
    return code == 0 ? follows(late, early, late, error) : code;
}

/* Whether weights were changed before the position of a side, or are others than its config has. */
static int is_reweighted(struct rp_audit_side *side, struct rp_error *error)
{
    if (!side->token)
        return 0;
    int code = rp_audit_side_plan(side, error);
    if (code == 0)
        code = rp_plan_load(side->walk.plan, side->token, side->token_bytes, true, error);
    return code < 0 ? rp_fail_context(error, code, "%s", side->path)
                    : rp_plan_is_reweighted(side->walk.plan);
}

/* ---- the first row that differs -------------------------------------------------------------- */

static int agree_at(struct rp_audit *audit, uint64_t row, struct rp_error *error)
{
    struct rp_hash128 digest[2] = {{0, 0}, {0, 0}};
    for (unsigned i = 0; i < 2; i++) {
        int code = plan_from_zero(&audit->sides[i], row, &digest[i], error);
        if (code != 0)
            return code < 0 ? code : 0;
    }
    return rp_hash128_equal(digest[0], digest[1]);
}

static bool fragments_equal(const struct rp_fragment *a, const struct rp_fragment *b)
{
    return a->document == b->document && a->offset == b->offset && a->source == b->source &&
           a->length == b->length;
}

/* Note the first fragment that differs; false if the rows are equal. */
static bool note_difference(struct rp_audit *audit, const struct rp_row rows[2], const int has[2])
{
    for (uint32_t i = 0;; i++) {
        bool more[2];
        for (unsigned s = 0; s < 2; s++)
            more[s] = has[s] == 1 && i < rows[s].count;
        if (!more[0] && !more[1])
            return has[0] != has[1];
        if (more[0] && more[1] && fragments_equal(&rows[0].fragments[i], &rows[1].fragments[i]))
            continue;
        for (unsigned s = 0; s < 2; s++) {
            audit->has_fragment[s] = more[s];
            if (more[s])
                audit->fragment[s] = rows[s].fragments[i];
        }
        return true;
    }
}

/* Plan both sides row by row. All rows before `row` are equal. */
static int compare_rows(struct rp_audit *audit, uint64_t row, uint64_t end, struct rp_error *error)
{
    struct rp_row rows[2];
    int has[2];
    for (unsigned s = 0; s < 2; s++) {
        int code = rp_walk_to(&audit->sides[s].walk, row, error);
        if (code < 0)
            return code;
    }
    for (; row < end; row++) {
        for (unsigned s = 0; s < 2; s++) {
            has[s] = rp_walk_next(&audit->sides[s].walk, &rows[s], error);
            if (has[s] < 0)
                return has[s];
        }
        if (note_difference(audit, rows, has))
            break;
    }
    RP_ASSERT(row < end);
    audit->rows = row;
    audit->verdict = RP_AUDIT_DIFFERS;
    return 0;
}

/* Digests are chained: where two agree, all rows before agree. So the last row at which they agree
 * is found by bisection, as closely as a landmark is near every row. */
static int find_first_row(struct rp_audit *audit, uint64_t end, struct rp_error *error)
{
    uint64_t low = 0, high = (end - 1) / BISECTION_ROWS;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        int agree = agree_at(audit, middle * BISECTION_ROWS, error);
        if (agree < 0)
            return agree;
        if (agree)
            low = middle;
        else
            high = middle - 1;
    }
    return compare_rows(audit, low * BISECTION_ROWS, end, error);
}

/* ---- the difference -------------------------------------------------------------------------- */

static int fail_without_config(struct rp_audit *audit, uint64_t row, struct rp_error *error)
{
    audit->is_unproven = true;
    return rp_fail(
        error, -RP_E_USAGE, "give the config of the run: `-c CONFIG`",
        "not proven: %s and %s cannot be compared any further: to know their rows before "
        "row %" PRIu64 " is to plan them again, and neither has a config",
        audit->sides[0].path, audit->sides[1].path, row);
}

static int fail_reweighted(struct rp_audit *audit, const struct rp_audit_side *early,
                           const struct rp_audit_side *late, struct rp_error *error)
{
    audit->is_unproven = true;
    return rp_fail(error, -RP_E_USAGE,
                   "compare checkpoints between the two in pairs, each with the config of its "
                   "time: `ringpack checkpoint list DIR` lists them",
                   "not proven: whether %s (row %" PRIu64 ") continues %s (row %" PRIu64
                   ") cannot be told: weights were changed before the later row, and its rows "
                   "follow from the earlier one by none of the configs that are here",
                   late->path, late->row, early->path, early->row);
}

static int fail_without_digest(struct rp_audit *audit, const struct rp_audit_side *side,
                               struct rp_error *error)
{
    audit->is_unproven = true;
    return rp_fail(error, -RP_E_USAGE,
                   "take a token or a checkpoint that an engine of this version has written since "
                   "it began at row 0, or at a token with a digest",
                   "not proven: %s has no plan digest: an older version wrote it, or it follows "
                   "from such a state",
                   side->path);
}

/* The digests differ at `end`, or the later side does not continue the earlier one. */
static int explain_difference(struct rp_audit *audit, uint64_t end, struct rp_error *error)
{
    int is_plan[2] = {0, 0};
    for (unsigned s = 0; s < 2; s++) {
        if (!audit->sides[s].has_config)
            return fail_without_config(audit, end, error);
        is_plan[s] = is_its_plan(&audit->sides[s], error);
        if (is_plan[s] < 0)
            return is_plan[s];
        audit->deviates[s] = !is_plan[s];
    }
    int agree = is_plan[0] && is_plan[1] ? agree_at(audit, end, error) : 1;
    if (agree <= 0)
        return agree < 0 ? agree : find_first_row(audit, end, error);
    audit->verdict = RP_AUDIT_DEVIATES;
    audit->rows = end;
    return 0;
}

static int compare_positions(struct rp_audit *audit, struct rp_error *error)
{
    unsigned first = audit->sides[0].row <= audit->sides[1].row ? 0 : 1;
    struct rp_audit_side *early = &audit->sides[first], *late = &audit->sides[1 - first];
    bool is_one_row = early->row == late->row;
    if (!is_one_row && !early->has_config)
        return fail_without_config(audit, late->row, error);
    int same = is_one_row ? rp_hash128_equal(early->digest, late->digest)
                          : continues(early, late, error);
    int unsure = same == 0 && !is_one_row ? is_reweighted(late, error) : 0;
    if (same < 0 || unsure < 0)
        return same < 0 ? same : unsure;
    if (unsure)
        return fail_reweighted(audit, early, late, error);
    if (!same)
        return explain_difference(audit, late->row, error);
    audit->verdict = is_one_row ? RP_AUDIT_IDENTICAL : RP_AUDIT_CONTINUES;
    audit->rows = early->row;
    return 0;
}

int rp_audit_compare(struct rp_audit *audit, struct rp_error *error)
{
    if (are_other_streams(audit)) {
        audit->verdict = RP_AUDIT_OTHER;
        return 0;
    }
    for (unsigned s = 0; s < 2; s++)
        if (!rp_hash128_is_known(audit->sides[s].digest))
            return fail_without_digest(audit, &audit->sides[s], error);
    return compare_positions(audit, error);
}
