/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.c — the documents of a source that has grown: its range, and its fingerprint at an earlier
 * number of documents (corpus.h). */
#include <inttypes.h>

#include "corpus/corpus_struct.h"
#include "corpus/fingerprint.h"
#include "corpus/range.h"

struct rp_source_range rp_source_range(const struct rp_source *source)
{
    return (struct rp_source_range){.first = source->before_range,
                                    .end = source->before_range + source->documents,
                                    .all = source->segment_begins[source->segment_count],
                                    .is_open = source->is_open,
                                    .is_percent = source->is_percent};
}

/* Add the shards of a segment of an index, up to the shard of its document `wanted` - 1. *end is
 * the number of their documents. */
static bool add_some(const struct rp_index_segment *segment, uint64_t wanted,
                     struct rp_fingerprint_list *list, uint64_t *end)
{
    struct rp_index_record record;
    *end = 0;
    for (uint32_t i = 0; i < segment->shape.shards && *end < wanted; i++) {
        if (!rp_index_get_record(segment, i, &record, NULL))
            return false;
        rp_fingerprint_add(list, &record.fingerprint);
        *end = rp_index_documents_before(segment, i + 1);
    }
    return *end != UINT64_MAX;
}

/* Whether the last shard has documents: no shorter prefix then has the segment's last document. */
static bool ends_with_documents(const struct rp_index_segment *segment)
{
    return rp_index_documents_before(segment, segment->shape.shards - 1) <
           segment->shape.table.documents;
}

/* The shortest prefix of the shards with document `wanted` - 1; *end: its documents. */
static int find_prefix(const struct rp_source *source, uint64_t wanted,
                       struct rp_fingerprint *fingerprint, uint64_t *end, struct rp_error *error)
{
    const struct rp_index *index = source->corpus->index;
    struct rp_fingerprint_list list;
    *end = 0;
    rp_fingerprint_begin(&list);
    for (uint32_t g = 0; g < source->segment_count && *end < wanted; g++) {
        const struct rp_index_segment *segment = source->segments[g];
        uint64_t first = source->segment_begins[g], own = source->segment_begins[g + 1] - first;
        if (segment->opened) {
            rp_fingerprint_add(&list, &segment->opened->fingerprint);
        } else if (first + own == wanted && ends_with_documents(segment)) {
            *fingerprint = segment->prefix;
            *end = wanted;
            return 0;
        } else if (!add_some(segment, wanted - first, &list, &own)) {
            return rp_index_fail_damaged(index, "record of a shard", error);
        }
        *end = first + own;
    }
    *fingerprint = rp_fingerprint_of(&list);
    return 0;
}

int rp_source_fingerprint_at(const struct rp_source *source, uint64_t documents,
                             struct rp_fingerprint *fingerprint, struct rp_error *error)
{
    const struct rp_source_range range = rp_source_range(source);
    uint64_t wanted = range.first + documents, found = 0;
    bool is_there = documents > 0 && wanted >= documents && wanted <= range.all &&
                    (range.is_open || wanted == range.end);
    int code = is_there ? find_prefix(source, wanted, fingerprint, &found, error) : 0;
    if (code < 0)
        return code;
    if (!is_there || (range.is_open && found != wanted))
        return rp_fail(error, -RP_E_CHANGED,
                       "restore its shards: new ones come last, and no other shard may change",
                       "source `%s`: expected shards that end with document %" PRIu64
                       ", found %" PRIu64 " documents in other shards",
                       source->name, wanted, range.all);
    if (range.first != 0 || documents != found)
        rp_range_fingerprint(fingerprint, range.first, documents);
    return 0;
}
