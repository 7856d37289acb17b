/* SPDX-License-Identifier: Apache-2.0 */
/* fragment — see fragment.h. */
#include "flow/fragment.h"

#include <inttypes.h>

#include "base/bits.h"

/* The plan took the fragment's length from the same index. If the document is shorter now, the
 * index was changed in between. `inserted`: tokens of the document that are not stored. */
static int find_extent(const struct rp_flow_options *options, const struct rp_fragment *fragment,
                       uint32_t inserted, struct rp_extent *extent, struct rp_error *error)
{
    const struct rp_source *source = rp_corpus_source(options->corpus, fragment->source);
    int code = rp_source_extent(source, fragment->document, extent, error);
    uint64_t end = fragment->offset + fragment->length;
    if (code < 0 || (end >= fragment->offset && end <= extent->tokens + inserted &&
                     (inserted == 0 || extent->tokens > 0)))
        return code;
    return rp_fail(error, -RP_E_CHANGED,
                   "restore the index and restart; what was delivered is valid",
                   "source `%s`, document %" PRIu64 ": its index was changed while it was in use: "
                   "expected at least %" PRIu64 " tokens, found %" PRIu64,
                   rp_source_name(source), fragment->document, end - rp_min_u64(inserted, end - 1),
                   extent->tokens);
}

/* The RP_EXTRA_ bits of a fragment, if all tokens of its document are trained. */
static uint8_t extra_of(const struct rp_row_form *form, const struct rp_fragment *fragment,
                        uint64_t tokens)
{
    uint64_t first_after = fragment->offset + fragment->length, own_end = tokens + form->has_bos;
    uint32_t extra = form->has_bos && fragment->offset == 0 ? RP_EXTRA_BOS : 0;
    if (first_after > own_end)
        extra |= RP_EXTRA_EOS;
    else if (form->label_across_cuts && first_after < own_end)
        extra |= RP_EXTRA_NEXT;
    else if (form->label_across_cuts && form->has_eos)
        extra |= RP_EXTRA_NEXT_EOS;
    return (uint8_t)extra;
}

int rp_transfer_find(const struct rp_flow_options *options, struct rp_transfer *transfer,
                     struct rp_extent *extent, struct rp_error *error)
{
    const struct rp_row_form *form = &options->form;
    uint32_t inserted = (uint32_t)form->has_bos + form->has_eos;
    int code = find_extent(options, &transfer->fragment, inserted, extent, error);
    if (code < 0)
        return code;
    transfer->extra = extra_of(form, &transfer->fragment, extent->tokens);
    return 0;
}
