/* SPDX-License-Identifier: Apache-2.0 */
/* selector.h — the selection of a source of a corpus (plan/v2/selection.h), by
 * columns of its index. As stream.h, it stands above corpus and plan. */
#ifndef RP_SELECTOR_H
#define RP_SELECTOR_H

#include "corpus/corpus.h"
#include "plan/v2/selection.h"

/* A selection, and the columns that it uses. */
struct rp_selector;

/* Expressions of a config; not used after the selection is open. */
struct rp_selector_spec {
    const char *select; /* NULL: all */
    const struct rp_selection_repeat *repeats;
    uint32_t repeat_count, group;
};
/** Open the selection of a source, which must outlive it. Errors of rp_selection_open and
 * rp_column_open. */
RP_MUST_CHECK int rp_selector_open(struct rp_selector **selection_out,
                                   const struct rp_source *source,
                                   const struct rp_selector_spec *spec, struct rp_error *error);
void rp_selector_close(struct rp_selector *selection); /* NULL is fine */

/** For rp_selection_counts, rp_selection_hash and rp_selection_passes. */
const struct rp_selection *rp_selector_selection(const struct rp_selector *selection);

#endif
