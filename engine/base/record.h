/* SPDX-License-Identifier: Apache-2.0 */
/* record.h — named fields as text in one canonical form: equal fields have equal bytes.
 *
 * A record is a list of lines, each NAME SIGN VALUE newline. The sign says what a difference
 * means, so that a reader can compare fields that it does not know:
 *
 *     name=value   must be equal; a record that lacks the line differs
 *     name~value   must be equal where both records have the line
 *     name:value   tells people something: never compared and not hashed
 *
 * Invariants: names are 1 to 63 of a-z 0-9 _ [ ] . and ascend strictly, as bytes; values are at
 * most 191 bytes of printable ASCII. So a name occurs once, and one pass compares two records.
 * Bytes from outside are a record only once rp_record_open has been over them. */
#ifndef RP_BASE_RECORD_H
#define RP_BASE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/hash.h"

#define RP_RECORD_NAME_MAX 63u
#define RP_RECORD_VALUE_MAX 191u

/* A record in somebody else's memory; not NUL-terminated. */
struct rp_record {
    const char *text;
    size_t bytes;
};

/* One line of it. Texts are not NUL-terminated. */
struct rp_field {
    const char *name, *value;
    uint32_t name_bytes, value_bytes;
    char sign;
};

/** Check every byte and make a view of them. -RP_E_CORRUPT, with the line. */
RP_MUST_CHECK int rp_record_open(struct rp_record *record, const char *text, size_t bytes,
                                 struct rp_error *error);

/** The next line: start with *at = 0; false at the end. */
bool rp_record_next(const struct rp_record *record, size_t *at, struct rp_field *field);

/** The line of that name; false if there is none. */
bool rp_record_find(const struct rp_record *record, const char *name, struct rp_field *field);

/** XXH3-128 of the lines but those that are not compared. */
struct rp_hash128 rp_record_hash(const struct rp_record *record);

/* Two records side by side: start with {.of = {a, b}}. `has`: which of them have the line. */
struct rp_record_pair {
    const struct rp_record *of[2];
    size_t at[2];
    struct rp_field field[2];
    bool has[2];
};
/** The next line in which they differ as the signs say; false at the end. */
bool rp_record_next_difference(struct rp_record_pair *pair);

/* Writes records, one behind the other, into memory of its own. Start with zeros; free `text`. */
struct rp_record_writer {
    char *text;
    size_t bytes, capacity;
    size_t last; /* where the last line begins */
    bool out_of_memory;
};
/** Add a line; names must ascend. Bytes of the value that a record cannot hold are escaped, and a
 * long value is cut. */
void rp_record_add(struct rp_record_writer *writer, char sign, const char *name, const char *format,
                   ...) __attribute__((format(printf, 4, 5)));
/** An empty line: another record begins. */
void rp_record_end(struct rp_record_writer *writer);

#endif
