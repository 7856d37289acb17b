// SPDX-License-Identifier: Apache-2.0 bench_io — reads of a file that the page cache holds, by both
// methods, against a plain pread loop.
//
// One iteration is one read at a random place, so the column CPU is processor time for each read,
// of all threads. The file is larger than a processor's cache and small enough to stay in memory.
// Cold reads depend on the disk more than on us: compare those with fio.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <vector>

extern "C" {
#include "io/io.h"
}

namespace
{

constexpr uint64_t kFileBytes = 128u << 20;
constexpr uint32_t kDepth = 64;
constexpr unsigned kWaitMin = 16; // one call for many completions, as the readers do

int open_hot_file()
{
    char path[] = "/tmp/ringpack-bench-io-XXXXXX";
    int fd = mkstemp(path);
    std::vector<uint64_t> block(1u << 17);
    for (uint64_t done = 0; fd >= 0 && done < kFileBytes; done += block.size() * 8) {
        for (size_t i = 0; i < block.size(); i++)
            block[i] = (done + i) * 0x9e3779b97f4a7c15u;
        if (write(fd, block.data(), block.size() * 8) < 0)
            throw std::runtime_error("cannot write a file of 128 MiB in /tmp");
    }
    if (fd < 0 || unlink(path) < 0)
        throw std::runtime_error("cannot make a file in /tmp");
    return fd;
}

int hot_file()
{
    static const int fd = open_hot_file();
    return fd;
}

uint64_t random_offset(uint64_t &state, uint64_t bytes)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % (kFileBytes / bytes) * bytes;
}

// Slots of one read each, on huge pages where there are any.
struct Slots {
    explicit Slots(uint64_t slot_bytes) : bytes(slot_bytes * kDepth)
    {
        void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0);
        if (mapped == MAP_FAILED)
            throw std::runtime_error("no memory for the slots");
        data = static_cast<uint8_t *>(mapped);
        madvise(data, bytes, MADV_HUGEPAGE);
        for (uint64_t at = 0; at < bytes; at += 4096)
            data[at] = 1;
    }
    ~Slots()
    {
        munmap(data, bytes);
    }
    Slots(const Slots &) = delete;
    Slots &operator=(const Slots &) = delete;
    uint8_t *data;
    uint64_t bytes;
};

void plain_pread(benchmark::State &state)
{
    const auto bytes = static_cast<uint64_t>(state.range(0));
    const int fd = hot_file();
    Slots slots(bytes);
    uint64_t random = 1, slot = 0;
    for (auto _ : state)
        if (pread(fd, slots.data + bytes * (slot++ % kDepth), bytes,
                  static_cast<off_t>(random_offset(random, bytes))) < 0)
            state.SkipWithError("pread failed");
    state.SetBytesProcessed(state.iterations() * state.range(0));
}

void through(benchmark::State &state, const rp_io_method *method)
{
    const auto bytes = static_cast<uint64_t>(state.range(0));
    const int fd = hot_file();
    Slots slots(bytes);
    rp_io_options options = {};
    options.depth = kDepth;
    rp_error error;
    rp_io *io;
    if (rp_io_open(&io, method, &options, &error) < 0) {
        state.SkipWithError(error.message);
        return;
    }
    rp_io_use_region(io, slots.data, slots.bytes);
    char text[128];
    rp_io_describe(io, text, sizeof text);
    state.SetLabel(text);

    std::vector<uint64_t> free_slots;
    for (uint64_t slot = 0; slot < kDepth; slot++)
        free_slots.push_back(slot);
    rp_io_done done[kDepth];
    uint64_t random = 1;
    for (auto _ : state) {
        const uint64_t slot = free_slots.back();
        free_slots.pop_back();
        rp_io_read read = {};
        read.object = fd;
        read.bytes = read.bytes_needed = static_cast<uint32_t>(bytes);
        read.alignment = 1;
        read.offset = random_offset(random, bytes);
        read.buffer = slots.data + slot * bytes;
        read.tag = slot;
        rp_io_submit(io, &read, 1);
        if (rp_io_room(io) > 0)
            continue;
        const unsigned count = rp_io_wait(io, done, kDepth, kWaitMin);
        for (unsigned i = 0; i < count; i++) {
            if (done[i].result < 0)
                state.SkipWithError("a read failed");
            free_slots.push_back(done[i].tag);
        }
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
    rp_io_close(io);
}

void io_uring(benchmark::State &state)
{
    through(state, &rp_io_method_uring);
}
void pread_pool(benchmark::State &state)
{
    through(state, &rp_io_method_pread);
}

// From one page, whose cost is the call, to one large run, whose cost is the copy.
void sizes(benchmark::internal::Benchmark *bench)
{
    bench->Arg(4096)->Arg(65536)->Arg(262144)->Arg(1048576)->MeasureProcessCPUTime()->UseRealTime();
}
BENCHMARK(plain_pread)->Apply(sizes);
BENCHMARK(io_uring)->Apply(sizes);
BENCHMARK(pread_pool)->Apply(sizes);

} // namespace
