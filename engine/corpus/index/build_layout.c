/* SPDX-License-Identifier: Apache-2.0 */
/* build_layout.c — the layout of the new file: its sources, and a place in it for each new shard
 * (build_struct.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "corpus/index/build_struct.h"

/* Take over the older segments of a source that is appended to. */
static void begin_source(struct rp_indexing *build, uint32_t s)
{
    struct rp_build_source *source = &build->sources[s];
    if (!build->appends)
        return;
    const struct rp_index_source *older = &build->older->sources[s];
    build->draft.sources[s] = *older;
    if (rp_ids_know_tokenizer(&older->tokenizer))
        source->tokenizer = (struct rp_tokenizer_known){older->tokenizer,
                                                        build->options.sources[s].name};
    snprintf(source->found_mask, sizeof source->found_mask, "%s",
             older->texts[RP_INDEX_FOUND_MASK]);
}

static void add_shard(struct rp_build_shard *shard, struct rp_index_shape *shape,
                      struct rp_index_source *draft)
{
    struct rp_index_record *record = &shard->record;
    uint32_t width = rp_token_width(record->type);
    record->first_block = shape->blocks;
    record->path_at = shape->path_bytes;
    shard->first_document = shape->table.documents;
    shard->first_span = shape->table.span_count;
    shape->table.documents += record->documents;
    shape->table.span_count += shard->spans;
    shape->blocks += rp_div_up(record->bytes, RP_BLOCK_BYTES);
    shape->path_bytes += shard->stored_bytes;
    shape->shards++;
    shape->objects += shard->remote != NULL;
    draft->documents += record->documents;
    draft->tokens += record->tokens;
    draft->token_bytes += record->tokens * width;
    draft->bytes += record->bytes;
    draft->widest = (uint32_t)rp_max_u64(draft->widest, width);
    draft->shards++;
}

/* Give the entries of each shard their places in the segment. */
static int lay_out_source(struct rp_indexing *build, uint32_t s, struct rp_error *error)
{
    struct rp_build_source *source = &build->sources[s];
    struct rp_index_source *draft = &build->draft.sources[s];
    const struct rp_source_spec *spec = &build->options.sources[s];
    int code = 0;
    begin_source(build, s);
    for (uint64_t i = 0; i < source->count && code == 0; i++) {
        struct rp_build_shard *shard = &build->shards[source->first + i];
        code = rp_mask_take(source->found_mask,
                            shard->record.mask.name[0] ? &shard->record.mask : NULL, shard->path,
                            draft->shards ? "the first shard of the source" : NULL, error);
        if (code == 0 && rp_ids_know_tokenizer(&shard->tokenizer))
            code = rp_ids_take_tokenizer(&source->tokenizer, &shard->tokenizer, spec->name,
                                         shard->path, error);
        add_shard(shard, &source->shape, draft);
    }
    source->shape.table.has_extents = true;
    source->shape.table.has_spans = source->found_mask[0] != 0;
    draft->tokenizer = source->tokenizer.id;
    draft->segment_count += source->count > 0;
    if (code == 0 && spec->drop_untrained && !source->shape.table.has_spans)
        code = rp_fail_context(error, rp_mask_fail_drop(error), "source `%s`", spec->name);
    if (code == 0 && (draft->documents == 0 || draft->tokens == 0))
        code = rp_fail(error, -RP_E_EMPTY, "`ringpack inspect` on its shards shows their contents",
                       "source `%s`: expected documents with tokens, found %" PRIu64
                       " documents with %" PRIu64 " tokens",
                       spec->name, draft->documents, draft->tokens);
    return code;
}

static int make_texts(struct rp_indexing *build, uint32_t s)
{
    const struct rp_index_patterns *patterns = &build->options.patterns[s];
    struct rp_build_source *source = &build->sources[s];
    struct rp_index_source *draft = &build->draft.sources[s];
    source->texts = rp_calloc(RP_INDEX_PATTERNS + (size_t)patterns->count, sizeof *source->texts);
    if (!source->texts)
        return -ENOMEM;
    rp_index_declared(&build->options.sources[s], source->eos, source->texts);
    source->texts[RP_INDEX_FOUND_MASK] = source->found_mask;
    source->texts[RP_INDEX_TOKENIZER] = source->tokenizer.id.name;
    for (uint32_t i = 0; i < patterns->count; i++) {
        char *stored = rp_index_paths_store(&build->paths, patterns->patterns[i]);
        source->texts[RP_INDEX_PATTERNS + i] = stored;
        if (!stored)
            return -ENOMEM;
    }
    draft->texts = source->texts;
    draft->text_count = RP_INDEX_PATTERNS + patterns->count;
    return 0;
}

/* Keep the older segments, and give each source with new shards one more. */
static int make_segments(struct rp_indexing *build, struct rp_error *error)
{
    struct rp_index *draft = &build->draft;
    uint64_t count = 0;
    for (uint32_t s = 0; s < draft->source_count; s++)
        count += draft->sources[s].segment_count;
    draft->segments = rp_calloc((size_t)count, sizeof *draft->segments);
    if (!draft->segments)
        return rp_build_fail_memory(build, error);
    for (uint32_t s = 0; s < draft->source_count; s++) {
        struct rp_build_source *source = &build->sources[s];
        struct rp_index_source *of = &draft->sources[s];
        of->segments = draft->segments + draft->segment_count;
        for (uint32_t g = 0; build->appends && g < build->older->sources[s].segment_count; g++)
            draft->segments[draft->segment_count++] = build->older->sources[s].segments[g];
        draft->shard_count += of->shards;
        if (source->count == 0)
            continue;
        source->segment = &draft->segments[draft->segment_count++];
        source->segment->shape = source->shape;
        for (uint64_t i = 0; i < source->count; i++)
            source->segment->tokens += build->shards[source->first + i].record.tokens;
    }
    if (build->appends) {
        draft->columns = build->older->columns;
        draft->column_count = build->older->column_count;
    }
    draft->generation = build->appends ? build->older->generation + 1 : 1;
    return 0;
}

static int open_file(struct rp_indexing *build, struct rp_error *error)
{
    if (build->appends)
        return rp_index_writer_append(&build->writer, build->older, error);
    int code = rp_new_file_open(&build->file, build->options.path, error);
    build->writer.path = build->options.path;
    build->writer.fd = build->file.fd;
    return code;
}

static void put_look_up(const struct rp_indexing *build, const struct rp_build_source *source)
{
    for (uint64_t i = 0; i < source->count; i++)
        rp_index_put_documents_before(source->segment, (uint32_t)i,
                                      build->shards[source->first + i].first_document);
    rp_index_put_documents_before(source->segment, (uint32_t)source->count,
                                  source->shape.table.documents);
    rp_index_put_buckets(source->segment);
}

int rp_indexing_lay_out(struct rp_indexing *build, struct rp_error *error)
{
    uint32_t sources = build->options.source_count;
    build->draft.source_count = sources;
    build->draft.sources = rp_calloc(sources, sizeof *build->draft.sources);
    if (!build->draft.sources)
        return rp_build_fail_memory(build, error);
    int code = 0;
    for (uint32_t s = 0; s < sources && code == 0; s++) {
        code = lay_out_source(build, s, error);
        if (code == 0 && make_texts(build, s) < 0)
            code = rp_build_fail_memory(build, error);
    }
    if (code < 0 || (build->appends && build->keeps_texts && build->shard_count == 0))
        return code;
    code = make_segments(build, error);
    if (code == 0)
        code = open_file(build, error);
    if (code == 0)
        code = rp_index_lay_out(&build->writer, &build->draft, error);
    for (uint32_t s = 0; s < sources && code == 0; s++)
        if (build->sources[s].segment)
            put_look_up(build, &build->sources[s]);
    return code;
}
