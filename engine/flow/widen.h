/* SPDX-License-Identifier: Apache-2.0 */
/* widen.h — the one pass over every token: copy it from its stored width to the batch's dtype.
 *
 * Each function takes n tokens of `width` bytes (1, 2, 4, 8; any address) and returns the largest
 * of them as unsigned numbers, so that range and vocabulary are checked in the same pass. */
#ifndef RP_FLOW_WIDEN_H
#define RP_FLOW_WIDEN_H

#include <stddef.h>
#include <stdint.h>

#include "ringpack/batch.h"

uint64_t rp_widen(void *target, enum rp_dtype dtype, const void *source, uint32_t width, size_t n);

/** Token i of a stored run. */
uint64_t rp_token_at(const void *source, uint32_t width, size_t i);

/** target[i] = first + i, and target[i] = value, for i < n, as I32 or I64 (fill: also U16). */
void rp_count_up(void *target, enum rp_dtype dtype, int64_t first, size_t n);
void rp_fill_value(void *target, enum rp_dtype dtype, int64_t value, size_t n);

/** Bytes of one element. */
size_t rp_dtype_bytes(enum rp_dtype dtype);

#endif
