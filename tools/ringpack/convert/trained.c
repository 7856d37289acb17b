/* SPDX-License-Identifier: Apache-2.0 */
/* trained.c — the trained tokens of a line of JSONL, by the labels or the mask next to its
 * ids. tools/python/ringpack/_convert/columns.py does the same for columns. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>

#include "convert/convert.h"

#define LABEL_IGNORED (-100)
#define MEND_LABEL                                                                                 \
    "a label is the token's own id or -100, not shifted; --mask-of next is for labels of the "     \
    "next token, and --mask none trains every token"

static int fail_line(struct rp_convert *convert, const char *mask, const char *expected,
                     const char *hint, struct rp_error *error)
{
    convert->bad_line = true;
    return rp_fail(error, -RP_E_FORMAT, hint, "%s:%" PRIu64 ": `%s`: expected %s", convert->path,
                   convert->line, mask, expected);
}

/* The name of the mask of a line: the one that was chosen, or labels, or the only usual one. NULL
 * without one. */
static int choose(struct rp_convert *convert, json_t *object, const char **name,
                  struct rp_error *error)
{
    const char *const *usual = rp_mask_usual_names;
    bool is_auto = rp_mask_is_auto(&convert->mask);
    *name = NULL;
    if (rp_mask_is_none(&convert->mask))
        return 0;
    if (!is_auto && !json_object_get(object, convert->mask.name))
        return fail_line(convert, convert->mask.name, "a list of that name",
                         "name another with --mask, or train every token with --mask none", error);
    if (!is_auto)
        *name = convert->mask.name;
    for (size_t i = 0; is_auto && i < RP_MASK_USUAL_NAMES; i++) {
        json_t *entries = json_object_get(object, usual[i]);
        if (!entries || json_is_null(entries))
            continue;
        if (*name)
            return rp_fail(error, -RP_E_FORMAT, "name the one to train by: --mask",
                           "%s:%" PRIu64 ": there are `%s` and `%s`", convert->path, convert->line,
                           *name, usual[i]);
        *name = usual[i];
        if (i == 0) /* labels have all masks in them */
            break;
    }
    return 0;
}

/* Is the token of an entry trained? 1 or 0; negative: the entry is a label of another id. */
static int entry_trains(struct rp_convert *convert, const struct rp_mask_origin *origin,
                        json_t *entry, size_t number, uint32_t id, struct rp_error *error)
{
    const struct rp_mask_rule *rule = &origin->rule;
    double value = json_is_boolean(entry) ? json_is_true(entry) : json_number_value(entry);
    char expected[64];
    if (!json_is_number(entry) && !json_is_boolean(entry))
        return fail_line(convert, origin->name, "numbers", RP_CONVERT_MEND, error);
    if (!rule->is_labels)
        return (value != 0) != rule->ignores;
    if (value == id || value == LABEL_IGNORED)
        return value == id;
    snprintf(expected, sizeof expected, "%" PRIu32 " or -100 for label %zu, found %.0f", id, number,
             value);
    return fail_line(convert, origin->name, expected, MEND_LABEL, error);
}

int rp_trained_line(struct rp_convert *convert, json_t *object, struct rp_ids *ids,
                    struct rp_error *error)
{
    struct rp_mask_origin *origin = &convert->line_mask;
    const char *name;
    int code = choose(convert, object, &name, error);
    if (code < 0 || !name)
        return code;
    json_t *entries = json_object_get(object, name);
    code = rp_mask_origin(origin, name, &convert->mask, error);
    if (code == 0 && json_array_size(entries) != ids->count + ids->padding)
        code = fail_line(convert, name, "as many entries as there are ids", RP_CONVERT_MEND, error);
    convert->runs.count = 0;
    uint32_t shift = origin->rule.of_next;
    for (size_t i = 0; code == 0 && i + shift < ids->count; i++) {
        uint32_t id = ((const uint32_t *)ids->at)[i + shift];
        int trains = entry_trains(convert, origin, json_array_get(entries, i), i, id, error);
        if (trains < 0)
            return trains;
        if (trains && rp_span_list_add(&convert->runs, (uint32_t)i + shift) < 0)
            code = rp_fail(error, -ENOMEM, NULL, "%s: out of memory for spans", convert->path);
    }
    ids->trained = (struct rp_trained){origin, convert->runs.spans, (uint32_t)convert->runs.count};
    return code;
}
