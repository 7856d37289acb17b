/* SPDX-License-Identifier: Apache-2.0 */
/* stream_view.h — one source of a corpus as a plan of version 2 sees it (struct rp_source_view).
 * For stream_spec.c. */
#ifndef RP_STREAM_VIEW_H
#define RP_STREAM_VIEW_H

#include "config/config.h"
#include "corpus/corpus.h"
#include "plan/v2/spec.h"
#include "plan/v2/unseen.h"
#include "selector.h"

/* The context of its calls, which are pure. */
struct rp_planned_source {
    const struct rp_source *source;
    struct rp_selector *selection; /* NULL: neither `select`, `repeat` nor `unseen_of` */
    struct rp_unseen *unseen;      /* NULL: no `unseen_of` */
    bool has_bos, has_eos, across_cuts, has_labels;
};

/** The view of source `number` of a config. Errors of rp_selector_open and rp_used_open,
 * with the line of the config. */
RP_MUST_CHECK int rp_planned_open(struct rp_planned_source *view, const struct rp_config *config,
                                  uint32_t number, const struct rp_corpus *corpus,
                                  struct rp_error *error);
void rp_planned_close(struct rp_planned_source *view); /* a zeroed one is fine */

/** Set the view and the passes of a source of the spec. The view must outlive it. */
void rp_planned_take(const struct rp_planned_source *view, struct rp_stream_source *made);

#endif
