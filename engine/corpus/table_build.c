/* SPDX-License-Identifier: Apache-2.0 */
/* table_build — a table in memory: of a file that has no sidecar, and whose documents are found
 * quickly. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "corpus/table.h"

/* A section that grows. */
struct growing {
    uint8_t *entries;
    size_t bytes, capacity;
};

struct building {
    const struct rp_probe *probe;
    const struct rp_sink *sink;
    bool has_limit; /* of documents */
    struct growing bytes, lengths, span_ends, spans;
};

static int append(struct growing *section, const void *entries, size_t bytes,
                  const struct rp_probe *probe, struct rp_error *error)
{
    if (section->capacity - section->bytes < bytes) {
        size_t capacity = 2 * section->capacity + bytes + 4096;
        uint8_t *grown = realloc(section->entries, capacity);
        if (!grown)
            return rp_fail(error, -ENOMEM,
                           "run `ringpack index` on the file: the table is then mapped",
                           "%s: no memory for a table of its documents", probe->path);
        section->entries = grown;
        section->capacity = capacity;
    }
    if (bytes)
        memcpy(section->entries + section->bytes, entries, bytes);
    section->bytes += bytes;
    return 0;
}

static int keep(void *context, uint64_t byte, uint32_t tokens, const struct rp_span *spans,
                size_t span_count, struct rp_error *error)
{
    struct building *building = context;
    const struct rp_probe *probe = building->probe;
    uint64_t ends = (building->spans.bytes + span_count * sizeof *spans) / sizeof *spans;
    if (building->has_limit && building->lengths.bytes / 4 == RP_TABLE_AT_OPEN_MAX) {
        char hint[sizeof error->hint];
        snprintf(hint, sizeof hint, "run `ringpack index %s` once", RP_HINT_PATH(probe->path));
        return rp_fail(error, -RP_E_FORMAT, hint,
                       "%s: more than %u documents: expected a sidecar, found none", probe->path,
                       RP_TABLE_AT_OPEN_MAX);
    }
    int code = append(&building->bytes, &byte, sizeof byte, probe, error);
    if (code == 0)
        code = append(&building->lengths, &tokens, sizeof tokens, probe, error);
    if (code < 0 || !building->sink->layout.has_spans)
        return code;
    code = append(&building->span_ends, &ends, sizeof ends, probe, error);
    return code < 0 ? code
                    : append(&building->spans, spans, span_count * sizeof *spans, probe, error);
}

/* One image of the sections. */
static int assemble(struct rp_table *table, const struct building *building,
                    const struct rp_sink *sink, struct rp_error *error)
{
    struct rp_table_shape shape = {.documents = sink->documents,
                                   .span_count = building->spans.bytes / sizeof(struct rp_span),
                                   .has_extents = true,
                                   .has_spans = sink->layout.has_spans};
    uint64_t bytes;
    bool fits = rp_table_image_bytes(&shape, &bytes);
    uint8_t *image = fits ? rp_calloc(1, (size_t)rp_max_u64(bytes, 8)) : NULL;
    if (!image)
        return rp_fail(error, -ENOMEM, "run `ringpack index` on the file: the table is then mapped",
                       "%s: no memory for a table of its documents", building->probe->path);
    int code = rp_table_over(table, &shape, image, NULL, error);
    const struct {
        const struct growing *section;
        const void *place;
    } parts[] = {{&building->bytes, table->bytes}, {&building->lengths, table->lengths}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(parts); i++)
        if (parts[i].section->bytes)
            memcpy(image + ((const uint8_t *)parts[i].place - image), parts[i].section->entries,
                   parts[i].section->bytes);
    if (shape.has_spans) { /* the first end is 0 */
        uint64_t ends = (uint64_t)((const uint8_t *)table->spans.ends - image) + 8;
        uint64_t spans = (uint64_t)((const uint8_t *)table->spans.table - image);
        if (building->span_ends.bytes)
            memcpy(image + ends, building->span_ends.entries, building->span_ends.bytes);
        if (building->spans.bytes)
            memcpy(image + spans, building->spans.entries, building->spans.bytes);
    }
    table->built = image;
    table->root = rp_table_hash(image, bytes, NULL);
    return code;
}

int rp_table_build(struct rp_table *table, struct rp_layout *layout, const struct rp_reader *reader,
                   const struct rp_probe *probe, const struct rp_reader_options *options,
                   uint64_t *tokens_out, struct rp_error *error)
{
    struct building building = {.probe = probe, .has_limit = !reader->reads_tokens};
    struct rp_sink sink = {
        .path = probe->path, .file_bytes = probe->bytes, .keep = keep, .context = &building};
    building.sink = &sink;
    *table = (struct rp_table){0};
    int code = reader->walk(probe, options, &sink, error);
    if (code == 0)
        code = assemble(table, &building, &sink, error);
    *layout = sink.layout;
    *tokens_out = sink.tokens;
    free(building.bytes.entries);
    free(building.lengths.entries);
    free(building.span_ends.entries);
    free(building.spans.entries);
    return code;
}
