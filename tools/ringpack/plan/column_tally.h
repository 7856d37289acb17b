/* SPDX-License-Identifier: Apache-2.0 */
/* column_tally.h — the documents that a selection takes, by the values of the columns that it uses.
 *
 * Columns of whole numbers with at most RP_COLUMN_VALUES_MAX values are counted, in one pass over
 * the documents of a source. */
#ifndef RP_TOOLS_COLUMN_TALLY_H
#define RP_TOOLS_COLUMN_TALLY_H

#include <jansson.h>

#include "config/config.h"
#include "corpus/corpus.h"
#include "plan/stages.h"
#include "plan/v2/expression.h"

#define RP_COLUMN_VALUES_MAX 16u
#define RP_COLUMNS_COUNTED_MAX 8u /* columns of a source */

struct rp_column_value {
    uint64_t value; /* two's complement in a column of signed numbers */
    uint64_t documents, selected, takes;
};

struct rp_column_counts {
    char name[RP_EXPRESSION_NAME_MAX + 1];
    struct rp_column *column;
    uint32_t count; /* values; RP_COLUMN_VALUES_MAX + 1: more, it is not printed */
    struct rp_column_value values[RP_COLUMN_VALUES_MAX];
};

/* One source's tally. All zero: it has no selection. */
struct rp_column_tally {
    uint64_t documents, selected, takes; /* in an epoch: documents; those taken; times taken */
    bool has_selection;
    uint32_t count;
    struct rp_column_counts *columns; /* [RP_COLUMNS_COUNTED_MAX] */
};

RP_MUST_CHECK int rp_selected_make(struct rp_column_tally *tally,
                                   const struct rp_config_source *config,
                                   const struct rp_source *source,
                                   const struct rp_stream_source *stream, struct rp_error *error);
void rp_selected_free(struct rp_column_tally *tally);

void rp_selected_print(const struct rp_column_tally *tally);
/** The counts by value. A new reference. */
json_t *rp_selected_json(const struct rp_column_tally *tally);

#endif
