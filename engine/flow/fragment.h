/* SPDX-License-Identifier: Apache-2.0 */
/* fragment.h — the document of a fragment: its own tokens there, those that are inserted, and the
 * labels (STREAM2.md sections 2.1, 11). For dispatch, and for tools that show or count rows. Pure
 * but for the index that they look up. */
#ifndef RP_FLOW_FRAGMENT_H
#define RP_FLOW_FRAGMENT_H

#include "corpus/spans.h"
#include "flow/flow.h"

/** The RP_EXTRA_ bits of a fragment whose document has `tokens` > 0 tokens of its own, as if all of
 * them were trained. */
uint8_t rp_transfer_extra(const struct rp_row_form *form, const struct rp_fragment *fragment,
                          uint64_t tokens);

/** Find the document of a transfer whose fragment is set, and set its `extra`, as above.
 * -RP_E_CHANGED if the document does not have the tokens of the fragment any more; or the error of
 * rp_source_extent. */
RP_MUST_CHECK int rp_transfer_find(const struct rp_flow_options *options,
                                   struct rp_transfer *transfer, struct rp_extent *extent,
                                   struct rp_error *error);

/** The spans of a transfer of a masked source, counted from its first token, inserted or own;
 * `length`: the document's own tokens. Removes the label of its end from `extra` if the token after
 * it is not trained. `spans` has room for rp_spans_max of one token more than the fragment has.
 * Returns their number. */
RP_MUST_CHECK int64_t rp_transfer_spans(const struct rp_row_form *form,
                                        const struct rp_source *source,
                                        struct rp_transfer *transfer, uint64_t length,
                                        struct rp_span *spans, struct rp_error *error);

/** Labels of the transfer: of its tokens in these spans, and of its end. */
uint32_t rp_transfer_labels(const struct rp_transfer *transfer, const struct rp_span *spans,
                            uint32_t count);

#endif
