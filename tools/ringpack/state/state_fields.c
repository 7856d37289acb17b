/* SPDX-License-Identifier: Apache-2.0 */
#include "state/state_fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/record.h"
#include "plan/token_records.h"
#include "plan/v2/planner_token.h"

#define NAME_BYTES 96
#define DIGEST "plan_digest" /* exports of older versions do not have this field */
#define EDITED_HINT                                                                                \
    "the token decides, and its fields are for people: take them out of the file, or export it "   \
    "again; `ringpack state --row N` makes the token of another row"

static void add(json_t *fields, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(json_t *fields, const char *name, const char *format, ...)
{
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_object_set_new(fields, name, json_string(text));
}

static void add_number(json_t *fields, const char *prefix, const char *name, uint64_t value)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    add(fields, full, "%" PRIu64, value);
}

static int add_contract(json_t *fields, const void *token, size_t bytes, struct rp_error *error)
{
    struct rp_record_writer writer = {0};
    struct rp_field field;
    int code = rp_state_contract(token, bytes, &writer, error);
    struct rp_record record = {writer.text, writer.bytes};
    for (size_t at = 0; code == 0 && rp_record_next(&record, &at, &field);) {
        char name[RP_RECORD_NAME_MAX + 1];
        snprintf(name, sizeof name, "%.*s", (int)field.name_bytes, field.name);
        add(fields, name, "%.*s", (int)field.value_bytes, field.value);
    }
    free(writer.text);
    return code;
}

static void add_counts(json_t *fields, const char *prefix, const struct rp_lane_counts *counts)
{
    add_number(fields, prefix, "documents", counts->documents);
    add_number(fields, prefix, "empty", counts->empty);
    add_number(fields, prefix, "tokens_read", counts->tokens_read);
    add_number(fields, prefix, "truncated", counts->truncated);
    add_number(fields, prefix, "dropped", counts->dropped);
    add_number(fields, prefix, "emitted", counts->emitted);
    add_number(fields, prefix, "padding", counts->padding);
    add_number(fields, prefix, "placed", counts->placed);
}

/* The records of a lane. False if they end too early. */
static bool add_cursors(json_t *fields, const char *prefix, uint32_t count,
                        struct rp_state_reader *reader)
{
    struct rp_state_cursor cursor;
    char name[NAME_BYTES];
    for (uint32_t s = 0; s < count; s++) {
        if (!rp_state_read(reader, &cursor, sizeof cursor))
            return false;
        snprintf(name, sizeof name, "%ssource[%04" PRIu32 "].", prefix, s);
        add_number(fields, name, "epoch", cursor.epoch);
        add_number(fields, name, "position", cursor.position);
        add_number(fields, name, "mixed", cursor.mixed);
    }
    return true;
}

static bool add_pieces(json_t *fields, const char *prefix, const char *kind, uint32_t count,
                       struct rp_state_reader *reader)
{
    struct rp_state_piece piece;
    char name[NAME_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        if (!rp_state_read(reader, &piece, sizeof piece))
            return false;
        snprintf(name, sizeof name, "%s%s[%04" PRIu32 "]", prefix, kind, i);
        add(fields, name,
            "source %" PRIu32 ", document %" PRIu64 ", tokens %" PRIu64 " to %" PRIu64,
            piece.source, piece.document, piece.offset, piece.offset + piece.length);
    }
    return true;
}

static bool add_open_rows(json_t *fields, const char *prefix, uint32_t count,
                          struct rp_state_reader *reader)
{
    struct rp_state_open_row row;
    struct rp_fragment fragment;
    char name[NAME_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        if (!rp_state_read(reader, &row, sizeof row))
            return false;
        snprintf(name, sizeof name, "%sopen[%04" PRIu32 "].", prefix, i);
        add_number(fields, name, "opened_at", row.opened_at);
        for (uint32_t k = 0; k < row.fragments; k++) {
            if (!rp_state_read(reader, &fragment, sizeof fragment))
                return false;
            snprintf(name, sizeof name, "%sopen[%04" PRIu32 "].fragment[%04" PRIu32 "]", prefix, i,
                     k);
            add(fields, name,
                "source %" PRIu32 ", document %" PRIu64 ", tokens %" PRIu64 " to %" PRIu64,
                fragment.source, fragment.document, fragment.offset,
                fragment.offset + fragment.length);
        }
    }
    return true;
}

static bool add_lanes(json_t *fields, const struct rp_state_header *header,
                      struct rp_state_reader *reader)
{
    if (!rp_state_skip(reader, header->source_count, sizeof(struct rp_state_source)))
        return false;
    for (uint32_t i = 0; i < header->lanes; i++) {
        struct rp_state_lane lane;
        char prefix[NAME_BYTES / 2];
        if (!rp_state_read(reader, &lane, sizeof lane))
            return false;
        snprintf(prefix, sizeof prefix, "lane[%04" PRIu32 "].", i);
        add_counts(fields, prefix, &lane.counts);
        if (!add_cursors(fields, prefix, header->source_count, reader) ||
            !add_pieces(fields, prefix, "piece", lane.fifo, reader) ||
            !add_pieces(fields, prefix, "pending", lane.pending, reader) ||
            !add_open_rows(fields, prefix, lane.open_rows, reader))
            return false;
    }
    return reader->left == 0;
}

/* ---- version 2 ------------------------------------------------------------------------------- */

static int add_sources(json_t *fields, const void *token, size_t bytes, struct rp_error *error)
{
    struct rp_planner_token_source *sources;
    uint32_t count;
    char prefix[NAME_BYTES / 2];
    int code = rp_planner_token_sources(token, bytes, &sources, &count, error);
    for (uint32_t j = 0; code == 0 && j < count; j++) {
        const struct rp_source_state *state = &sources[j].state;
        snprintf(prefix, sizeof prefix, "source[%04" PRIu32 "].", j);
        add_number(fields, prefix, "epoch", state->epoch);
        add_number(fields, prefix, "pass", state->pass);
        add_number(fields, prefix, "position", state->position);
        add_number(fields, prefix, "documents", state->documents);
        add_number(fields, prefix, "taken", state->taken);
        add_number(fields, prefix, "tokens", state->tokens);
        add_number(fields, prefix, "withheld", state->withheld);
        add_number(fields, prefix, "weight", sources[j].weight);
        add_number(fields, prefix, "max_epochs", sources[j].limits.max_epochs);
        add_number(fields, prefix, "max_tokens", sources[j].limits.max_tokens);
    }
    free(sources);
    return code;
}

/* The pieces that wait are not listed; the token's hash covers them. */
static json_t *fields_of_version_2(const struct rp_state_info *info, const void *token,
                                   size_t bytes, struct rp_error *error)
{
    char hex[RP_HASH_HEX_BYTES];
    json_t *fields = json_object();
    int code = fields ? 0
                      : rp_fail(error, -ENOMEM, NULL, "no memory for the fields of a state token");
    if (code == 0) {
        const struct rp_plan_counts *counts = &info->counts;
        add_number(fields, "", "next_row", info->next_row);
        add_number(fields, "", "window_first", info->window_first);
        add_number(fields, "", "window_end", info->window_end);
        add_number(fields, "", "token_version", RP_TOKEN_VERSION_CALENDAR);
        add(fields, DIGEST, "%s", rp_hash128_hex(info->digest, hex));
        add_number(fields, "", "documents", counts->documents);
        add_number(fields, "", "passed_over", counts->passed_over);
        add_number(fields, "", "empty", counts->empty);
        add_number(fields, "", "tokens_read", counts->tokens_read);
        add_number(fields, "", "truncated", counts->truncated);
        add_number(fields, "", "dropped", counts->dropped);
        add_number(fields, "", "left_out", counts->left_out);
        add_number(fields, "", "emitted", counts->emitted);
        add_number(fields, "", "padding", counts->padding);
        code = add_contract(fields, token, bytes, error);
    }
    if (code == 0)
        code = add_sources(fields, token, bytes, error);
    if (code == 0)
        return fields;
    json_decref(fields);
    return NULL;
}

/* ---- both ------------------------------------------------------------------------------------ */

json_t *rp_saved_fields(const void *token, size_t bytes, struct rp_error *error)
{
    struct rp_state_reader reader = {0};
    struct rp_state_header header;
    char hex[RP_HASH_HEX_BYTES];
    struct rp_state_info info;
    if (rp_state_info(token, bytes, &info, error) < 0)
        return NULL;
    if (info.stream_version == 2)
        return fields_of_version_2(&info, token, bytes, error);
    json_t *fields = json_object();
    int code = fields ? rp_state_open(&reader, &header, token, bytes, error)
                      : rp_fail(error, -ENOMEM, NULL, "no memory for the fields of a state token");
    if (code == 0) {
        add_number(fields, "", "next_row", header.next_row);
        add_number(fields, "", "token_version", header.version);
        if (rp_hash128_is_known(reader.digest))
            add(fields, DIGEST, "%s", rp_hash128_hex(reader.digest, hex));
        code = add_contract(fields, token, bytes, error);
    }
    if (code == 0 && !add_lanes(fields, &header, &reader))
        code = rp_fail(error, -RP_E_CORRUPT, RP_TOKEN_DAMAGED_HINT,
                       "state token: its records do not fill its %" PRIu32 " bytes", header.bytes);
    if (code == 0)
        return fields;
    json_decref(fields);
    return NULL;
}

int rp_saved_fields_check(const json_t *fields, const void *token, size_t bytes, const char *path,
                          struct rp_error *error)
{
    struct rp_error found;
    json_t *own = rp_saved_fields(token, bytes, &found);
    const char *name;
    json_t *value;
    int code = own ? 0 : rp_fail(error, found.code, found.hint, "%s: %s", path, found.message);
    if (code == 0 && !json_is_object(fields))
        code = rp_fail(error, -RP_E_MISMATCH, EDITED_HINT, "%s: its fields are no object", path);
    json_object_foreach(own, name, value)
    {
        const json_t *said = json_object_get(fields, name);
        bool may_be_missing = !said && strcmp(name, DIGEST) == 0;
        if (code == 0 && !may_be_missing && !json_equal(value, said))
            code = rp_fail(error, -RP_E_MISMATCH, EDITED_HINT,
                           "%s: the field %s is %.80s, and its token has %.80s", path, name,
                           json_is_string(said) ? json_string_value(said) : "missing",
                           json_string_value(value));
    }
    json_object_foreach((json_t *)(uintptr_t)fields, name, value)
    {
        if (code == 0 && !json_object_get(own, name))
            code = rp_fail(error, -RP_E_MISMATCH, EDITED_HINT,
                           "%s: the field %.80s is none of its token", path, name);
    }
    json_decref(own);
    return code;
}
