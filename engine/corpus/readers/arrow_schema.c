/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_schema.c — see arrow.h. Fields are visited depth first, so that the nodes and buffers
 * before the wanted column can be counted. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "corpus/readers/arrow.h"

#define FIELDS_MAX (1u << 16)
#define DEPTH_MAX 64u

/* Numbers of the types in the union `Type` of Schema.fbs, then the buffers of each, children not
 * included. */
enum {
    TYPE_INT = 2,
    TYPE_BOOL = 6,
    TYPE_LIST = 12,
    TYPE_UNION = 14,
    TYPE_FIXED_SIZE_LIST = 16,
    TYPE_LARGE_LIST = 21,
    TYPE_COUNT = 27
};
static const struct {
    const char *name;
    uint8_t buffers;
    bool has_views;
} types[TYPE_COUNT] = {
    {"none", 0, false},         {"null", 0, false},         {"int", 2, false},
    {"float", 2, false},        {"binary", 3, false},       {"string", 3, false},
    {"bool", 2, false},         {"decimal", 2, false},      {"date", 2, false},
    {"time", 2, false},         {"timestamp", 2, false},    {"interval", 2, false},
    {"list", 2, false},         {"struct", 1, false},       {"union", 1, false},
    {"fixed binary", 2, false}, {"fixed list", 1, false},   {"map", 2, false},
    {"duration", 2, false},     {"large binary", 3, false}, {"large string", 3, false},
    {"large list", 2, false},   {"run-end", 0, false},      {"binary view", 2, true},
    {"string view", 2, true},   {"list view", 3, false},    {"large list view", 3, false},
};

/* Fields of Schema.fbs, by their slots. */
enum { SCHEMA_ENDIANNESS = 0, SCHEMA_FIELDS = 1 };
enum { FIELD_NAME = 0, FIELD_TYPE_TYPE = 2, FIELD_TYPE = 3, FIELD_DICTIONARY = 4, FIELD_CHILDREN };
enum { INT_BITS = 0, INT_SIGNED = 1, LIST_SIZE = 0, UNION_MODE = 0 };

/* Nodes, buffers and columns of views before a field. */
struct counted {
    uint32_t nodes, buffers, views;
};

struct field {
    char name[RP_COLUMN_BYTES]; /* empty if it is longer */
    uint8_t type;
    uint64_t details; /* the table of the type */
    bool is_dictionary;
    struct rp_flat_vector children;
};

static struct field read_field(struct rp_flat *flat, uint64_t at)
{
    struct field field = {.type = (uint8_t)rp_flat_value(flat, at, FIELD_TYPE_TYPE, 1),
                          .details = rp_flat_table(flat, at, FIELD_TYPE),
                          .is_dictionary = rp_flat_table(flat, at, FIELD_DICTIONARY) != 0,
                          .children = rp_flat_vector(flat, at, FIELD_CHILDREN, 4)};
    struct rp_flat_vector name = rp_flat_vector(flat, at, FIELD_NAME, 1);
    if (name.count > 0 && name.count < sizeof field.name)
        memcpy(field.name, flat->bytes + name.at, name.count);
    flat->is_damaged |= at == 0 || field.type == 0 || field.type >= TYPE_COUNT;
    return field;
}

static uint64_t child_at(struct rp_flat *flat, const struct field *field, uint32_t i)
{
    return rp_flat_follow(flat, field->children.at + 4 * (uint64_t)i);
}

/* Count a field and its children. A dictionary has only its indices here: its values are
 * in batches of their own. */
static void count_field(struct rp_flat *flat, uint64_t at, unsigned depth, struct counted *counted)
{
    struct field field = read_field(flat, at);
    if (flat->is_damaged || depth > DEPTH_MAX || counted->nodes >= FIELDS_MAX) {
        flat->is_damaged = true;
        return;
    }
    counted->nodes++;
    if (field.is_dictionary) {
        counted->buffers += types[TYPE_INT].buffers;
        return;
    }
    bool is_dense = field.type == TYPE_UNION && rp_flat_value(flat, field.details, UNION_MODE, 2);
    counted->buffers += types[field.type].buffers + is_dense;
    counted->views += types[field.type].has_views;
    for (uint32_t i = 0; i < field.children.count && !flat->is_damaged; i++)
        count_field(flat, child_at(flat, &field, i), depth + 1, counted);
}

static enum rp_token_type integer_type(struct rp_flat *flat, const struct field *field)
{
    static const enum rp_token_type known[4][2] = {{RP_TOKEN_U8, RP_TOKEN_I8},
                                                   {RP_TOKEN_U16, RP_TOKEN_I16},
                                                   {RP_TOKEN_U32, RP_TOKEN_I32},
                                                   {RP_TOKEN_U64, RP_TOKEN_I64}};
    uint64_t bits = rp_flat_value(flat, field->details, INT_BITS, 4);
    bool is_signed = rp_flat_value(flat, field->details, INT_SIGNED, 1) != 0;
    for (unsigned i = 0; i < 4; i++)
        if (bits == 8u << i)
            return known[i][is_signed];
    return RP_TOKEN_NONE;
}

/* True if the field is a list of integers or, with may_be_bits, of booleans, as masks may be. */
static bool read_column(struct rp_flat *flat, const struct field *field, bool may_be_bits,
                        const struct counted *before, struct rp_arrow_column *column)
{
    if (field->is_dictionary || field->children.count != 1)
        return false;
    switch (field->type) {
    case TYPE_LIST:
        column->list = RP_ARROW_LIST;
        break;
    case TYPE_LARGE_LIST:
        column->list = RP_ARROW_LARGE_LIST;
        break;
    case TYPE_FIXED_SIZE_LIST:
        column->list = RP_ARROW_FIXED_SIZE_LIST;
        column->list_size = (uint32_t)rp_flat_value(flat, field->details, LIST_SIZE, 4);
        flat->is_damaged |= column->list_size > INT32_MAX;
        break;
    default:
        return false;
    }
    struct field child = read_field(flat, child_at(flat, field, 0));
    if (child.is_dictionary || (child.type == TYPE_BOOL && !may_be_bits))
        return false;
    column->type = child.type == TYPE_INT ? integer_type(flat, &child) : RP_TOKEN_NONE;
    column->node = before->nodes;
    column->buffer = before->buffers;
    column->views = before->views;
    return child.type == TYPE_BOOL || column->type != RP_TOKEN_NONE;
}

/* ---- choosing -------------------------------------------------------------------------------- */

struct choice {
    enum rp_id_rank best;
    unsigned count;   /* lists of integers of the best rank */
    char lists[160];  /* their names */
    char found[96];   /* the type of the declared column */
    bool has_indices; /* a column `indices` of u64 */
    uint32_t columns;
};

static void note_list(struct choice *choice, const char *name)
{
    size_t used = strlen(choice->lists);
    snprintf(choice->lists + used, sizeof choice->lists - used, "%s%s", used ? ", " : "", name);
}

static void consider(struct rp_flat *flat, const struct field *field, const struct counted *before,
                     const char *declared, struct choice *choice, struct rp_arrow_schema *schema)
{
    struct rp_arrow_column column = {0};
    enum rp_id_rank rank = rp_readers_rank(field->name, declared);
    if (rank == RP_ID_DECLARED)
        snprintf(choice->found, sizeof choice->found, "a column of type %s",
                 types[field->type].name);
    if (!strcmp(field->name, "indices") && field->type == TYPE_INT)
        choice->has_indices = true;
    if (!read_column(flat, field, false, before, &column) ||
        (!declared && !strcmp(field->name, "attention_mask")))
        return;
    note_list(choice, field->name);
    if (rank < choice->best || rank == RP_ID_NONE)
        return;
    choice->count = rank == choice->best ? choice->count + 1 : 1;
    choice->best = rank;
    schema->ids = column;
    memcpy(schema->name, field->name, sizeof schema->name);
}

/* The column of that name, if it is a list of integers or booleans. */
static bool find_column(struct rp_flat *flat, const struct rp_flat_vector *fields, const char *name,
                        struct rp_arrow_column *column)
{
    struct counted counted = {0};
    bool is_there = false;
    for (uint32_t i = 0; i < fields->count && !flat->is_damaged; i++) {
        uint64_t at = rp_flat_follow(flat, fields->at + 4 * (uint64_t)i);
        struct field field = read_field(flat, at);
        is_there |= !strcmp(field.name, name) && read_column(flat, &field, true, &counted, column);
        count_field(flat, at, 0, &counted);
    }
    return is_there;
}

/* Whether there is an attention mask. Its name follows from the column's: input_ids and
 * attention_mask, chosen_input_ids and chosen_attention_mask; for any other name it is
 * attention_mask. */
static bool find_attention(struct rp_flat *flat, const struct rp_flat_vector *fields,
                           struct rp_arrow_schema *schema)
{
    static const char ids[] = "input_ids";
    char wanted[RP_COLUMN_BYTES + sizeof "attention_mask"];
    size_t length = strlen(schema->name), stem = 0;
    if (length >= sizeof ids - 1 && !strcmp(schema->name + length - (sizeof ids - 1), ids))
        stem = length - (sizeof ids - 1);
    snprintf(wanted, sizeof wanted, "%.*sattention_mask", (int)stem, schema->name);
    return find_column(flat, fields, wanted, &schema->attention);
}

/* The column that says which tokens are trained. */
static int find_trained(struct rp_flat *flat, const struct rp_flat_vector *fields,
                        const struct rp_probe *probe, const struct rp_mask_choice *choice,
                        struct rp_arrow_schema *schema, struct rp_error *error)
{
    const char *const *usual = rp_mask_usual_names;
    const char *name = rp_mask_is_auto(choice) ? NULL : choice->name;
    struct rp_arrow_column column;
    if (rp_mask_is_none(choice))
        return 0;
    if (name && !find_column(flat, fields, name, &schema->trained))
        return rp_fail(error, -RP_E_FORMAT, "name a column with `mask:` (--mask), or none",
                       "%s: mask `%s`: expected a list of integers or booleans of that name, found "
                       "none",
                       probe->path, name);
    for (size_t i = 0; rp_mask_is_auto(choice) && i < RP_MASK_USUAL_NAMES; i++) {
        if (!find_column(flat, fields, usual[i], &column))
            continue;
        if (name)
            return rp_fail(error, -RP_E_FORMAT, "name the one to train by: `mask:` (--mask)",
                           "%s: there are the columns %s and %s", probe->path, name, usual[i]);
        name = usual[i];
        schema->trained = column;
        if (i == 0) /* labels have all masks in them */
            break;
    }
    schema->has_trained = name != NULL;
    return name ? rp_mask_origin(&schema->origin, name, choice, error) : 0;
}

static int fail_choice(const struct rp_probe *probe, const struct choice *choice,
                       const char *declared, struct rp_error *error)
{
    if (!declared && choice->columns == 1 && choice->has_indices)
        return rp_readers_refuse(
            probe, "a cache of indices, which shuffle, select or filter of datasets left",
            "flatten_indices() and save_to_disk() write the rows themselves, in their order",
            error);
    if (declared)
        return rp_fail(error, -RP_E_FORMAT, "name one with `column:` (--column)",
                       "%s: column `%s`: expected a list of integers, found %s; there are: %s",
                       probe->path, declared, choice->found[0] ? choice->found : "none",
                       choice->lists[0] ? choice->lists : "none");
    return rp_fail(
        error, -RP_E_FORMAT, "name the one with the token ids: `column:` (--column)",
        "%s: expected a column `input_ids` or `tokens`, or one list of integers, found %s",
        probe->path, choice->lists[0] ? choice->lists : "no list of integers");
}

int rp_arrow_read_schema(struct rp_flat *flat, uint64_t table, const struct rp_probe *probe,
                         const struct rp_reader_options *options, struct rp_arrow_schema *schema,
                         struct rp_error *error)
{
    const char *declared = options->column;
    struct rp_flat_vector fields = rp_flat_vector(flat, table, SCHEMA_FIELDS, 4);
    struct counted counted = {0};
    struct choice choice = {.columns = fields.count};
    *schema = (struct rp_arrow_schema){0};
    if (rp_flat_value(flat, table, SCHEMA_ENDIANNESS, 2) != 0)
        return rp_readers_convert(probe, "an Arrow file of a big-endian machine", error);
    for (uint32_t i = 0; i < fields.count && !flat->is_damaged; i++) {
        uint64_t at = rp_flat_follow(flat, fields.at + 4 * (uint64_t)i);
        struct field field = read_field(flat, at);
        if (!flat->is_damaged)
            consider(flat, &field, &counted, declared, &choice, schema);
        count_field(flat, at, 0, &counted);
    }
    schema->has_attention = find_attention(flat, &fields, schema);
    if (flat->is_damaged)
        return rp_arrow_damaged(probe, "schema", 0, error);
    if (choice.count != 1 || !schema->name[0])
        return fail_choice(probe, &choice, declared, error);
    return find_trained(flat, &fields, probe, &options->mask, schema, error);
}
