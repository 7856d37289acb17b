// SPDX-License-Identifier: Apache-2.0
//
// bench_stream_plan — the cost of deciding the fragments of a row, in both versions of the stream.
// Items are documents, so 1 / items_per_second is the time of a document: permutation, mixing and
// packing together. No token is read anywhere. version_1 and version_2 have all features off;
// feature has one of version 2 on, with 8 sources and `lookahead`; selected shows numbers of
// documents, and selections that pass over most of them. token writes a state token; resume starts
// from one, whose bytes it shows; resume_in_window likewise, inside of a deal window, whose
// planning is the time of window. spread shows the share of the largest document in a step of 32
// rows (mean and greatest over 500 steps) and the padding.
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
#include <unordered_map>
#include <vector>

// A C header may give a struct and a function one name; g++ calls that shadowing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "plan/plan.h"
#include "plan/v2/planner_token.h"
}
#pragma GCC diagnostic pop

namespace
{

enum : uint32_t { SEQ_LEN = 2048, WINDOW = 64, ROWS = 256, DEALT_STEP = 64 };

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

// Two comparisons with a column, as a compiled expression makes them: 9 of 10 documents are taken.
int counts_of(const void *lengths, const uint64_t *documents, uint32_t count, uint8_t *counts,
              rp_error *)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t length = length_of(lengths, documents[i]);
        counts[i] = static_cast<uint8_t>((length >= 50) & (length < 2600));
    }
    return 0;
}

int prints_of(const void *, uint64_t documents, rp_source_prints *prints, rp_error *)
{
    *prints = {documents, documents, 0};
    return 0;
}

// A stream of version 2 whose sources share the corpus.
struct stream {
    std::vector<std::string> names;
    std::vector<rp_stream_source> sources;
    std::vector<uint32_t> weights;
    rp_stage_spec stage{};
    std::vector<rp_stage_spec> stages;
    std::vector<std::vector<uint32_t>> changes; // weights of later stages
    std::vector<rp_limits_change> limits;
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
            source.view.prints = prints_of;
            sources.push_back(source);
        }
        stage.sets = RP_SETS_WEIGHTS | RP_SETS_SEQ_LEN | RP_SETS_ALIGN | RP_SETS_PACKING |
                     RP_SETS_WINDOW | RP_SETS_ROW_GAP | RP_SETS_SPREAD | RP_SETS_MAX_DOCS |
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

    // A stage each 10,000 rows, with other weights that it reaches by a ramp over half of them.
    void add_stages(uint32_t count)
    {
        changes.resize(count);
        stages.assign(1, stage);
        for (uint32_t number = 0; number < count; number++) {
            changes[number] = weights;
            std::rotate(changes[number].begin(),
                        changes[number].begin() + 1 + number % (weights.size() - 1),
                        changes[number].end());
            rp_stage_spec later{};
            later.from = 10000u * (number + 1);
            later.sets = RP_SETS_WEIGHTS;
            later.weights = changes[number].data();
            later.ramp = 5000;
            stages.push_back(later);
        }
        spec.stages = stages.data();
        spec.stage_count = count + 1;
    }
};

// A plan of version 2 that is closed with its scope.
struct opened {
    rp_calendar *calendar = nullptr;
    rp_planner *plan = nullptr;
    rp_stream_row row;
    rp_error error;

    explicit opened(const stream &inputs)
    {
        rp_calendar_position position{};
        if (rp_calendar_open(&calendar, &inputs.spec, &position, &error) < 0 ||
            rp_planner_open(&plan, calendar, &error) < 0)
            stop(error);
    }
    opened(const opened &) = delete;
    opened &operator=(const opened &) = delete;
    ~opened()
    {
        rp_planner_close(plan);
        rp_calendar_close(calendar);
    }
    void next(int64_t rows)
    {
        for (int64_t i = 0; i < rows; i++)
            if (rp_planner_next(plan, &row, &error) <= 0)
                stop(error);
    }
    // Its state token, into a buffer of the bound's size. Returns the token's size.
    size_t write(std::vector<uint8_t> &token)
    {
        size_t bytes = 0;
        if (rp_planner_token_write(plan, token.data(), &bytes, &error) < 0)
            stop(error);
        return bytes;
    }
    std::vector<uint8_t> room() const
    {
        return std::vector<uint8_t>(rp_planner_token_bytes_max(calendar));
    }
};

void plan_rows(benchmark::State &state, stream &inputs)
{
    opened own(inputs);
    for (auto _ : state)
        own.next(ROWS);
    rp_snapshot snapshot{};
    if (rp_planner_snapshot(own.plan, &snapshot, &own.error) < 0)
        stop(own.error);
    state.SetItemsProcessed(
        static_cast<int64_t>(snapshot.counts.documents + snapshot.counts.passed_over));
    rp_snapshot_free(&snapshot);
}

void version_2(benchmark::State &state)
{
    stream inputs(static_cast<rp_packing>(state.range(0)), static_cast<uint32_t>(state.range(1)));
    plan_rows(state, inputs);
    state.SetLabel(rp_packing_name(inputs.stage.packing));
}

enum feature { STAGES, LIMITS, SELECTION, ALIGN, GROUP, DEAL, STAGES_LIMITS_SELECTION, FEATURES };

void feature(benchmark::State &state)
{
    static const char *const names[FEATURES] = {
        "stages", "limits", "selection", "align", "group", "deal", "stages, limits, selection"};
    auto which = static_cast<enum feature>(state.range(0));
    bool all = which == STAGES_LIMITS_SELECTION;
    stream inputs(RP_PACKING_LOOKAHEAD, 8);
    for (rp_stream_source &source : inputs.sources) {
        if (which == SELECTION || all)
            source.view.counts = counts_of;
        if (which == LIMITS || all)
            source.limits = {uint64_t{1} << 60, 1u << 30, RP_EXHAUSTED_STOP};
        if (which == GROUP)
            source.too_long = RP_TOO_LONG_DROP;
    }
    if (which == ALIGN)
        inputs.stage.align = 16;
    if (which == GROUP)
        inputs.spec.fixed.group = 2;
    if (which == DEAL)
        inputs.stage.deal = {256, 32, 8, 1, RP_DEAL_DESCENDING, {4096, 0, 0, 1}};
    if (which == STAGES || all)
        inputs.add_stages(500);
    plan_rows(state, inputs);
    state.SetLabel(names[which]);
}

// Takes so many of 10 documents, at random, without a column.
template <uint32_t TAKEN>
int counts_at_random(const void *, const uint64_t *documents, uint32_t count, uint8_t *counts,
                     rp_error *)
{
    for (uint32_t i = 0; i < count; i++)
        counts[i] = (static_cast<uint32_t>(documents[i]) * 2654435761u >> 16) % 10 < TAKEN;
    return 0;
}

// One source of so many documents. The order is computed over the next power of two, so a number
// right above one costs the most.
void selected(benchmark::State &state)
{
    stream inputs(RP_PACKING_LOOKAHEAD, 1);
    inputs.sources[0].documents = static_cast<uint64_t>(state.range(0));
    if (state.range(1) < 10)
        inputs.sources[0].view.counts = state.range(1) == 1 ? counts_at_random<1>
                                                            : counts_at_random<5>;
    plan_rows(state, inputs);
}

// The plan at a row, from the state token there. The token's bound does not depend on the row.
void resume_at(benchmark::State &state, stream &inputs, int64_t begin)
{
    opened own(inputs);
    own.next(begin);
    std::vector<uint8_t> token = own.room();
    size_t bytes = own.write(token);
    const rp_stream_resume nothing{};
    rp_calendar *calendar = nullptr;
    rp_planner *plan = nullptr;
    for (auto _ : state) {
        if (rp_planner_token_resume(&calendar, &plan, &inputs.spec, token.data(), bytes, &nothing,
                                    &own.error) < 0 ||
            rp_planner_next(plan, &own.row, &own.error) <= 0)
            stop(own.error);
        rp_planner_close(plan);
        rp_calendar_close(calendar);
    }
    state.counters["token_bytes"] = static_cast<double>(bytes);
    state.counters["bound_bytes"] = static_cast<double>(token.size());
}

void resume(benchmark::State &state)
{
    stream inputs(RP_PACKING_LOOKAHEAD, static_cast<uint32_t>(state.range(1)));
    resume_at(state, inputs, state.range(0));
}

// The state token that every batch has: after 8 rows, whose time is not counted.
void token(benchmark::State &state)
{
    stream inputs(RP_PACKING_LOOKAHEAD, static_cast<uint32_t>(state.range(0)));
    opened own(inputs);
    std::vector<uint8_t> written = own.room();
    size_t bytes = 0;
    for (auto _ : state) {
        state.PauseTiming();
        own.next(8);
        state.ResumeTiming();
        bytes = own.write(written);
    }
    state.counters["token_bytes"] = static_cast<double>(bytes);
}

// Rows of a deal window of so many steps, without a deal with 0.
void deal(stream &inputs, int64_t steps)
{
    if (steps > 0)
        inputs.stage.deal = {DEALT_STEP * static_cast<uint32_t>(steps),
                             DEALT_STEP,
                             DEALT_STEP / 8,
                             1,
                             RP_DEAL_MIDDLE,
                             {4096, 0, 0, 1}};
}

// A start in the eleventh window, so many sixteenths of its rows after its beginning, up to the
// first row. It plans the window again.
void resume_in_window(benchmark::State &state)
{
    stream inputs(RP_PACKING_LOOKAHEAD, 8);
    int64_t rows = DEALT_STEP * state.range(0);
    deal(inputs, state.range(0));
    resume_at(state, inputs, 10 * rows + rows * state.range(1) / 16);
}

// The planning of a whole window in a plan that goes on.
void window(benchmark::State &state)
{
    stream inputs(RP_PACKING_LOOKAHEAD, 8);
    deal(inputs, state.range(0));
    opened own(inputs);
    for (auto _ : state)
        own.next(DEALT_STEP * state.range(0));
}

// Shares of documents in the rows of a step.
struct shares {
    enum : uint32_t { STEP = 32, STEPS = 500, ROW = 8192 };
    std::unordered_map<uint64_t, uint64_t> of_step; // document: tokens
    double mean = 0, greatest = 0, tokens = 0;

    void add(const rp_fragment *fragments, uint32_t count, uint64_t row)
    {
        for (uint32_t i = 0; i < count; i++) {
            of_step[fragments[i].document] += fragments[i].length;
            tokens += fragments[i].length;
        }
        if ((row + 1) % STEP)
            return;
        uint64_t largest = 0, all = 0;
        for (const auto &document : of_step) {
            largest = std::max(largest, document.second);
            all += document.second;
        }
        double share = static_cast<double>(largest) / static_cast<double>(all);
        mean += share / double{STEPS};
        greatest = std::max(greatest, share);
        of_step.clear();
    }
};

// Books: median 90,000, sigma 0.8. Code: median 1200, sigma 1.6. At most 2 M tokens.
const std::vector<uint32_t> &long_corpus(bool is_code)
{
    static std::vector<uint32_t> both[2];
    std::vector<uint32_t> &lengths = both[is_code];
    std::mt19937_64 bits(2);
    std::lognormal_distribution<double> draw(std::log(is_code ? 1200.0 : 90000.0),
                                             is_code ? 1.6 : 0.8);
    while (lengths.size() < 200000)
        lengths.push_back(static_cast<uint32_t>(std::min(2000000.0, std::max(1.0, draw(bits)))));
    return lengths;
}

void spread_version_1(const std::vector<uint32_t> &lengths, shares &found)
{
    rp_plan_config config{};
    config.seed = 1;
    config.seq_len = shares::ROW;
    config.shuffle = RP_SHUFFLE_DOCUMENT;
    config.packing = RP_PACKING_LOOKAHEAD;
    config.window = WINDOW;
    config.max_docs_per_row = shares::ROW / 16;
    config.lanes = 1;
    rp_plan_source source{lengths.size(), 1, lengths.data(), length_of, lengths_of, nullptr};
    rp_plan *plan = nullptr;
    rp_error error;
    rp_row row;
    if (rp_plan_open(&plan, &config, &source, 1, &error) < 0)
        stop(error);
    for (uint32_t i = 0; i < shares::STEP * shares::STEPS; i++) {
        if (rp_plan_next(plan, &row, &error) <= 0)
            stop(error);
        found.add(row.fragments, row.count, row.row);
    }
    rp_plan_close(plan);
}

void spread_version_2(const std::vector<uint32_t> &lengths, uint32_t entries, shares &found)
{
    stream inputs(RP_PACKING_LOOKAHEAD, 1);
    inputs.sources[0].documents = lengths.size();
    inputs.sources[0].view.context = lengths.data();
    inputs.stage.seq_len = shares::ROW;
    inputs.stage.max_docs_per_row = shares::ROW / 16;
    inputs.stage.spread = entries;
    opened own(inputs);
    for (uint32_t i = 0; i < shares::STEP * shares::STEPS; i++) {
        own.next(1);
        found.add(own.row.fragments, own.row.count, own.row.row);
    }
}

void spread(benchmark::State &state)
{
    const std::vector<uint32_t> &lengths = long_corpus(state.range(0) == 1);
    uint32_t entries = static_cast<uint32_t>(state.range(1)); // 0: version 1
    shares found;
    for (auto _ : state) {
        found = shares();
        if (entries == 0)
            spread_version_1(lengths, found);
        else
            spread_version_2(lengths, entries, found);
    }
    double places = double{shares::STEP} * double{shares::STEPS} * double{shares::ROW};
    state.counters["largest_percent"] = 100 * found.mean;
    state.counters["worst_percent"] = 100 * found.greatest;
    state.counters["padding_percent"] = 100 * (1 - found.tokens / places);
    state.SetLabel(state.range(0) == 1 ? "code" : "books");
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
BENCHMARK(feature)->ArgName("feature")->DenseRange(0, FEATURES - 1);
BENCHMARK(selected)
    ->ArgNames({"documents", "taken_of_10"})
    ->ArgsProduct({{2107637, 2936012, 4194304}, {1, 5, 10}});
BENCHMARK(token)->ArgName("sources")->Arg(1)->Arg(8)->Arg(64)->Iterations(20000);
BENCHMARK(resume)->ArgNames({"row", "sources"})->ArgsProduct({{100, 10000, 1000000}, {1, 8, 64}});
BENCHMARK(resume_in_window)
    ->ArgNames({"steps", "sixteenths"})
    ->ArgsProduct({{1, 8, 16}, {0, 1, 8, 15}});
BENCHMARK(window)->ArgName("steps")->Arg(1)->Arg(8)->Arg(16);
BENCHMARK(spread)->ArgNames({"code", "spread"})->ArgsProduct({{0, 1}, {0, 1, 16, 64}});

} // namespace
