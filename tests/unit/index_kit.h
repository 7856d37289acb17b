/* SPDX-License-Identifier: Apache-2.0 */
/* index_kit.h — a small corpus of three raw shards, and the making of its index. */
#ifndef RP_TESTS_INDEX_KIT_H
#define RP_TESTS_INDEX_KIT_H

#include "corpus_files.h"

#include "base/bits.h"
#include "corpus/index/build.h"
#include "corpus/index/write.h"

#define SHARDS 3u
#define EOS 9
#define INDEX "corpus.rpi"

static const char *const paths[] = {"a.bin", "b.bin", "c.bin"};
static const size_t token_counts[SHARDS] = {300, 40, 500};

/* A document ends at each EOS; their lengths differ from shard to shard. */
static inline void put_shards(void)
{
    for (size_t i = 0; i < SHARDS; i++) {
        uint16_t tokens[500];
        for (size_t t = 0; t < token_counts[i]; t++)
            tokens[t] = t % (11 + 3 * i) == 10 ? EOS : (uint16_t)(10 + t % 37);
        put_file(paths[i], tokens, 2 * token_counts[i]);
    }
}

static inline int build_steps(struct rp_indexing *build, struct rp_indexed *built,
                              struct rp_error *error)
{
    static const struct rp_progress silent;
    int code = 0;
    for (uint64_t i = 0; code == 0 && i < rp_indexing_shards(build); i++)
        code = rp_indexing_scan(build, i, &silent, error);
    if (code == 0)
        code = rp_indexing_lay_out(build, error);
    for (uint64_t i = 0; code == 0 && i < rp_indexing_shards(build); i++)
        code = rp_indexing_write(build, i, error);
    for (uint64_t i = 0; code == 0 && i < rp_indexing_parts(build); i++)
        rp_indexing_hash(build, i);
    return code < 0 ? code : rp_indexing_finish(build, built, error);
}

static inline int open_build(struct rp_indexing **build, struct rp_source_spec *source,
                             struct rp_error *error)
{
    static const char *const patterns[] = {"*.bin"};
    static const struct rp_index_patterns of = {patterns, 1};
    source->name = "all";
    source->shards = paths;
    const struct rp_indexing_options options = {
        .path = INDEX, .sources = source, .patterns = &of, .source_count = 1};
    return rp_indexing_open(build, &options, error);
}

static inline struct rp_indexed make(uint32_t shards)
{
    struct rp_error error = {0};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    struct rp_indexing *build;
    struct rp_indexed built;
    source.shard_count = shards;
    assert_int_equal(open_build(&build, &source, &error), 0);
    int code = build_steps(build, &built, &error);
    if (code < 0)
        fail_msg("%s", error.message);
    rp_indexing_close(build);
    assert_int_not_equal(access(INDEX ".work", F_OK), 0);
    return built;
}

static inline int open_corpus_with(struct rp_corpus **corpus, const char *index,
                                   struct rp_error *error)
{
    static const char *const patterns[] = {"*.bin"};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    source.shards = index ? patterns : paths;
    source.shard_count = index ? 1 : SHARDS;
    const struct rp_corpus_spec spec = {.sources = &source, .source_count = 1, .index = index};
    return rp_corpus_open(corpus, &spec, error);
}

/* All queries of a corpus: 0, or the first error. */
static inline int compare(const struct rp_corpus *corpus, const struct rp_corpus *wanted,
                          struct rp_error *error)
{
    const struct rp_source *a = rp_corpus_source(corpus, 0), *b = rp_corpus_source(wanted, 0);
    assert_int_equal(rp_source_documents(a), rp_source_documents(b));
    assert_int_equal(rp_source_tokens(a), rp_source_tokens(b));
    for (uint64_t d = 0; d < rp_source_documents(b); d++) {
        struct rp_extent found, expected;
        uint64_t row, row_wanted, many;
        uint64_t length = rp_source_length(a, d);
        if (length == UINT64_MAX)
            return rp_source_explain(a, d, error);
        int code = rp_source_extent(a, d, &found, error);
        if (code < 0)
            return code;
        assert_int_equal(length, rp_source_length(b, d));
        rp_source_length_many(a, &d, 1, &many);
        assert_int_equal(many, length);
        assert_int_equal(rp_source_extent(b, d, &expected, error), 0);
        assert_memory_equal(&found, &expected, sizeof found);
        assert_string_equal(rp_source_provenance(a, d, &row),
                            rp_source_provenance(b, d, &row_wanted));
        assert_int_equal(row, row_wanted);
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct rp_shard *found = rp_corpus_shard(corpus, i);
        const struct rp_shard *expected = rp_corpus_shard(wanted, i);
        assert_int_equal(found->bytes, expected->bytes);
        assert_int_equal(found->documents, expected->documents);
        assert_int_equal(found->stamp.mtime_ns, expected->stamp.mtime_ns);
        int code = rp_shard_check_sidecar(found, error);
        if (code < 0)
            return code;
        for (uint64_t b64 = 0; expected->block_hashes && b64 < expected->block_count; b64++)
            assert_true(found->block_hashes[b64] == expected->block_hashes[b64]);
    }
    return 0;
}

/* Append a column to the index: 0, or the error. */
static inline int append_column(uint32_t segment, const char *name, enum rp_index_column_type type,
                                const void *words, struct rp_error *error)
{
    struct rp_index *index;
    const struct rp_index_open_options options = {.path = INDEX};
    const struct rp_index_new_column column = {segment, name, type, words};
    assert_int_equal(rp_index_open(&index, &options, error), 0);
    int code = rp_index_append_columns(index, &column, 1, NULL, error);
    rp_index_close(index);
    return code;
}

/* The fingerprint of the file's source, by its head. */
static inline struct rp_fingerprint prefix_of_source(void)
{
    struct rp_error error;
    struct rp_index *index;
    const struct rp_index_open_options options = {.path = INDEX};
    assert_int_equal(rp_index_open(&index, &options, &error), 0);
    struct rp_fingerprint prefix = index->sources[0].fingerprint;
    rp_index_close(index);
    return prefix;
}

#endif
