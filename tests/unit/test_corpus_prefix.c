/* SPDX-License-Identifier: Apache-2.0 */
/* The fingerprint of a source at an earlier number of documents: as of a corpus of its first
 * shards, however they were indexed. */
#include "index_kit.h"

#include "base/hash.h"

static struct rp_error error;

static struct rp_corpus *open_shards(uint32_t shards, const char *index, const char *range)
{
    static const char *const patterns[] = {"*.bin"};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    source.name = "all";
    source.shards = index ? patterns : paths;
    source.shard_count = index ? 1 : shards;
    source.documents = range;
    const struct rp_corpus_spec spec = {.sources = &source, .source_count = 1, .index = index};
    struct rp_corpus *corpus;
    if (rp_corpus_open(&corpus, &spec, &error) < 0)
        fail_msg("%s", error.message);
    return corpus;
}

static uint64_t documents_of(uint32_t shards)
{
    struct rp_corpus *corpus = open_shards(shards, NULL, NULL);
    uint64_t documents = rp_source_documents(rp_corpus_source(corpus, 0));
    rp_corpus_close(corpus);
    return documents;
}

static struct rp_fingerprint whole(uint32_t shards)
{
    struct rp_corpus *corpus = open_shards(shards, NULL, NULL);
    struct rp_fingerprint fingerprint = rp_corpus_fingerprint(corpus), at;
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    assert_int_equal(rp_source_fingerprint_at(source, documents_of(shards), &at, &error), 0);
    struct rp_hash128 hash = rp_hash128(&at.sampled, sizeof at.sampled);
    assert_true(rp_hash128_equal(hash, fingerprint.sampled)); /* the corpus has this one source */
    rp_corpus_close(corpus);
    return at;
}

static void is_at(const struct rp_source *source, uint64_t documents, struct rp_fingerprint wanted)
{
    struct rp_fingerprint found;
    if (rp_source_fingerprint_at(source, documents, &found, &error) < 0)
        fail_msg("%s", error.message);
    assert_true(rp_hash128_equal(found.sampled, wanted.sampled));
    if (rp_hash128_is_known(found.full) && rp_hash128_is_known(wanted.full))
        assert_true(rp_hash128_equal(found.full, wanted.full));
}

static void is_changed(const struct rp_source *source, uint64_t documents)
{
    struct rp_fingerprint found;
    assert_int_equal(rp_source_fingerprint_at(source, documents, &found, &error), -RP_E_CHANGED);
    assert_says(&error, "source `all`|new ones come last");
}

static void check_prefixes(const char *index)
{
    struct rp_corpus *corpus = open_shards(SHARDS, index, NULL);
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    for (uint32_t shards = 1; shards <= SHARDS; shards++) {
        is_at(source, documents_of(shards), whole(shards));
        is_changed(source, documents_of(shards) - 1);
    }
    is_changed(source, documents_of(SHARDS) + 1);
    is_changed(source, UINT64_MAX);
    is_changed(source, 0);
    rp_corpus_close(corpus);
}

static void a_prefix_of_the_shards_has_the_fingerprint_of_their_corpus(void **state)
{
    (void)state;
    put_shards();
    check_prefixes(NULL);
    unlink(INDEX);
    make(SHARDS); /* one segment */
    check_prefixes(INDEX);
    unlink(INDEX);
    for (uint32_t shards = 1; shards <= SHARDS; shards++) /* one segment each */
        make(shards);
    check_prefixes(INDEX);
    unlink(INDEX);
    make(2);
    make(SHARDS); /* a boundary inside a segment */
    check_prefixes(INDEX);
}

/* The fingerprint of a range: the words 3, the hash of the prefix, first and n. */
static struct rp_fingerprint part(struct rp_fingerprint of, uint64_t first, uint64_t n)
{
    const uint64_t words[] = {3, of.sampled.low, of.sampled.high, first, n};
    return (struct rp_fingerprint){rp_hash128(words, sizeof words), {0, 0}};
}

static void a_range_is_of_the_shortest_prefix(void **state)
{
    (void)state;
    put_shards();
    uint64_t one = documents_of(1), two = documents_of(2);
    struct rp_corpus *corpus = open_shards(SHARDS, NULL, "5-");
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    struct rp_source_range range = rp_source_range(source);
    assert_true(range.is_open && !range.is_percent && range.first == 5 && range.end == range.all);
    is_at(source, one - 5, part(whole(1), 5, one - 5));
    is_at(source, two - 5, part(whole(2), 5, two - 5));
    is_changed(source, two - 4);
    rp_corpus_close(corpus);

    /* A range with an end stays as it is while the corpus grows after it. */
    char text[32];
    snprintf(text, sizeof text, "2-%d", (int)one + 1);
    for (uint32_t shards = 2; shards <= SHARDS; shards++) {
        corpus = open_shards(shards, NULL, text);
        source = rp_corpus_source(corpus, 0);
        assert_false(rp_source_range(source).is_open);
        is_at(source, one - 1, part(whole(2), 2, one - 1));
        is_changed(source, one);
        rp_corpus_close(corpus);
    }
    corpus = open_shards(SHARDS, NULL, "0-50%");
    range = rp_source_range(rp_corpus_source(corpus, 0));
    assert_true(range.is_percent && !range.is_open && range.end == range.all / 2);
    rp_corpus_close(corpus);
}

/* One corpus with two ranges: no document is in both, and none is in neither. */
static void hold_outs_are_disjoint_and_together_whole(void **state)
{
    (void)state;
    static const char *const bounds[] = {"1.7", "33.3", "50", "66.6667", "90", "98"};
    put_shards();
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        char text[32];
        snprintf(text, sizeof text, "0-%s%%", bounds[i]);
        struct rp_corpus *corpus = open_shards(SHARDS, NULL, text);
        struct rp_source_range kept = rp_source_range(rp_corpus_source(corpus, 0));
        rp_corpus_close(corpus);
        snprintf(text, sizeof text, "%s-100%%", bounds[i]);
        corpus = open_shards(SHARDS, NULL, text);
        struct rp_source_range held = rp_source_range(rp_corpus_source(corpus, 0));
        rp_corpus_close(corpus);
        assert_int_equal(kept.first, 0);
        assert_int_equal(kept.end, held.first);
        assert_int_equal(held.end, documents_of(SHARDS));
        assert_true(kept.end > 0 && held.first < held.end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_of_the_shards_has_the_fingerprint_of_their_corpus),
        cmocka_unit_test(a_range_is_of_the_shortest_prefix),
        cmocka_unit_test(hold_outs_are_disjoint_and_together_whole),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
