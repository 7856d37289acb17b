/* SPDX-License-Identifier: Apache-2.0 */
#include "index_inspection.h"

#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "corpus/index/index.h"
#include "object/url.h"

static void print_source(const struct rp_index_source *source)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES];
    char d[RP_CMD_TEXT_BYTES];
    printf("  source       %s: %s shards, %s documents, %s tokens in %s\n",
           source->texts[RP_INDEX_NAME], rp_cmd_count_text(source->shards, a),
           rp_cmd_count_text(source->documents, b), rp_cmd_count_text(source->tokens, c),
           rp_cmd_bytes_text(source->bytes, d));
    for (uint32_t i = RP_INDEX_PATTERNS; i < source->text_count; i++)
        printf("    shards     %s\n", source->texts[i]);
#define NAME(id, name) name,
    static const char *const names[] = {RP_INDEX_TEXTS(NAME)};
#undef NAME
    for (unsigned i = RP_INDEX_NAME + 1; i < RP_INDEX_PATTERNS; i++)
        if (source->texts[i][0])
            printf("    %-10s %s\n", names[i], source->texts[i]);
    for (uint32_t g = 0; g < source->segment_count && source->segment_count > 1; g++)
        printf("    segment    %u: %s shards, %s documents\n", g,
               rp_cmd_count_text(source->segments[g].shape.shards, a),
               rp_cmd_count_text(source->segments[g].shape.table.documents, b));
}

/* The place of a column among the segments of a source; UINT32_MAX: it is of another source. */
static uint32_t segment_of(const struct rp_index_source *source,
                           const struct rp_index_column *column)
{
    for (uint32_t g = 0; g < source->segment_count; g++)
        if (source->segments[g].offset == column->segment_at)
            return g;
    return UINT32_MAX;
}

/* The columns of a source by name: of its first segment that has the column, with all documents
 * that have it. */
static bool sum_column(const struct rp_index *index, const struct rp_index_source *source,
                       uint32_t number, uint64_t *documents)
{
    const struct rp_index_column *column = &index->columns[number];
    *documents = 0;
    if (segment_of(source, column) == UINT32_MAX)
        return false;
    for (uint32_t i = 0; i < index->column_count; i++) {
        const struct rp_index_column *other = &index->columns[i];
        if (strcmp(other->name, column->name) != 0 || segment_of(source, other) == UINT32_MAX)
            continue;
        if (i < number) /* it was listed */
            return false;
        *documents += other->values;
    }
    return true;
}

static void print_columns(const struct rp_index *index, const struct rp_index_source *source)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES];
    uint64_t documents;
    for (uint32_t i = 0; i < index->column_count; i++)
        if (sum_column(index, source, i, &documents))
            printf("    annotated  %s: %s, %s of %s documents\n", index->columns[i].name,
                   rp_index_column_type_name(index->columns[i].type),
                   rp_cmd_count_text(documents, a), rp_cmd_count_text(source->documents, b));
}

static json_t *columns_to_json(const struct rp_index *index, const struct rp_index_source *source)
{
    json_t *list = json_array();
    uint64_t documents;
    for (uint32_t i = 0; i < index->column_count; i++)
        if (sum_column(index, source, i, &documents))
            json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "name", index->columns[i].name,
                                                  "type",
                                                  rp_index_column_type_name(index->columns[i].type),
                                                  "documents", (json_int_t)documents));
    return list;
}

static void print(const struct rp_index *index, bool is_scanned)
{
    char a[RP_CMD_TEXT_BYTES], hex[RP_HASH_HEX_BYTES];
    printf("%s\n  what         an index of ringpack, %s\n", index->path,
           rp_cmd_bytes_text(index->end, a));
    printf("  corpus       %u sources, %s shards\n", index->source_count,
           rp_cmd_count_text(index->shard_count, a));
    printf("  root         %s, %s\n", rp_hash128_hex(index->root, hex),
           is_scanned ? "and every page has its hash"
                      : "its pages were not compared (--scan does)");
    printf("  fingerprint  %s, full\n", rp_hash128_hex(index->fingerprint.full, hex));
    for (uint32_t s = 0; s < index->source_count; s++) {
        print_source(&index->sources[s]);
        print_columns(index, &index->sources[s]);
    }
}

static json_t *to_json(const struct rp_index *index, bool is_scanned)
{
    char root[RP_HASH_HEX_BYTES], full[RP_HASH_HEX_BYTES];
    json_t *sources = json_array();
    for (uint32_t s = 0; s < index->source_count; s++) {
        const struct rp_index_source *source = &index->sources[s];
        json_array_append_new(sources, json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "name",
                                                 rp_cmd_json_text(source->texts[RP_INDEX_NAME]),
                                                 "shards", (json_int_t)source->shards, "documents",
                                                 (json_int_t)source->documents, "tokens",
                                                 (json_int_t)source->tokens, "bytes",
                                                 (json_int_t)source->bytes, "segments",
                                                 (json_int_t)source->segment_count, "columns",
                                                 columns_to_json(index, source)));
    }
    return json_pack("{s:o, s:s, s:I, s:b, s:s, s:s, s:o}", "path", rp_cmd_json_text(index->path),
                     "format", "index", "shards", (json_int_t)index->shard_count, "scanned",
                     is_scanned, "root", rp_hash128_hex(index->root, root), "fingerprint_full",
                     rp_hash128_hex(index->fingerprint.full, full), "sources", sources);
}

int rp_cmd_inspect_index(const char *path, bool scan, bool json, bool quiet, json_t *list)
{
    struct rp_index *index;
    struct rp_error error;
    struct rp_cmd_progress bar;
    rp_cmd_progress_begin(&bar, rp_url_is(path) ? "the index" : path, true);
    bar.shown &= !quiet;
    const struct rp_progress progress = {rp_cmd_progress, &bar};
    int code = rp_index_open_place(&index, path, NULL, &error);
    if (code == 0 && scan)
        code = rp_index_check_all(index, &progress, &error);
    rp_cmd_progress_end(&bar);
    if (code < 0) {
        rp_index_close(index);
        return rp_cmd_report(&error);
    }
    if (json)
        json_array_append_new(list, to_json(index, scan));
    else
        print(index, scan);
    rp_index_close(index);
    return RP_EXIT_FINE;
}
