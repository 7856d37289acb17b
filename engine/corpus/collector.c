/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/collector.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"

#define BUFFER_BYTES 8192u /* buffer of a section that is spilled */

void rp_collector_begin(struct rp_collector *collector, const char *name, const char *path)
{
    *collector = (struct rp_collector){.name = name, .path = path};
    for (size_t i = 0; i < RP_COLLECT_COUNT; i++)
        collector->sections[i].file.fd = -1;
}

void rp_collector_discard(struct rp_collector *collector)
{
    for (size_t i = 0; i < RP_COLLECT_COUNT; i++) {
        free(collector->sections[i].buffer);
        rp_new_file_discard(&collector->sections[i].file);
    }
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Write the buffer to the file, which is made at its first use. */
static int spill(struct rp_collector *collector, struct rp_collected *section,
                 struct rp_error *error)
{
    int code = 0;
    if (section->file.fd < 0)
        code = rp_new_file_open(&section->file, collector->path, error);
    if (code == 0)
        code = rp_file_write_at(section->file.fd, collector->path, section->buffer,
                                section->buffered, section->spilled, error);
    section->spilled += section->buffered;
    section->buffered = 0;
    return code;
}

static int make_room(struct rp_collector *collector, struct rp_collected *section, size_t bytes,
                     struct rp_error *error)
{
    if (collector->path && section->buffered + bytes > BUFFER_BYTES) {
        int code = section->buffered ? spill(collector, section, error) : 0;
        if (code < 0)
            return code;
    }
    if (section->buffered + bytes <= section->capacity)
        return 0;
    size_t capacity = collector->path ? (size_t)rp_max_u64(BUFFER_BYTES, bytes)
                                      : 2 * section->capacity + bytes + BUFFER_BYTES;
    uint8_t *grown = realloc(section->buffer, capacity);
    if (!grown)
        return rp_fail(error, -ENOMEM, "run `ringpack index` on the file: the table is then mapped",
                       "%s: no memory for a table of its documents", collector->name);
    section->buffer = grown;
    section->capacity = capacity;
    return 0;
}

static inline int add(struct rp_collector *collector, size_t which, const void *entries,
                      size_t bytes, struct rp_error *error)
{
    struct rp_collected *section = &collector->sections[which];
    if (section->buffered + bytes > section->capacity) {
        int code = make_room(collector, section, bytes, error);
        if (code < 0)
            return code;
    }
    if (bytes)
        memcpy(section->buffer + section->buffered, entries, bytes);
    section->buffered += bytes;
    return 0;
}

int rp_collector_add_blocks(struct rp_collector *collector, const uint64_t *hashes, size_t count,
                            struct rp_error *error)
{
    return add(collector, RP_COLLECT_BLOCKS, hashes, count * sizeof *hashes, error);
}

int rp_collector_add_document(struct rp_collector *collector, uint64_t byte, uint32_t tokens,
                              const struct rp_span *spans, size_t span_count,
                              struct rp_error *error)
{
    int code = add(collector, RP_COLLECT_BYTES, &byte, sizeof byte, error);
    if (code == 0)
        code = add(collector, RP_COLLECT_LENGTHS, &tokens, sizeof tokens, error);
    collector->shape.documents++;
    return code < 0 || !collector->shape.has_spans
               ? code
               : rp_collector_add_spans(collector, spans, span_count, error);
}

int rp_collector_add_spans(struct rp_collector *collector, const struct rp_span *spans,
                           size_t span_count, struct rp_error *error)
{
    uint64_t *end = &collector->shape.span_count;
    *end += span_count;
    int code = add(collector, RP_COLLECT_SPAN_ENDS, end, sizeof *end, error);
    return code < 0 ? code
                    : add(collector, RP_COLLECT_SPANS, spans, span_count * sizeof *spans, error);
}

/* ---- copying --------------------------------------------------------------------------------- */

static int put(const struct rp_collector *collector, size_t which, void *to, struct rp_error *error)
{
    const struct rp_collected *section = &collector->sections[which];
    int code = 0;
    if (section->spilled)
        code = rp_file_read_at(section->file.fd, collector->path, to, (size_t)section->spilled, 0,
                               error);
    if (section->buffered)
        memcpy((uint8_t *)to + section->spilled, section->buffer, section->buffered);
    return code;
}

int rp_collector_put_table(const struct rp_collector *collector, const struct rp_table *table,
                           struct rp_error *error)
{
    int code = 0;
    if (table->shape.has_extents)
        code = put(collector, RP_COLLECT_BYTES, (void *)(uintptr_t)table->bytes, error);
    if (code == 0 && table->shape.has_extents)
        code = put(collector, RP_COLLECT_LENGTHS, (void *)(uintptr_t)table->lengths, error);
    if (code == 0 && table->shape.has_spans) /* the first end is 0 */
        code = put(collector, RP_COLLECT_SPAN_ENDS, (void *)(uintptr_t)(table->spans.ends + 1),
                   error);
    if (code == 0 && table->shape.has_spans)
        code = put(collector, RP_COLLECT_SPANS, (void *)(uintptr_t)table->spans.table, error);
    return code;
}

int rp_collector_put_blocks(const struct rp_collector *collector, uint64_t *to,
                            struct rp_error *error)
{
    return put(collector, RP_COLLECT_BLOCKS, to, error);
}

int rp_collector_make_table(const struct rp_collector *collector, struct rp_table *table,
                            struct rp_error *error)
{
    uint64_t bytes;
    bool fits = rp_table_image_bytes(&collector->shape, &bytes);
    uint8_t *image = fits ? rp_calloc(1, (size_t)rp_max_u64(bytes, 8)) : NULL;
    if (!image)
        return rp_fail(error, -ENOMEM, "run `ringpack index` on the file: the table is then mapped",
                       "%s: no memory for a table of its documents", collector->name);
    rp_table_over(table, &collector->shape, image, NULL);
    table->built = image;
    return rp_collector_put_table(collector, table, error);
}
