// SPDX-License-Identifier: Apache-2.0 bench_widen — the one pass over every token, by stored width,
// type of the ids and sections, against its bound: a memset of the bytes that it writes plus a
// memcpy of those that it reads, and the loop that anybody would write.
//
// Items are tokens. A batch of fragments of 400 tokens is written again and again: `mib` is how
// much memory the sections take, so that a batch in the cache and one beyond it both show.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <vector>

// A C header may give a struct and a function one name; g++ calls that shadowing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "flow/widen.h"
}
#pragma GCC diagnostic pop

namespace
{

constexpr size_t kFragment = 400;

enum Sections { kIds, kIdsLabelsPositions, kAll, kSectionSets };

// Everything that one batch of `tokens` needs; each section has memory of its own.
struct Batch {
    Batch(uint32_t width, rp_dtype dtype, int sections, size_t mib)
        : id_bytes(rp_dtype_bytes(dtype)), per_token(bytes_of(id_bytes, sections)),
          tokens((mib << 20) / per_token / kFragment * kFragment), source(tokens * width, 1),
          ids(tokens * id_bytes), labels(sections >= kIdsLabelsPositions ? tokens * id_bytes : 0),
          positions(labels.size()), segments(sections == kAll ? tokens : 0), mask(segments.size())
    {
    }

    static size_t bytes_of(size_t id_bytes, int sections)
    {
        return id_bytes * (sections >= kIdsLabelsPositions ? 3 : 1) + (sections == kAll ? 8 : 0);
    }

    rp_widen_target target(size_t token)
    {
        rp_widen_target t = {};
        t.ids = ids.data() + token * id_bytes;
        t.labels = labels.empty() ? nullptr : labels.data() + token * id_bytes;
        t.positions = positions.empty() ? nullptr : positions.data() + token * id_bytes;
        t.segments = segments.empty() ? nullptr : segments.data() + token;
        t.mask = mask.empty() ? nullptr : mask.data() + token;
        t.segment = 1;
        t.labels_shifted = true;
        return t;
    }

    size_t id_bytes, per_token, tokens;
    std::vector<uint8_t> source, ids, labels, positions;
    std::vector<int32_t> segments;
    std::vector<float> mask;
};

Batch batch_of(const benchmark::State &state)
{
    return Batch(static_cast<uint32_t>(state.range(0)), static_cast<rp_dtype>(state.range(1)),
                 static_cast<int>(state.range(2)), static_cast<size_t>(state.range(3)));
}

void count(benchmark::State &state, const Batch &batch)
{
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(batch.tokens));
    state.SetBytesProcessed(state.iterations() *
                            static_cast<int64_t>(batch.tokens * batch.per_token));
}

void widen(benchmark::State &state)
{
    Batch batch = batch_of(state);
    const auto width = static_cast<uint32_t>(state.range(0));
    const auto dtype = static_cast<rp_dtype>(state.range(1));
    for (auto _ : state)
        for (size_t token = 0; token < batch.tokens; token += kFragment) {
            rp_widen_target target = batch.target(token);
            const uint8_t *from = batch.source.data() + token * width;
            benchmark::DoNotOptimize(
                rp_widen_fragment(&target, dtype, from, width, kFragment, from));
        }
    count(state, batch);
}

// The bytes that are read, copied; the bytes that are written beyond those, set.
void limit_memory(benchmark::State &state)
{
    Batch batch = batch_of(state);
    const auto width = static_cast<size_t>(state.range(0));
    std::vector<uint8_t> out(batch.tokens * batch.per_token);
    const size_t bytes = kFragment * batch.per_token, copied = kFragment * width;
    for (auto _ : state)
        for (size_t token = 0; token < batch.tokens; token += kFragment) {
            uint8_t *to = out.data() + token * batch.per_token;
            std::memcpy(to, batch.source.data() + token * width, copied);
            std::memset(to + copied, 1, bytes - copied);
            benchmark::ClobberMemory();
        }
    count(state, batch);
}

// One loop for each section, as a plain program has it: u16 to i32.
void plain_loops(benchmark::State &state)
{
    Batch batch = batch_of(state);
    for (auto _ : state)
        for (size_t token = 0; token < batch.tokens; token += kFragment) {
            rp_widen_target target = batch.target(token);
            const auto *from = reinterpret_cast<const uint16_t *>(batch.source.data()) + token;
            auto *ids = static_cast<int32_t *>(target.ids);
            auto *labels = static_cast<int32_t *>(target.labels);
            auto *positions = static_cast<int32_t *>(target.positions);
            for (size_t i = 0; i < kFragment; i++)
                ids[i] = from[i];
            for (size_t i = 0; labels && i < kFragment; i++)
                labels[i] = i + 1 < kFragment ? from[i + 1] : RP_LABEL_IGNORED;
            for (size_t i = 0; positions && i < kFragment; i++)
                positions[i] = static_cast<int32_t>(i);
            for (size_t i = 0; target.segments && i < kFragment; i++)
                target.segments[i] = 1;
            for (size_t i = 0; target.mask && i < kFragment; i++)
                target.mask[i] = i + 1 < kFragment ? 1.0f : 0.0f;
            benchmark::ClobberMemory();
        }
    count(state, batch);
}

void every_kind(benchmark::internal::Benchmark *benchmark)
{
    benchmark->ArgNames({"width", "dtype", "sections", "mib"});
    for (int width : {2, 4})
        for (int dtype : {RP_DTYPE_I32, RP_DTYPE_I64})
            for (int sections = 0; sections < kSectionSets; sections++)
                for (int mib : {1, 64})
                    benchmark->Args({width, dtype, sections, mib});
}

void narrow_kinds(benchmark::internal::Benchmark *benchmark)
{
    benchmark->ArgNames({"width", "dtype", "sections", "mib"});
    for (int sections = 0; sections < kSectionSets; sections++)
        for (int mib : {1, 64})
            benchmark->Args({2, RP_DTYPE_I32, sections, mib});
}

BENCHMARK(widen)->Apply(every_kind);
BENCHMARK(limit_memory)->Apply(every_kind);
BENCHMARK(plain_loops)->Apply(narrow_kinds);

} // namespace
