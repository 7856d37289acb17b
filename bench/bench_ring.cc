// SPDX-License-Identifier: Apache-2.0 bench_ring — the cost of a hand-over: ringpack's batch ring
// against a bare ring of the same slots without checks and sleeps, between threads and between
// processes.
//
// HandOver: items are batches, the engine's end is measured while the other end drains. Bytes are
// payload that one side writes and the other sums. RoundTrip: a batch there and a batch back, so
// half of its time is one hand-over. Two CPUs must be free, or the numbers are the scheduler's.
#include <benchmark/benchmark.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

// A C header may give a struct and a function one name; g++ calls that shadowing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "shm/ring.h"
}
#pragma GCC diagnostic pop

namespace
{

constexpr uint32_t slots = 8;
constexpr uint64_t generation = 1;

[[noreturn]] void die(const char *what)
{
    std::fprintf(stderr, "bench_ring: %s\n", what);
    std::exit(2);
}

// The other end of a bench: a thread or a forked process that runs `body`.
class Peer
{
  public:
    Peer(bool process, const std::function<void()> &body)
    {
        if (!process) {
            thread = std::thread(body);
            return;
        }
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            body();
            _exit(0);
        }
    }
    ~Peer()
    {
        if (pid > 0)
            waitpid(pid, nullptr, 0);
        else
            thread.join();
    }

  private:
    std::thread thread;
    pid_t pid = -1;
};

// ---- a bare ring --------------------------------------------------------------------------

struct BareWords {
    alignas(128) std::atomic<uint64_t> tail;
    alignas(128) std::atomic<uint64_t> release;
    alignas(128) std::atomic<bool> ended;
};

class BareRing
{
  public:
    explicit BareRing(uint64_t bytes) : slot_bytes(bytes)
    {
        void *memory = mmap(nullptr, sizeof(BareWords) + slots * bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory == MAP_FAILED)
            die("mmap");
        words = new (memory) BareWords{};
        data = static_cast<uint8_t *>(memory) + sizeof(BareWords);
    }
    ~BareRing()
    {
        munmap(words, sizeof(BareWords) + slots * slot_bytes);
    }
    uint8_t *reserve()
    {
        while (sent - words->release.load(std::memory_order_acquire) == slots) {
        }
        return data + sent % slots * slot_bytes;
    }
    void publish()
    {
        words->tail.store(++sent, std::memory_order_release);
    }
    void end()
    {
        words->ended.store(true, std::memory_order_release);
    }

    void attach()
    {
    } // from here on: by the other end
    const uint8_t *take()
    {
        while (words->tail.load(std::memory_order_acquire) == taken)
            if (words->ended.load(std::memory_order_acquire) &&
                words->tail.load(std::memory_order_acquire) == taken)
                return nullptr;
        return data + taken % slots * slot_bytes;
    }
    void give_back()
    {
        words->release.store(++taken, std::memory_order_release);
    }
    void detach()
    {
    }

  private:
    BareWords *words;
    uint8_t *data;
    uint64_t slot_bytes, sent = 0, taken = 0;
};

// ---- ringpack's ring ------------------------------------------------------------------------

struct rp_geometry geometry_of(uint64_t bytes)
{
    struct rp_geometry geometry {
    };
    geometry.rows = geometry.max_docs_per_row = geometry.world = geometry.micro_batches = 1;
    geometry.seq_len = static_cast<uint32_t>(bytes / sizeof(int32_t));
    geometry.slots = slots;
    if (rp_geometry_layout(&geometry, 0, RP_DTYPE_I32) == 0)
        die("rp_geometry_layout");
    return geometry;
}

class BatchRing
{
  public:
    explicit BatchRing(uint64_t bytes)
    {
        struct rp_geometry geometry = geometry_of(bytes);
        struct rp_hash128 identity {
        };
        if (rp_ring_create(&ring, &geometry, 1, {identity, generation}, 0, nullptr) != 0 ||
            rp_ring_attach_trainer(&ring, 0, 0, nullptr) != 0)
            die("rp_ring_create");
    }
    ~BatchRing();
    uint8_t *reserve();
    void publish();
    void end();

    void attach(); // from here on: by the other end
    const uint8_t *take();
    void give_back();
    void detach();

  private:
    struct rp_ring ring {
    };
    struct rp_ring_view view {
    };
};

BatchRing::~BatchRing()
{
    rp_ring_close(&ring);
}

uint8_t *BatchRing::reserve()
{
    while (ring.tail - ring.release == slots)
        if (rp_ring_poll_release(&ring) < 0)
            die("quarantined");
    uint8_t *slot = rp_ring_slot(&ring, ring.tail);
    struct rp_slot_header header {
    };
    header.batch = header.first_row = ring.tail;
    header.next_row = ring.tail + 1;
    header.generation = generation;
    header.state_offset = RP_SLOT_STATE_OFFSET;
    std::memcpy(slot, &header, sizeof header);
    return slot + ring.geometry.sections[RP_SECTION_INPUT_IDS].offset;
}

void BatchRing::publish()
{
    rp_ring_publish(&ring, ring.tail + 1);
}

void BatchRing::end()
{
    rp_ring_set_status(&ring, RP_RING_END, ring.tail, nullptr);
}

void BatchRing::attach()
{
    if (rp_ring_view_open(&view, dup(ring.data.fd), dup(ring.seats[0].control.fd), 0, nullptr) != 0)
        die("rp_ring_view_open");
}

const uint8_t *BatchRing::take()
{
    const uint8_t *slot;
    struct rp_slot_header header;
    for (;;) {
        int code = rp_ring_view_take(&view, &slot, &header, nullptr);
        if (code == RP_RING_TAKEN)
            return slot + view.geometry.sections[RP_SECTION_INPUT_IDS].offset;
        if (code != RP_RING_EMPTY)
            return nullptr;
        rp_ring_view_wait(&view, 100000000u);
    }
}

void BatchRing::give_back()
{
    rp_ring_view_release(&view, view.next);
}

void BatchRing::detach()
{
    rp_ring_view_close(&view);
}

uint64_t sum_of(const uint8_t *bytes, uint64_t count)
{
    uint64_t sum = 0, word;
    for (uint64_t i = 0; i < count; i += sizeof word) {
        std::memcpy(&word, bytes + i, sizeof word);
        sum += word;
    }
    return sum;
}

// Arguments: 0 threads, 1 processes; bytes of a slot.
template <class Ring> void HandOver(benchmark::State &state)
{
    auto bytes = static_cast<uint64_t>(state.range(1));
    Ring ring(bytes);
    std::vector<uint8_t> source(bytes, 3);
    {
        Peer peer(state.range(0) == 1, [&] {
            ring.attach();
            while (const uint8_t *slot = ring.take()) {
                benchmark::DoNotOptimize(sum_of(slot, bytes));
                ring.give_back();
            }
            ring.detach();
        });
        for (auto _ : state) {
            std::memcpy(ring.reserve(), source.data(), bytes);
            ring.publish();
        }
        ring.end();
    }
    state.SetItemsProcessed(state.iterations());
    state.SetBytesProcessed(state.iterations() * state.range(1));
}

template <class Ring> void RoundTrip(benchmark::State &state)
{
    constexpr uint64_t bytes = 64;
    Ring there(bytes), back(bytes);
    {
        Peer peer(state.range(0) == 1, [&] {
            there.attach();
            while (there.take()) {
                there.give_back();
                back.reserve();
                back.publish();
            }
            back.end();
            there.detach();
        });
        back.attach();
        for (auto _ : state) {
            there.reserve();
            there.publish();
            back.take();
            back.give_back();
        }
        there.end();
        back.detach();
    }
    state.SetItemsProcessed(state.iterations());
}

void hand_over_arguments(benchmark::internal::Benchmark *bench)
{
    for (int process : {0, 1})
        for (int bytes : {64, 16 << 10, 256 << 10, 2 << 20})
            bench->Args({process, bytes});
    bench->ArgNames({"process", "bytes"})->UseRealTime();
}

} // namespace

BENCHMARK_TEMPLATE(HandOver, BareRing)->Apply(hand_over_arguments);
BENCHMARK_TEMPLATE(HandOver, BatchRing)->Apply(hand_over_arguments);
BENCHMARK_TEMPLATE(RoundTrip, BareRing)->Arg(0)->Arg(1)->ArgName("process")->UseRealTime();
BENCHMARK_TEMPLATE(RoundTrip, BatchRing)->Arg(0)->Arg(1)->ArgName("process")->UseRealTime();
