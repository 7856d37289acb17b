/* SPDX-License-Identifier: Apache-2.0 */
#include "index_inspection.h"

#include <stdio.h>

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
    for (uint32_t s = 0; s < index->source_count; s++)
        print_source(&index->sources[s]);
}

static json_t *to_json(const struct rp_index *index, bool is_scanned)
{
    char root[RP_HASH_HEX_BYTES], full[RP_HASH_HEX_BYTES];
    json_t *sources = json_array();
    for (uint32_t s = 0; s < index->source_count; s++) {
        const struct rp_index_source *source = &index->sources[s];
        json_array_append_new(sources, json_pack("{s:o, s:I, s:I, s:I, s:I, s:I}", "name",
                                                 rp_cmd_json_text(source->texts[RP_INDEX_NAME]),
                                                 "shards", (json_int_t)source->shards, "documents",
                                                 (json_int_t)source->documents, "tokens",
                                                 (json_int_t)source->tokens, "bytes",
                                                 (json_int_t)source->bytes, "segments",
                                                 (json_int_t)source->segment_count));
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
