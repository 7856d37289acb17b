/* SPDX-License-Identifier: Apache-2.0 */
/* table_build.c — a table in memory: of a file that has no sidecar, and whose documents are found
 * quickly. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "corpus/collector.h"

struct building {
    struct rp_collector collector;
    const struct rp_probe *probe;
    const struct rp_sink *sink;
    bool has_limit; /* a limit of documents */
};

static int keep(void *context, uint64_t byte, uint32_t tokens, const struct rp_span *spans,
                size_t span_count, struct rp_error *error)
{
    struct building *building = context;
    const struct rp_probe *probe = building->probe;
    if (building->has_limit && building->collector.shape.documents == RP_TABLE_AT_OPEN_MAX) {
        char hint[sizeof error->hint];
        snprintf(hint, sizeof hint, "run `ringpack index %s` once", RP_HINT_PATH(probe->path));
        return rp_fail(error, -RP_E_FORMAT, hint,
                       "%s: more than %u documents: expected a sidecar, found none", probe->path,
                       RP_TABLE_AT_OPEN_MAX);
    }
    building->collector.shape.has_spans = building->sink->layout.has_spans;
    return rp_collector_add_document(&building->collector, byte, tokens, spans, span_count, error);
}

int64_t rp_table_build(struct rp_table *table, struct rp_layout *layout,
                       const struct rp_reader *reader, const struct rp_probe *probe,
                       const struct rp_reader_options *options, struct rp_error *error)
{
    struct building building = {.probe = probe, .has_limit = !reader->reads_tokens};
    struct rp_sink sink = {
        .path = probe->path, .file_bytes = probe->bytes, .keep = keep, .context = &building};
    building.sink = &sink;
    rp_collector_begin(&building.collector, probe->path, NULL);
    building.collector.shape.has_extents = true;
    *table = (struct rp_table){0};
    int code = reader->walk(probe, options, &sink, error);
    building.collector.shape.has_spans = sink.layout.has_spans;
    if (code == 0)
        code = rp_collector_make_table(&building.collector, table, error);
    *layout = sink.layout;
    rp_collector_discard(&building.collector);
    return code < 0 ? code : (int64_t)sink.tokens;
}
