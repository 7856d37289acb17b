// SPDX-License-Identifier: Apache-2.0 bench_plan — the cost of deciding the fragments of a row.
// Items are documents, so 1 / items_per_second is the time of a document, permutation, mixing and
// packing together. No token is read anywhere.
//
// Lengths are lognormal (median 400, sigma 1.2, 1 … 100 000), drawn once from a fixed generator.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

// A C header may give a struct and a function one name; g++ calls that shadowing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "plan/permutation.h"
#include "plan/plan.h"
}
#pragma GCC diagnostic pop

namespace
{

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

rp_plan_config lookahead_config(uint32_t seq_len)
{
    rp_plan_config config{};
    config.seed = 1;
    config.seq_len = seq_len;
    config.shuffle = RP_SHUFFLE_DOCUMENT;
    config.block_documents = 1024;
    config.window_blocks = 64;
    config.packing = RP_PACKING_LOOKAHEAD;
    config.window = 64;
    config.max_docs_per_row = seq_len / 16;
    config.lanes = 1;
    return config;
}

rp_plan *open_plan(const rp_plan_config &config, uint32_t source_count)
{
    std::vector<rp_plan_source> sources;
    uint64_t share = corpus().size() / source_count;
    for (uint32_t s = 0; s < source_count; s++)
        sources.push_back(
            {share, s + 1, corpus().data() + s * share, length_of, lengths_of, nullptr});
    rp_plan *plan = nullptr;
    rp_error error;
    if (rp_plan_open(&plan, &config, sources.data(), source_count, &error) < 0) {
        std::fprintf(stderr, "bench_plan: %s\n", error.message);
        std::exit(2);
    }
    return plan;
}

double token_bytes(const rp_plan *plan)
{
    std::vector<uint8_t> token(rp_plan_state_bytes_max(plan));
    return static_cast<double>(rp_plan_save(plan, token.data()));
}

void plan_rows(benchmark::State &state, const rp_plan_config &config, uint32_t source_count = 1)
{
    rp_plan *plan = open_plan(config, source_count);
    for (auto _ : state)
        if (rp_plan_seek(plan, rp_plan_row(plan) + 256, nullptr) < 0)
            state.SkipWithError("the plan failed");
    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    state.SetItemsProcessed(static_cast<int64_t>(counts.documents));
    double capacity = static_cast<double>(counts.emitted + counts.padding);
    state.counters["efficiency_%"] = 100.0 * static_cast<double>(counts.emitted) / capacity;
    state.counters["token_bytes"] = token_bytes(plan);
    state.counters["cuts_per_100"] = 100.0 * static_cast<double>(counts.cuts) /
                                     static_cast<double>(counts.documents);
    rp_plan_close(plan);
}

void permute_one(benchmark::State &state)
{
    rp_permutation permutation = rp_permutation_make(static_cast<uint64_t>(state.range(0)),
                                                     rp_epoch_key_make(1, 0, 0), 0, 0);
    uint64_t x = 0;
    for (auto _ : state)
        benchmark::DoNotOptimize(x = rp_permute(&permutation, x));
    state.SetItemsProcessed(state.iterations());
}

void permute_many(benchmark::State &state)
{
    rp_permutation permutation = rp_permutation_make(static_cast<uint64_t>(state.range(0)),
                                                     rp_epoch_key_make(1, 0, 0), 0, 0);
    uint64_t values[RP_PERMUTE_MANY_MAX];
    for (uint32_t i = 0; i < RP_PERMUTE_MANY_MAX; i++)
        values[i] = i;
    for (auto _ : state) {
        rp_permute_many(&permutation, values, RP_PERMUTE_MANY_MAX);
        benchmark::DoNotOptimize(values);
    }
    state.SetItemsProcessed(state.iterations() * RP_PERMUTE_MANY_MAX);
}

void lookahead(benchmark::State &state)
{
    rp_plan_config config = lookahead_config(static_cast<uint32_t>(state.range(0)));
    config.window = static_cast<uint32_t>(state.range(1));
    config.row_gap = static_cast<rp_row_gap>(state.range(2));
    plan_rows(state, config);
}

void best_fit(benchmark::State &state)
{
    rp_plan_config config = lookahead_config(static_cast<uint32_t>(state.range(0)));
    config.packing = RP_PACKING_BEST_FIT;
    config.window = static_cast<uint32_t>(state.range(1));
    plan_rows(state, config);
}

void concat(benchmark::State &state)
{
    rp_plan_config config = lookahead_config(static_cast<uint32_t>(state.range(0)));
    config.packing = RP_PACKING_CONCAT;
    plan_rows(state, config);
}

void shuffles(benchmark::State &state)
{
    rp_plan_config config = lookahead_config(2048);
    config.shuffle = static_cast<rp_shuffle>(state.range(0));
    state.SetLabel(rp_shuffle_name(config.shuffle));
    plan_rows(state, config);
}

void sources(benchmark::State &state)
{
    plan_rows(state, lookahead_config(2048), static_cast<uint32_t>(state.range(0)));
}

void save_and_load(benchmark::State &state)
{
    rp_plan *plan = open_plan(lookahead_config(2048), 4);
    if (rp_plan_seek(plan, 1000, nullptr) < 0)
        state.SkipWithError("the plan failed");
    std::vector<uint8_t> token(rp_plan_state_bytes_max(plan));
    size_t bytes = 0;
    for (auto _ : state) {
        bytes = rp_plan_save(plan, token.data());
        if (rp_plan_load(plan, token.data(), bytes, false, nullptr) < 0)
            state.SkipWithError("the token was refused");
    }
    state.counters["token_bytes"] = static_cast<double>(bytes);
    rp_plan_close(plan);
}

BENCHMARK(permute_one)->ArgName("n")->Arg(1 << 20)->Arg((1 << 20) + 1)->Arg(1000000000);
BENCHMARK(permute_many)->ArgName("n")->Arg(1 << 20)->Arg((1 << 20) + 1)->Arg(1000000000);
BENCHMARK(lookahead)
    ->ArgNames({"seq_len", "window", "split"})
    ->ArgsProduct({{4096}, {16, 64, 256, 1024, 4096}, {RP_ROW_GAP_PAD}})
    ->Args({2048, 64, RP_ROW_GAP_PAD})
    ->Args({2048, 64, RP_ROW_GAP_SPLIT})
    ->Args({8192, 64, RP_ROW_GAP_PAD})
    ->Args({131072, 64, RP_ROW_GAP_PAD});
BENCHMARK(best_fit)
    ->ArgNames({"seq_len", "window"})
    ->ArgsProduct({{4096}, {16, 64, 256, 1024, 4096}})
    ->Args({2048, 64})
    ->Args({8192, 64});
BENCHMARK(concat)->ArgName("seq_len")->Arg(2048)->Arg(4096)->Arg(8192);
BENCHMARK(shuffles)->ArgName("shuffle")->DenseRange(RP_SHUFFLE_NONE, RP_SHUFFLE_BLOCK);
BENCHMARK(sources)->ArgName("sources")->Arg(1)->Arg(2)->Arg(8)->Arg(64);
BENCHMARK(save_and_load);

} // namespace
