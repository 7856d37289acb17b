/* SPDX-License-Identifier: Apache-2.0 */
/* expression.c — binding and tests (expression.h). Numbers are compared without libc's strtod,
 * whose result depends on the locale. */
#include <math.h>
#include <stdlib.h>

#include "plan/v2/expression_struct.h"

#define DECIMALS UINT64_C(1000000000000000000) /* 10^18: parts of 1 */

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 unsigned_wide;

/* ---- numbers --------------------------------------------------------------------------------- */

/* The f64 nearest to a number, ties to even. */
static double real_of(const struct rp_decimal_number *number)
{
    unsigned_wide rest = (unsigned_wide)number->whole * DECIMALS + number->part;
    unsigned_wide quotient = rest / DECIMALS;
    int shift = 0;
    if (rest == 0)
        return number->is_negative ? -0.0 : 0.0;
    rest %= DECIMALS;
    /* 53 bits of a significand, one below them, and whether there is more */
    for (; quotient < UINT64_C(1) << 53; shift--) {
        rest *= 2;
        quotient = quotient * 2 + (rest >= DECIMALS);
        rest %= DECIMALS;
    }
    uint64_t bits = (uint64_t)quotient;
    bool is_more = rest != 0;
    for (; bits >= UINT64_C(1) << 54; shift++) {
        is_more |= bits & 1;
        bits >>= 1;
    }
    bool is_up = (bits & 1) && (is_more || (bits & 2));
    double real = ldexp((double)((bits >> 1) + is_up), shift + 1);
    return number->is_negative ? -real : real;
}

/* The number times `scale`, a power of two of at most 2^32: its floor, and whether the product is
 * whole. */
static wide floor_of(const struct rp_decimal_number *number, uint64_t scale, bool *is_whole)
{
    unsigned_wide parts = (unsigned_wide)number->part * scale;
    wide floor = (wide)((unsigned_wide)number->whole * scale + parts / DECIMALS);
    *is_whole = parts % DECIMALS == 0;
    return !number->is_negative ? floor : *is_whole ? -floor : -floor - 1;
}

/* ---- binding --------------------------------------------------------------------------------- */

static void bind_words(struct rp_comparison *comparison, enum rp_value_kind kind)
{
    bool is_whole;
    wide low = kind == RP_VALUE_SIGNED ? INT64_MIN : 0;
    wide high = kind == RP_VALUE_SIGNED ? INT64_MAX : (wide)UINT64_MAX;
    wide floor = floor_of(&comparison->number, kind == RP_VALUE_FRACTION ? UINT64_C(1) << 32 : 1,
                          &is_whole);
    /* values of low … last, or only floor, fulfil the comparison */
    wide last = comparison->relation == RP_LESS && is_whole ? floor - 1 : floor;
    wide first = comparison->relation == RP_EQUAL ? floor : low;
    bool is_empty = last < low || first > high || (comparison->relation == RP_EQUAL && !is_whole);
    last = last > high ? high : last;
    comparison->is_outside = comparison->is_inverted != is_empty;
    comparison->first = is_empty ? 0 : (uint64_t)first;
    comparison->span = is_empty ? UINT64_MAX : (uint64_t)(last - first);
}

void rp_expression_bind(struct rp_expression *expression, const struct rp_value_column *columns)
{
    for (uint32_t i = 0; i < expression->comparison_count; i++) {
        struct rp_comparison *comparison = &expression->comparisons[i];
        enum rp_value_kind kind = columns[comparison->name].kind;
        comparison->column = columns[comparison->name].number;
        comparison->is_real = kind == RP_VALUE_REAL;
        if (comparison->is_real)
            comparison->real = real_of(&comparison->number);
        else
            bind_words(comparison, kind);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static uint64_t test_words(const struct rp_comparison *comparison, const union rp_value *values,
                           uint32_t count)
{
    uint64_t first = comparison->first, span = comparison->span, bits = 0;
    for (uint32_t i = count; i-- > 0;)
        bits = bits << 1 | (values[i].word - first <= span);
    return comparison->is_outside ? ~bits : bits;
}

static uint64_t test_reals(const struct rp_comparison *comparison, const union rp_value *values,
                           uint32_t count)
{
    double real = comparison->real;
    uint64_t bits = 0;
    if (comparison->relation == RP_LESS)
        for (uint32_t i = count; i-- > 0;)
            bits = bits << 1 | (values[i].real < real);
    else if (comparison->relation == RP_AT_MOST)
        for (uint32_t i = count; i-- > 0;)
            bits = bits << 1 | (values[i].real <= real);
    else
        for (uint32_t i = count; i-- > 0;)
            bits = bits << 1 | (values[i].real == real);
    return comparison->is_inverted ? ~bits : bits;
}

uint64_t rp_expression_test(const struct rp_expression *expression, const union rp_value *values,
                            uint32_t stride, uint32_t count)
{
    uint64_t stack[RP_EXPRESSION_STACK];
    uint32_t top = 0;
    RP_DASSERT(count >= 1 && count <= RP_EXPRESSION_DOCUMENTS_MAX);
    for (uint32_t i = 0; i < expression->code_count; i++) {
        uint32_t code = expression->codes[i];
        if (code == RP_CODE_NOT) {
            stack[top - 1] = ~stack[top - 1];
        } else if (code == RP_CODE_AND) {
            top--;
            stack[top - 1] &= stack[top];
        } else if (code == RP_CODE_OR) {
            top--;
            stack[top - 1] |= stack[top];
        } else {
            const struct rp_comparison *comparison = &expression->comparisons[code];
            const union rp_value *own = values + (size_t)comparison->column * stride;
            RP_DASSERT(top < RP_EXPRESSION_STACK);
            stack[top++] = comparison->is_real ? test_reals(comparison, own, count)
                                               : test_words(comparison, own, count);
        }
    }
    return stack[0] & (UINT64_MAX >> (RP_EXPRESSION_DOCUMENTS_MAX - count));
}

/* ---- queries --------------------------------------------------------------------------------- */

const char *rp_expression_text(const struct rp_expression *expression)
{
    return expression->text;
}

uint32_t rp_expression_names(const struct rp_expression *expression)
{
    return expression->name_count;
}

const char *rp_expression_name(const struct rp_expression *expression, uint32_t name)
{
    return expression->names[name];
}

void rp_expression_free(struct rp_expression *expression)
{
    if (!expression)
        return;
    free(expression->text);
    free(expression->names);
    free(expression->comparisons);
    free(expression->codes);
    free(expression);
}
