/* SPDX-License-Identifier: Apache-2.0 */
/* sides.h — side columns of a conversion (convert.h): numbers of the rows that become tokens.
 *
 * The entries of a document reach the sink with its ids. In a table they are in the frames of its
 * worker. In a line of JSONL they wait in a queue, because the text of the line may stay with the
 * tokenizer until later lines are read: a line leaves the queue with its last document. The output
 * writes the entries next to its tokens (output_sides.c). */
#ifndef RP_TOOLS_CONVERT_SIDES_H
#define RP_TOOLS_CONVERT_SIDES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convert/wanted.h"
#include "corpus/side_file.h"

struct rp_convert;
struct rp_ids;
struct rp_inputs;

/* The columns of the command line: NAME=FIELD[:TYPE]. */
struct rp_wanted_sides {
    struct rp_column_wanted columns[RP_SIDES_MAX];
    uint32_t count;
};

/* The entries of a document in one column. */
struct rp_entries {
    struct rp_side_type type;
    bool is_number; /* one entry, which all tokens and both ends have; else an entry for each */
    uint64_t count;
    const uint8_t *at;
};

struct rp_side_queue {
    uint8_t *bytes;
    size_t begin, end, capacity;
};

/* sides.c */

/** Take one more column of the command line. */
bool rp_convert_sides_option(const char *text, void *wanted);
/** A list of objects, for the worker and for the hash of all options. NULL: a name is no UTF-8. */
json_t *rp_convert_sides_json(const struct rp_wanted_sides *wanted);
/** Refuse inputs whose rows have no fields. */
RP_MUST_CHECK int rp_convert_sides_check(const struct rp_wanted_sides *wanted,
                                         const struct rp_inputs *inputs, struct rp_error *error);

/** Queue the entries of a line, which becomes `documents` documents. */
RP_MUST_CHECK int rp_convert_sides_queue(struct rp_convert *convert, json_t *object,
                                         uint32_t documents, struct rp_error *error);
/** The entries of the document that the sink has, valid until the next line is queued.
 * -RP_E_FORMAT: it has another number of ids. */
RP_MUST_CHECK int rp_convert_sides_take(struct rp_convert *convert, const struct rp_ids *ids,
                                        struct rp_entries entries[RP_SIDES_MAX],
                                        struct rp_error *error);

/* side_values.c */

/** The type and the number of the entries of a value; `type.dtype` is given. False: it is neither
 * a number nor a list of numbers, or of lists of one length. */
bool rp_convert_value_measure(json_t *value, struct rp_entries *entries, bool *has_real);
/** Store them. Returns the first number that the type does not hold, as an integer or because it is
 * too large, or NULL. */
const json_t *rp_convert_value_store(json_t *value, const struct rp_entries *entries, bool has_real,
                                     uint8_t *to);

#endif
