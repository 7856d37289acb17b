/* SPDX-License-Identifier: Apache-2.0 */
/* text.h — words and numbers that people type. */
#ifndef RP_BASE_TEXT_H
#define RP_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A whole number in decimal digits, nothing before or after it. False if it is none or does not
 * fit. */
bool rp_text_u64(const char *text, uint64_t *value);

/** The same with an optional suffix of either case: k, m, g or t for powers of 1000, or one of
 * these and an i for powers of 1024. */
bool rp_text_count(const char *text, uint64_t *value);

/** The same with powers of 1024; 64m, 64mb and 64MiB are equal, and so are 100 and 100b. */
bool rp_text_bytes(const char *text, uint64_t *value);

/** Whether `text` ends with `suffix` and has something before it: a file name with an extension. */
bool rp_text_has_suffix(const char *text, const char *suffix);

/* Longer words are never called near to anything. */
#define RP_TEXT_WORD_MAX 64

/* The search for what somebody meant: start with {.word = what was typed}, offer every word that
 * would have been right, then look at `best`, which stays NULL when none is near enough to be
 * suggested. */
struct rp_text_near {
    const char *word, *best;
    /* Of `best`: letters to insert, delete, replace or swap with their neighbour. */
    size_t distance;
};
void rp_text_offer(struct rp_text_near *near, const char *candidate);

#endif
