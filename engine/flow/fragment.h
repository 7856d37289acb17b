/* SPDX-License-Identifier: Apache-2.0 */
/* fragment.h — the document of a fragment: the place of its tokens, and which tokens of the
 * fragment are not stored there. Thread: dispatch's own. */
#ifndef RP_FLOW_FRAGMENT_H
#define RP_FLOW_FRAGMENT_H

#include "flow/flow.h"

/** Find the document of a transfer whose fragment is set, and set its `extra`, as if all tokens of
 * the document were trained (masks.h has the last word on that). -RP_E_CHANGED if the document does
 * not have the tokens of the fragment any more; or the error of rp_source_extent. */
RP_MUST_CHECK int rp_transfer_find(const struct rp_flow_options *options,
                                   struct rp_transfer *transfer, struct rp_extent *extent,
                                   struct rp_error *error);

#endif
