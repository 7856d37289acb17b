/* SPDX-License-Identifier: Apache-2.0 */
/* expression_struct.h — an expression as a program. Private to expression_parse.c, which makes it,
 * and expression.c, which binds and runs it.
 *
 * The program is in postfix: a code below RP_EXPRESSION_COMPARISONS_MAX pushes the result of that
 * comparison for all documents of a batch, one bit each. */
#ifndef RP_PLAN_V2_EXPRESSION_STRUCT_H
#define RP_PLAN_V2_EXPRESSION_STRUCT_H

#include "plan/v2/expression.h"

enum { RP_CODE_AND = RP_EXPRESSION_COMPARISONS_MAX, RP_CODE_OR, RP_CODE_NOT };

/* A pair of parentheses adds a value of an `or` and one of an `and` to the stack. */
#define RP_EXPRESSION_STACK (2u * RP_EXPRESSION_DEPTH_MAX + 4u)

/* A number as it was written: (whole + part / 10^18), or less than 0. */
struct rp_decimal_number {
    uint64_t whole, part;
    bool is_negative;
};

enum rp_comparison_relation { RP_LESS, RP_AT_MOST, RP_EQUAL };

/* v RELATION number, or not so. `>=` is not `<`; reals are never NaN. */
struct rp_comparison {
    uint32_t name, column;
    enum rp_comparison_relation relation;
    bool is_inverted;
    struct rp_decimal_number number;
    /* When it is bound: words are compared with a range, first … first + span, modulo 2^64. */
    bool is_real, is_outside; /* is_outside: true for words outside of the range */
    uint64_t first, span;
    double real;
};

struct rp_expression {
    char *text; /* canonical */
    char (*names)[RP_EXPRESSION_NAME_MAX + 1];
    struct rp_comparison *comparisons;
    uint16_t *codes;
    uint32_t name_count, comparison_count, code_count;
};

#endif
