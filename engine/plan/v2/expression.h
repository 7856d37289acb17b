/* SPDX-License-Identifier: Apache-2.0 */
/* expression.h — an expression over the columns of documents (STREAM2.md section 4), for `select`
 * and `repeat` of a source.
 *
 * Flow: parse, bind the kinds of its columns, then test batches of documents. A parsed and bound
 * expression does not change, so any number of threads may test with it. No test allocates. */
#ifndef RP_PLAN_V2_EXPRESSION_H
#define RP_PLAN_V2_EXPRESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_EXPRESSION_BYTES_MAX 65536u
#define RP_EXPRESSION_COMPARISONS_MAX 1024u
#define RP_EXPRESSION_DEPTH_MAX 64u     /* open parentheses and `not`s */
#define RP_EXPRESSION_NAME_MAX 47u      /* bytes */
#define RP_EXPRESSION_DOCUMENTS_MAX 64u /* that are tested together */

/* The kinds of values. A fraction is a word w, which stands for w / 2^32. */
enum rp_value_kind { RP_VALUE_UNSIGNED, RP_VALUE_SIGNED, RP_VALUE_FRACTION, RP_VALUE_REAL };

/* The value of a column for one document. */
union rp_value {
    uint64_t word; /* a signed one in two's complement */
    double real;   /* never NaN */
};

/* The place of a column among the values of a test, and its kind. */
struct rp_value_column {
    uint32_t number;
    enum rp_value_kind kind;
};

struct rp_expression;

/** Parse a text. -RP_E_CONFIG: the message begins with the line and the column of the mistake. */
RP_MUST_CHECK int rp_expression_parse(struct rp_expression **expression_out, const char *text,
                                      struct rp_error *error);
void rp_expression_free(struct rp_expression *expression); /* NULL is fine */

/** Its canonical text: the tokens as they were written, with one space between them. */
const char *rp_expression_text(const struct rp_expression *expression);

/** The distinct names in it, in the order of their first use. */
uint32_t rp_expression_names(const struct rp_expression *expression);
const char *rp_expression_name(const struct rp_expression *expression, uint32_t name);

/** Set the column of each name: integers and fractions are compared exactly, reals as f64. */
void rp_expression_bind(struct rp_expression *expression, const struct rp_value_column *columns);

/** Bit i: whether the expression is true for document i of `count` ones, 1 …
 * RP_EXPRESSION_DOCUMENTS_MAX. The values of column c begin at values[c * stride]. */
uint64_t rp_expression_test(const struct rp_expression *expression, const union rp_value *values,
                            uint32_t stride, uint32_t count);

/** Is it a name of the grammar (a column may have it)? At most 47 bytes, and no keyword. */
bool rp_expression_is_name(const char *text);

#endif
