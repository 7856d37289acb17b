// SPDX-License-Identifier: Apache-2.0 bench_hash — the cost of checks: blocks of token files,
// checkpoints, digests of rows; against a plain sum over the same bytes, the limit of memory.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <vector>

// A C header may give a struct and a function one name; g++ calls that shadowing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "base/hash.h"
#include "base/row_digest.h"
}
#pragma GCC diagnostic pop

namespace
{

void count(benchmark::State &state)
{
    state.SetBytesProcessed(state.iterations() * state.range(0));
}

std::vector<uint8_t> bytes_of(const benchmark::State &state)
{
    return std::vector<uint8_t>(static_cast<size_t>(state.range(0)), 1);
}

void limit_sum(benchmark::State &state)
{
    std::vector<uint8_t> data = bytes_of(state);
    for (auto _ : state) {
        uint64_t sum = 0, word;
        for (size_t i = 0; i + sizeof word <= data.size(); i += sizeof word) {
            std::memcpy(&word, data.data() + i, sizeof word);
            sum += word;
        }
        benchmark::DoNotOptimize(sum);
    }
    count(state);
}

void hash64(benchmark::State &state)
{
    std::vector<uint8_t> data = bytes_of(state);
    for (auto _ : state)
        benchmark::DoNotOptimize(rp_hash64(data.data(), data.size()));
    count(state);
}

void hash128(benchmark::State &state)
{
    std::vector<uint8_t> data = bytes_of(state);
    for (auto _ : state)
        benchmark::DoNotOptimize(rp_hash128(data.data(), data.size()));
    count(state);
}

// In parts of 4096 bytes, as a file is checked while it is written.
void in_parts(benchmark::State &state)
{
    std::vector<uint8_t> data = bytes_of(state);
    for (auto _ : state) {
        rp_hasher hasher;
        rp_hasher_begin(&hasher);
        for (size_t i = 0; i < data.size(); i += 4096)
            rp_hasher_add(&hasher, data.data() + i, 4096);
        benchmark::DoNotOptimize(rp_hasher_finish(&hasher));
    }
    count(state);
}

// A row of i32 ids in fragments of about 400 tokens; its bytes are the ids'.
void row_digest(benchmark::State &state)
{
    const auto tokens = static_cast<size_t>(state.range(0)) / sizeof(int32_t);
    std::vector<int32_t> ids(tokens, 1), lengths(tokens / 400, 400);
    lengths.push_back(static_cast<int32_t>(tokens % 400));
    for (auto _ : state) {
        const rp_row_tokens row = {lengths.data(), static_cast<uint32_t>(lengths.size()), 1,
                                   ids.data(), RP_DTYPE_I32};
        benchmark::DoNotOptimize(rp_row_digest(7, rp_row_hash(&row)));
    }
    count(state);
}

BENCHMARK(limit_sum)->ArgName("bytes")->Arg(4096)->Arg(256 << 10)->Arg(64 << 20);
BENCHMARK(hash64)->ArgName("bytes")->Arg(4096)->Arg(256 << 10)->Arg(64 << 20);
BENCHMARK(hash128)->ArgName("bytes")->Arg(4096)->Arg(256 << 10)->Arg(64 << 20);
BENCHMARK(in_parts)->ArgName("bytes")->Arg(256 << 10)->Arg(64 << 20);
BENCHMARK(row_digest)->ArgName("bytes")->Arg(16384)->Arg(512 << 10);

} // namespace
