// SPDX-License-Identifier: Apache-2.0
// bench_select — the cost of `select` for a document: its values are looked up in the columns of an
// index, in random order, and compared. Items are documents.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

// A C header may give a struct and a function one name; g++ calls that shadowing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "corpus/index/build.h"
#include "corpus/index/write.h"
#include "selector.h"
}
#pragma GCC diagnostic pop

namespace
{

constexpr uint64_t DOCUMENTS = 16u << 20;
constexpr uint32_t BATCH = 64;

void check(int code, const rp_error &error)
{
    if (code >= 0)
        return;
    std::fprintf(stderr, "bench_select: %s\n", error.message);
    std::exit(2);
}

// An index of documents of one token, with a column f32, uniform in 0 … 1, and one u8, 0 … 9.
struct Corpus {
    std::string folder, shard, index;
    rp_corpus *opened = nullptr;
    rp_source_spec source{};
    const char *shards[1];

    Corpus()
    {
        char name[] = "/tmp/bench_select.XXXXXX";
        folder = mkdtemp(name);
        shard = folder + "/a.bin";
        index = folder + "/a.rpi";
        std::vector<uint16_t> tokens(DOCUMENTS, 7);
        FILE *file = std::fopen(shard.c_str(), "wb");
        std::fwrite(tokens.data(), 2, tokens.size(), file);
        std::fclose(file);
        shards[0] = shard.c_str();
        source.name = "web";
        source.shards = shards;
        source.shard_count = 1;
        source.format = RP_FORMAT_RAW;
        source.type = RP_TOKEN_U16;
        source.eos = 7;
        build();
        annotate();
        rp_error error{};
        rp_corpus_spec spec{};
        spec.sources = &source;
        spec.source_count = 1;
        spec.index = index.c_str();
        check(rp_corpus_open(&opened, &spec, &error), error);
    }

    ~Corpus()
    {
        rp_corpus_close(opened);
        unlink(shard.c_str());
        unlink(index.c_str());
        rmdir(folder.c_str());
    }

    void build()
    {
        rp_error error{};
        rp_indexing *indexing = nullptr;
        rp_indexed built{};
        const rp_indexing_options::rp_index_patterns patterns = {shards, 1};
        rp_indexing_options options{};
        options.path = index.c_str();
        options.sources = &source;
        options.patterns = &patterns;
        options.source_count = 1;
        check(rp_indexing_open(&indexing, &options, &error), error);
        check(rp_indexing_scan(indexing, 0, nullptr, &error), error);
        check(rp_indexing_lay_out(indexing, &error), error);
        check(rp_indexing_write(indexing, 0, &error), error);
        for (uint64_t i = 0; i < rp_indexing_parts(indexing); i++)
            rp_indexing_hash(indexing, i);
        check(rp_indexing_finish(indexing, &built, &error), error);
        rp_indexing_close(indexing);
    }

    void annotate()
    {
        rp_error error{};
        rp_index *opened_index = nullptr;
        rp_index_open_options options{};
        options.path = index.c_str();
        check(rp_index_open(&opened_index, &options, &error), error);
        std::mt19937_64 bits(1);
        std::vector<uint64_t> scores(DOCUMENTS), languages(DOCUMENTS);
        for (uint64_t d = 0; d < DOCUMENTS; d++) {
            double score = static_cast<double>(bits() >> 40) / (1 << 24);
            std::memcpy(&scores[d], &score, 8);
            languages[d] = bits() % 10;
        }
        const rp_index_new_column columns[] = {
            {0, "score", RP_INDEX_COLUMN_F32, scores.data()},
            {0, "language", RP_INDEX_COLUMN_U8, languages.data()}};
        check(rp_index_append_columns(opened_index, columns, 2, nullptr, &error), error);
        rp_index_close(opened_index);
    }
};

const Corpus &corpus()
{
    static const Corpus made;
    return made;
}

std::vector<uint64_t> shuffled(uint64_t count)
{
    std::vector<uint64_t> documents(count);
    for (uint64_t d = 0; d < count; d++)
        documents[d] = d;
    std::shuffle(documents.begin(), documents.end(), std::mt19937_64(2));
    return documents;
}

void counts(benchmark::State &state, const char *expression)
{
    rp_error error{};
    struct rp_selector *selection = nullptr;
    const rp_selector_spec spec{expression, nullptr, 0, 1};
    check(rp_selector_open(&selection, rp_corpus_source(corpus().opened, 0), &spec, &error), error);
    const rp_selection *made = rp_selector_selection(selection);
    const uint64_t count = static_cast<uint64_t>(state.range(0));
    const std::vector<uint64_t> documents = shuffled(count);
    uint8_t found[BATCH];
    for (uint64_t at = 0; at < count; at += BATCH) // every page is compared with its hash
        check(rp_selection_counts(made, &documents[at], BATCH, found, &error), error);
    uint64_t at = 0;
    for (auto _ : state) {
        check(rp_selection_counts(made, &documents[at], BATCH, found, &error), error);
        benchmark::DoNotOptimize(found);
        at = (at + BATCH) % count;
    }
    state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * BATCH));
    rp_selector_close(selection);
}

// Documents whose values are in the caches of the processor, and all.
#define COUNTS(name, expression)                                                                   \
    BENCHMARK_CAPTURE(counts, name, expression)->Arg(1 << 17)->Arg(static_cast<int64_t>(DOCUMENTS))
COUNTS(one, "score >= 0.5");
COUNTS(two, "score >= 0.5 and language == 3");
COUNTS(two_of_one, "score >= 0.25 and score < 0.75");
COUNTS(length, "length > 100 and length < 5000");
COUNTS(fraction, "fraction < 0.9");
COUNTS(in_of_10, "language in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)");

} // namespace
