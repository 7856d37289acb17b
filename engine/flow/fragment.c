/* SPDX-License-Identifier: Apache-2.0 */
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
    return rp_fail(error, -RP_E_CHANGED, "restore the index and restart; delivered rows are valid",
                   "source `%s`, document %" PRIu64 ": its index was changed while it was in use: "
                   "expected at least %" PRIu64 " tokens, found %" PRIu64,
                   rp_source_name(source), fragment->document, end - rp_min_u64(inserted, end - 1),
                   extent->tokens);
}

uint8_t rp_transfer_extra(const struct rp_row_form *form, const struct rp_fragment *fragment,
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
    transfer->extra = rp_transfer_extra(form, &transfer->fragment, extent->tokens);
    return 0;
}

/* The own tokens whose spans decide the labels of a transfer: its own ones and the one after them,
 * or, for a fragment of only the EOS, the last one of the document, with which it is trained. */
static struct rp_part part_of(const struct rp_row_form *form, const struct rp_transfer *transfer,
                              uint64_t length)
{
    const struct rp_fragment *fragment = &transfer->fragment;
    struct rp_part part = {fragment->document, length,
                           rp_fragment_first_own(fragment, form->has_bos),
                           rp_transfer_stored(transfer)};
    if (rp_transfer_own(transfer) == 0 && transfer->extra & RP_EXTRA_EOS)
        part.first = length - 1, part.tokens = 1;
    return part;
}

/* Turn the spans of a part into the spans of its transfer, which counts from an inserted BOS and
 * has no token after its end. */
static void add_inserted(struct rp_transfer *transfer, const struct rp_part *part,
                         struct rp_span *spans, uint32_t *count)
{
    bool is_last_trained = *count > 0 && spans[*count - 1].end == part->tokens;
    if (rp_transfer_own(transfer) == 0 && transfer->extra & RP_EXTRA_EOS) {
        spans[0] = (struct rp_span){0, 1};
        *count = is_last_trained;
        return;
    }
    if (!is_last_trained)
        transfer->extra &= (uint8_t) ~(RP_EXTRA_NEXT | RP_EXTRA_NEXT_EOS);
    if (transfer->extra & RP_EXTRA_NEXT && --spans[*count - 1].end == spans[*count - 1].begin)
        --*count;
    if (transfer->extra & RP_EXTRA_EOS && is_last_trained)
        spans[*count - 1].end++;
    for (uint32_t i = 0; transfer->extra & RP_EXTRA_BOS && i < *count; i++)
        spans[i] = (struct rp_span){spans[i].begin + 1, spans[i].end + 1};
}

int64_t rp_transfer_spans(const struct rp_row_form *form, const struct rp_source *source,
                          struct rp_transfer *transfer, uint64_t length, struct rp_span *spans,
                          struct rp_error *error)
{
    const struct rp_part part = part_of(form, transfer, length);
    uint32_t count;
    int code = rp_source_spans(source, &part, spans, &count, error);
    if (code >= 0 && transfer->extra)
        add_inserted(transfer, &part, spans, &count);
    return code < 0 ? code : (int64_t)count;
}

uint32_t rp_transfer_labels(const struct rp_transfer *transfer, const struct rp_span *spans,
                            uint32_t count)
{
    uint32_t labels = rp_transfer_has_end_label(transfer);
    for (uint32_t i = 0; i < count; i++)
        labels += spans[i].end - (spans[i].begin > 0 ? spans[i].begin : 1);
    return labels;
}
