/* SPDX-License-Identifier: Apache-2.0 */
/* selection.h — which documents of a source are used, and how often in an epoch: `select` and
 * `repeat` (STREAM2.md section 4), and their hash (section 2.2).
 *
 * A selection does not change after it was opened. Its calls are pure and allocate nothing per
 * document, so any number of threads may make them. */
#ifndef RP_PLAN_V2_SELECTION_H
#define RP_PLAN_V2_SELECTION_H

#include "base/hash.h"
#include "plan/v2/expression.h"

#define RP_SELECTION_COLUMNS_MAX 1024u /* in an index, with built-in ones */
#define RP_SELECTION_COUNT_MAX 255u    /* greatest count of a `repeat` */

/* The documents of a source, in the numbers that they have after its range. */
struct rp_selection_source {
    const char *name;
    uint64_t first; /* documents before its range */
    uint32_t group;
    const void *context; /* passed to the calls below; outlives the selection, as columns do */
    /* Own tokens of documents, and numbers of their shards in the source. */
    int (*lengths)(const void *context, const uint64_t *documents, uint32_t count,
                   union rp_value *values, struct rp_error *error);
    int (*shards)(const void *context, const uint64_t *documents, uint32_t count,
                  union rp_value *values, struct rp_error *error);
    /* A column of the index: *column_out is passed to the next two. Negative: no segment, or not
     * each one, has it. */
    int (*column)(const void *context, const char *name, const void **column_out,
                  enum rp_value_kind *kind_out, struct rp_error *error);
    int (*values)(const void *context, const void *column, const uint64_t *documents,
                  uint32_t count, union rp_value *values, struct rp_error *error);
    /* The root of a column in segment i, and the documents before it in the index. False: there
     * are no more segments with documents. */
    bool (*root)(const void *context, const void *column, uint32_t i, uint64_t *first_out,
                 struct rp_hash128 *root_out);
};

struct rp_selection_repeat {
    uint32_t count; /* 2 … RP_SELECTION_COUNT_MAX */
    const char *expression;
};

struct rp_selection_spec {
    const char *select; /* NULL: all; also without a repeat, for `unseen_of` */
    const struct rp_selection_repeat *repeats;
    uint32_t repeat_count;
    struct rp_selection_source source;
};

struct rp_selection;

/** Parse the expressions, and find their columns. -RP_E_CONFIG, with the place of a mistake in the
 * text of its expression; errors of source.column. */
RP_MUST_CHECK int rp_selection_open(struct rp_selection **selection_out,
                                    const struct rp_selection_spec *spec, struct rp_error *error);
void rp_selection_close(struct rp_selection *selection); /* NULL is fine */

/** R: the greatest count of a `repeat`, or 1. */
uint8_t rp_selection_passes(const struct rp_selection *selection);

/** The counts of documents. Signature of rp_source_view.counts: `selection` is a const struct
 * rp_selection *. -RP_E_CORRUPT: a damaged length or value, or NaN. */
RP_MUST_CHECK int rp_selection_counts(const void *selection, const uint64_t *documents,
                                      uint32_t count, uint8_t *counts, struct rp_error *error);

/** `selection` of section 2.2 at `documents` documents, with a line `unseen` of the hash that ends
 * a state token (section 12.7; NULL: none). -ENOMEM. */
RP_MUST_CHECK int rp_selection_hash(const struct rp_selection *selection, uint64_t documents,
                                    const struct rp_hash128 *unseen, uint64_t *hash_out,
                                    struct rp_error *error);

/** Is it a built-in column, whose name no column of an index may have? */
bool rp_selection_is_built_in(const char *name);

#endif
