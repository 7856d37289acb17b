/* SPDX-License-Identifier: Apache-2.0 */
/* record.h — named fields as text, in a canonical form: equal fields have equal bytes.
 *
 * A record is a list of lines, each NAME SIGN VALUE newline. The sign says how to compare a field,
 * so that a reader can compare fields that it does not know:
 *
 *     name=value   must be equal; a record that lacks the line differs
 *     name~value   must be equal if both records have the line
 *     name:value   is for people: neither compared nor hashed
 *
 * Invariants: names have 1 to 63 of the characters a-z 0-9 _ [ ] . and ascend strictly, compared as
 * bytes; values have at most 191 bytes of printable ASCII. So a name occurs once, and one pass
 * compares two records. Text from outside must be checked by rp_record_open first. */
#ifndef RP_BASE_RECORD_H
#define RP_BASE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/hash.h"

#define RP_RECORD_NAME_MAX 63u
#define RP_RECORD_VALUE_MAX 191u

/* A view of a record; the text is borrowed and not NUL-terminated. */
struct rp_record {
    const char *text;
    size_t bytes;
};

/* A line of a record. The texts are borrowed and not NUL-terminated. */
struct rp_field {
    const char *name, *value;
    uint32_t name_bytes, value_bytes;
    char sign;
};

/** Check every byte of the text and make a view of it. Error: -RP_E_CORRUPT, with the line. */
RP_MUST_CHECK int rp_record_open(struct rp_record *record, const char *text, size_t bytes,
                                 struct rp_error *error);

/** The next line: start with *at = 0; false at the end. */
bool rp_record_next(const struct rp_record *record, size_t *at, struct rp_field *field);

/** The line of that name; false if the record lacks it. */
bool rp_record_find(const struct rp_record *record, const char *name, struct rp_field *field);

/** XXH3-128 of the lines that are compared: all but those with the sign `:`. */
struct rp_hash128 rp_record_hash(const struct rp_record *record);

/* Two records that are compared. Start with {.of = {a, b}}. */
struct rp_record_pair {
    const struct rp_record *of[2];
    size_t at[2];
    struct rp_field field[2]; /* the current line of each record */
    bool has[2];              /* whether the record has that line */
};
/** Go to the next line whose difference counts, by its sign; false at the end. */
bool rp_record_next_difference(struct rp_record_pair *pair);

/* Writes records, one after the other, into memory that it allocates, with a NUL after them. Start
 * with zeros; free `text` at the end. */
struct rp_record_writer {
    char *text;
    size_t bytes, capacity;
    size_t last; /* begin of the last line */
    bool out_of_memory;
};
/** Add a line; names must ascend. Bytes that a value cannot hold are escaped, and a long value is
 * truncated. */
void rp_record_add(struct rp_record_writer *writer, char sign, const char *name, const char *format,
                   ...) __attribute__((format(printf, 4, 5)));
/** End a record with an empty line; another one begins. */
void rp_record_end(struct rp_record_writer *writer);

#endif
