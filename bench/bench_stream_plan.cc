// SPDX-License-Identifier: Apache-2.0 bench_stream_plan — the cost of deciding the fragments of a
// row, in both versions of the stream. Items are documents, so 1 / items_per_second is the time of
// a document: permutation, mixing and packing together. No token is read anywhere. All features of
// version 2 are off.
//
// Lengths are lognormal (median 400, sigma 1.2, 1 … 100 000), drawn once from a fixed generator.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

// A C header may give a struct and a function one name; g++ calls that shadowing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "plan/plan.h"
#include "plan/v2/stream_plan.h"
}
#pragma GCC diagnostic pop

namespace
{

enum : uint32_t { SEQ_LEN = 2048, WINDOW = 64, ROWS = 256 };

std::vector<uint32_t> make_lengths(size_t documents)
{
    std::mt19937_64 bits(1);
    std::lognormal_distribution<double> draw(std::log(400.0), 1.2);
    std::vector<uint32_t> lengths(documents);
    for (uint32_t &length : lengths)
        length = static_cast<uint32_t>(std::min(100000.0, std::max(1.0, draw(bits))));
    return lengths;
}

const std::vector<uint32_t> &corpus()
{
    static const std::vector<uint32_t> lengths = make_lengths(4u << 20);
    return lengths;
}

uint64_t length_of(const void *lengths, uint64_t document)
{
    return static_cast<const uint32_t *>(lengths)[document];
}

void lengths_of(const void *lengths, const uint64_t *documents, uint32_t count, uint64_t *tokens)
{
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = length_of(lengths, documents[i]);
}

void stop(const rp_error &error)
{
    std::fprintf(stderr, "bench_stream_plan: %s\n", error.message);
    std::exit(2);
}

void version_1(benchmark::State &state)
{
    rp_plan_config config{};
    config.seed = 1;
    config.seq_len = SEQ_LEN;
    config.shuffle = RP_SHUFFLE_DOCUMENT;
    config.packing = static_cast<rp_packing>(state.range(0));
    config.window = WINDOW;
    config.max_docs_per_row = SEQ_LEN / 16;
    config.lanes = 1;
    std::vector<rp_plan_source> sources;
    uint32_t count = static_cast<uint32_t>(state.range(1));
    uint64_t share = corpus().size() / count;
    for (uint32_t s = 0; s < count; s++)
        sources.push_back(
            {share, s + 1, corpus().data() + s * share, length_of, lengths_of, nullptr});
    rp_plan *plan = nullptr;
    rp_error error;
    if (rp_plan_open(&plan, &config, sources.data(), count, &error) < 0)
        stop(error);
    rp_row row;
    for (auto _ : state)
        for (uint32_t i = 0; i < ROWS; i++)
            if (rp_plan_next(plan, &row, &error) <= 0)
                stop(error);
    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    state.SetItemsProcessed(static_cast<int64_t>(counts.documents));
    state.SetLabel(rp_packing_name(config.packing));
    rp_plan_close(plan);
}

// A stream of version 2 whose sources share the corpus.
struct stream {
    std::vector<std::string> names;
    std::vector<rp_stream_source> sources;
    std::vector<uint32_t> weights;
    rp_stage_spec stage{};
    rp_stream_spec spec{};

    stream(rp_packing packing, uint32_t count)
    {
        uint64_t share = corpus().size() / count;
        for (uint32_t s = 0; s < count; s++) {
            names.push_back("source" + std::to_string(s));
            weights.push_back(s + 1);
        }
        for (uint32_t s = 0; s < count; s++) {
            rp_stream_source source{};
            source.name = names[s].c_str();
            source.documents = share;
            source.range_end = RP_NO_ROW;
            source.passes = 1;
            source.view.context = corpus().data() + s * share;
            source.view.lengths = lengths_of;
            sources.push_back(source);
        }
        stage.sets = RP_SETS_WEIGHTS | RP_SETS_SEQ_LEN | RP_SETS_ALIGN | RP_SETS_PACKING |
                     RP_SETS_WINDOW | RP_SETS_FILL | RP_SETS_SPREAD | RP_SETS_MAX_DOCS |
                     RP_SETS_DEAL;
        stage.weights = weights.data();
        stage.seq_len = SEQ_LEN;
        stage.align = 1;
        stage.window = packing == RP_PACKING_CONCAT ? 0u : uint32_t{WINDOW};
        stage.spread = packing == RP_PACKING_CONCAT ? 0 : RP_SPREAD_DEFAULT;
        stage.max_docs_per_row = SEQ_LEN / 16;
        stage.packing = packing;
        spec.fixed.seed = 1;
        spec.fixed.shuffle = RP_SHUFFLE_DOCUMENT;
        spec.fixed.group = 1;
        spec.fixed.bos_id = spec.fixed.eos_id = RP_NO_TOKEN_ID;
        spec.source_count = count;
        spec.sources = sources.data();
        spec.stage_count = 1;
        spec.stages = &stage;
    }
};

void version_2(benchmark::State &state)
{
    stream inputs(static_cast<rp_packing>(state.range(0)), static_cast<uint32_t>(state.range(1)));
    rp_calendar_position position{};
    rp_calendar *calendar = nullptr;
    rp_stream_plan *plan = nullptr;
    rp_error error;
    if (rp_calendar_open(&calendar, &inputs.spec, &position, &error) < 0 ||
        rp_stream_plan_open(&plan, calendar, &error) < 0)
        stop(error);
    rp_stream_row row;
    for (auto _ : state)
        for (uint32_t i = 0; i < ROWS; i++)
            if (rp_stream_plan_next(plan, &row, &error) <= 0)
                stop(error);
    rp_snapshot snapshot{};
    if (rp_stream_plan_snapshot(plan, &snapshot, &error) < 0)
        stop(error);
    state.SetItemsProcessed(static_cast<int64_t>(snapshot.counts.documents));
    state.SetLabel(rp_packing_name(inputs.stage.packing));
    rp_snapshot_free(&snapshot);
    rp_stream_plan_close(plan);
    rp_calendar_close(calendar);
}

void both(benchmark::internal::Benchmark *bench)
{
    bench->ArgNames({"packing", "sources"})
        ->ArgsProduct({{RP_PACKING_LOOKAHEAD, RP_PACKING_CONCAT, RP_PACKING_BEST_FIT}, {1, 8, 32}})
        ->Args({RP_PACKING_LOOKAHEAD, 64})
        ->Args({RP_PACKING_LOOKAHEAD, 1024});
}

BENCHMARK(version_1)->Apply(both);
BENCHMARK(version_2)->Apply(both);

} // namespace
