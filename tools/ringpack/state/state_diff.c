/* SPDX-License-Identifier: Apache-2.0 */
/* state_diff.c — `ringpack checkpoint diff A B`: the fields that differ between two positions.
 *
 * A state token has the fields of the stream, the position and the packing. A checkpoint has
 * besides the fields of the delivery, contents and a config: they are compared if both sides are
 * checkpoints. Properties of the file, its sequence, run and version, are not compared. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/contract.h"
#include "cmd.h"
#include "cmd_state.h"
#include "state/state_copy.h"
#include "state/state_fields.h"

#define LANE_PREFIX "lane["
#define LANES_SHOWN 12u /* fields of lanes in the text; --json has all */

struct side {
    const char *path;
    json_t *fields;  /* the state token's */
    json_t *besides; /* a checkpoint's; NULL = it is a state token */
};

static void add_hash(json_t *object, const char *name, const void *data, size_t bytes)
{
    char hex[RP_HASH_HEX_BYTES];
    json_object_set_new(object, name,
                        json_string(data ? rp_hash128_hex(rp_hash128(data, bytes), hex) : "none"));
}

static void add_delivery(json_t *object, const struct rp_checkpoint *checkpoint)
{
    size_t bytes;
    struct rp_contract contract;
    struct rp_field field;
    const char *text = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTRACT, &bytes);
    if (!text || rp_contract_open(&contract, text, bytes, NULL) < 0)
        return;
    for (size_t at = 0; rp_record_next(&contract.delivery, &at, &field);) {
        char name[RP_RECORD_NAME_MAX + 1];
        snprintf(name, sizeof name, "%.*s", (int)field.name_bytes, field.name);
        json_object_set_new(object, name, json_stringn(field.value, field.value_bytes));
    }
}

static json_t *fields_besides(const struct rp_checkpoint *checkpoint)
{
    const struct rp_checkpoint_info *info = rp_checkpoint_info(checkpoint);
    json_t *object = json_object();
    size_t bytes;
    char rows[64];
    add_delivery(object, checkpoint);
    snprintf(rows, sizeof rows, "%" PRIu64 " to %" PRIu64, info->next_row, info->contents_end_row);
    json_object_set_new(object, "contents.rows", json_string(rows));
    const void *data = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes);
    add_hash(object, "contents.hash", data, bytes);
    data = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    add_hash(object, "config.hash", data, bytes);
    return object;
}

static int open_checkpoint(struct side *side, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint = NULL;
    size_t bytes;
    int code = rp_cmd_open_checkpoint(&checkpoint, side->path, error);
    if (code < 0)
        return code;
    const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
    side->fields = rp_saved_fields(state, bytes, error);
    side->besides = fields_besides(checkpoint);
    rp_checkpoint_close(checkpoint);
    return side->fields ? 0 : rp_fail_context(error, error->code, "%s", side->path);
}

static int open_side(struct side *side, struct rp_error *error)
{
    char *token;
    size_t bytes;
    if (!rp_cmd_is_state(side->path))
        return open_checkpoint(side, error);
    int code = rp_cmd_read_state(side->path, &token, &bytes, error);
    if (code < 0)
        return code;
    side->fields = rp_saved_fields(token, bytes, error);
    free(token);
    return side->fields ? 0 : rp_fail_context(error, error->code, "%s", side->path);
}

/* ---- comparing ------------------------------------------------------------------------------- */

struct differences {
    json_t *list; /* NULL = print lines */
    size_t count, of_lanes;
};

static const char *text_of(const json_t *value)
{
    return value ? json_string_value(value) : "(not there)";
}

static void note(struct differences *found, const char *name, const json_t *had, const json_t *has)
{
    bool is_lane = strncmp(name, LANE_PREFIX, strlen(LANE_PREFIX)) == 0;
    found->count++;
    found->of_lanes += is_lane;
    if (found->list)
        json_array_append_new(found->list, json_pack("{s:s, s:s, s:s}", "field", name, "first",
                                                     text_of(had), "second", text_of(has)));
    else if (!is_lane || found->of_lanes <= LANES_SHOWN)
        printf("%s\n  - %s\n  + %s\n", name, text_of(had), text_of(has));
}

static void compare(struct differences *found, json_t *had, json_t *has)
{
    const char *name;
    json_t *value;
    json_object_foreach(had, name, value)
    {
        const json_t *other = json_object_get(has, name);
        if (!json_equal(value, other))
            note(found, name, value, other);
    }
    json_object_foreach(has, name, value)
    {
        if (!json_object_get(had, name))
            note(found, name, NULL, value);
    }
}

static void compare_sides(struct differences *found, const struct side *had, const struct side *has)
{
    compare(found, had->fields, has->fields);
    if (!found->list && found->of_lanes > LANES_SHOWN)
        printf("(%zu more fields of the packing differ; --json has them)\n",
               found->of_lanes - LANES_SHOWN);
    if (had->besides && has->besides)
        compare(found, had->besides, has->besides);
    else if (!found->list && (had->besides || has->besides))
        printf(
            "(not compared: contents, delivery and config, which a state token does not have)\n");
}

int rp_saved_diff(const char *had, const char *has, bool json)
{
    struct side sides[] = {{.path = had}, {.path = has}};
    struct differences found = {.list = json ? json_array() : NULL};
    struct rp_error error;
    int code = open_side(&sides[0], &error);
    if (code == 0)
        code = open_side(&sides[1], &error);
    if (code == 0)
        compare_sides(&found, &sides[0], &sides[1]);
    for (size_t i = 0; i < RP_ARRAY_COUNT(sides); i++) {
        json_decref(sides[i].fields);
        json_decref(sides[i].besides);
    }
    return rp_cmd_end_diff(code, found.list, found.count, &error);
}
