/* SPDX-License-Identifier: Apache-2.0 */
/* side_values.c — numbers of JSON as entries of a side column: those that numpy makes of the whole
 * value and its astype() of that (tools/python/ringpack/_convert/lists.py). So one real number in a
 * value makes all of it real. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "convert/sides.h"

static bool check_value(const json_t *value, bool *has_real)
{
    *has_real |= json_is_real(value);
    return json_is_number(value) || json_is_boolean(value);
}

bool rp_convert_value_measure(json_t *value, struct rp_entries *entries, bool *has_real)
{
    bool is_nested = json_is_array(json_array_get(value, 0)), is_fine = true;
    size_t width = is_nested ? json_array_size(json_array_get(value, 0)) : 1;
    *has_real = false;
    entries->is_number = !json_is_array(value);
    entries->count = entries->is_number ? 1 : json_array_size(value);
    if (entries->is_number)
        is_fine = check_value(value, has_real);
    for (size_t i = 0; i < json_array_size(value) && is_fine; i++) {
        json_t *item = json_array_get(value, i);
        is_fine = is_nested ? json_array_size(item) == width : check_value(item, has_real);
        for (size_t k = 0; is_nested && k < width && is_fine; k++)
            is_fine = check_value(json_array_get(item, k), has_real);
    }
    uint64_t bytes = width * rp_dtype_bytes(entries->type.dtype);
    entries->type.count = (uint32_t)width;
    entries->type.bytes = (uint32_t)bytes;
    return is_fine && width > 0 && width <= RP_SIDE_ENTRY_BYTES && bytes <= RP_SIDE_ENTRY_BYTES;
}

/* To the nearest; of two, to the even one. */
static bool put_half(uint8_t *to, double real)
{
    double size = fabs(real);
    int exponent = 0;
    uint16_t bits;
    if (size >= 65520) /* it is rounded to infinity */
        return false;
    (void)frexp(size, &exponent);
    if (size < 0x1p-14) /* subnormal, or 2^-14 once it is rounded */
        bits = (uint16_t)nearbyint(size * 0x1p24);
    else
        bits = (uint16_t)((exponent + 13) * 1024 + (int)nearbyint(ldexp(size, 11 - exponent)));
    bits |= signbit(real) ? 0x8000 : 0;
    memcpy(to, &bits, sizeof bits);
    return true;
}

static bool put_integer(uint8_t *to, uint32_t dtype, json_int_t whole)
{
    uint64_t bytes = rp_dtype_bytes(dtype);
    bool is_signed = dtype != RP_DTYPE_U8 && dtype != RP_DTYPE_U16;
    int64_t most = (int64_t)(UINT64_MAX >> (64 - 8 * bytes + is_signed));
    memcpy(to, &whole, bytes); /* the low bytes of two's complement */
    return whole >= (is_signed ? -most - 1 : 0) && whole <= most;
}

static bool put(uint8_t *to, uint32_t dtype, const json_t *value, bool is_real)
{
    json_int_t whole = json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);
    double real = json_is_real(value) ? json_real_value(value) : (double)whole;
    float narrow = is_real ? (float)real : (float)whole;
    switch (dtype) {
    case RP_DTYPE_F64:
        memcpy(to, &real, sizeof real);
        return true;
    case RP_DTYPE_F32:
        memcpy(to, &narrow, sizeof narrow);
        return is_real ? isfinite(narrow) : (double)narrow == real;
    case RP_DTYPE_F16:
        return put_half(to, real);
    default:
        break;
    }
    const double least = (double)INT64_MIN;
    if (is_real && !(real >= least && real < -least && trunc(real) == real))
        return false;
    return put_integer(to, dtype, is_real ? (json_int_t)real : whole);
}

const json_t *rp_convert_value_store(json_t *value, const struct rp_entries *entries, bool has_real,
                                     uint8_t *to)
{
    uint32_t dtype = entries->type.dtype;
    uint64_t bytes = rp_dtype_bytes(dtype);
    for (size_t i = 0; i < entries->count; i++) {
        json_t *item = entries->is_number ? value : json_array_get(value, i);
        for (size_t k = 0; k < entries->type.count; k++, to += bytes) {
            const json_t *number = json_is_array(item) ? json_array_get(item, k) : item;
            if (!put(to, dtype, number, has_real))
                return number;
        }
    }
    return NULL;
}
