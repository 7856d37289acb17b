// SPDX-License-Identifier: Apache-2.0 bench_checkpoint — the cost of a save, against writing and
// syncing the same bytes with no other care: through the page cache, past it, and past it and read
// back, as every save is. It writes below TMPDIR (or /var/tmp): set that to the disk in question.
// All run in turn in one process; compare the ratio, not the times.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

// A C header may give a struct and a function one name; g++ calls that shadowing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
}
#pragma GCC diagnostic pop

namespace
{

std::string make_directory()
{
    const char *parent = getenv("TMPDIR");
    std::string path = std::string(parent ? parent : "/var/tmp") + "/ringpack-bench-XXXXXX";
    return mkdtemp(path.data()) ? path : std::string();
}

void remove_directory(const std::string &path)
{
    if (system(("rm -rf '" + path + "'").c_str()) != 0)
        perror(path.c_str());
}

// As the engine keeps them.
template <typename type> struct page_allocator {
    using value_type = type;
    type *allocate(size_t n)
    {
        return static_cast<type *>(rp_take_pages(n * sizeof(type)));
    }
    void deallocate(type *memory, size_t n)
    {
        rp_give_pages(memory, n * sizeof(type));
    }
    bool operator==(const page_allocator &) const
    {
        return true;
    }
};
using pages = std::vector<char, page_allocator<char>>;

pages contents_of(size_t bytes)
{
    pages contents(bytes);
    rp_content_record record = {0, 0, uint32_t((bytes - sizeof record) / 4), 4, 0};
    memset(contents.data(), 0x5a, bytes);
    memcpy(contents.data(), &record, sizeof record);
    return contents;
}

// A full checkpoint of range(0) bytes of contents: write, fsync, read back, rename, fsync of the
// directory. Removing the one that is too many is not timed, here and below.
void save(benchmark::State &state)
{
    std::string path = make_directory();
    pages contents = contents_of(size_t(state.range(0)));
    char token[4096] = "state";
    rp_checkpoint_piece pieces[] = {{token, sizeof token}, {contents.data(), contents.size()}};
    rp_checkpoint_part parts[] = {{RP_CHECKPOINT_STATE, &pieces[0], 1, nullptr},
                                  {RP_CHECKPOINT_CONTENTS, &pieces[1], 1, nullptr}};
    struct rp_checkpoint_info info = {};
    info.contents_end_row = 1;
    rp_checkpoint_dir *dir;
    rp_error error;
    const rp_checkpoint_place place = {path.c_str(), nullptr, 2, true, nullptr, 0};
    if (rp_checkpoint_dir_begin(&dir, &place, &error) < 0) {
        state.SkipWithError(error.message);
        return;
    }
    for (auto _ : state) {
        if (rp_checkpoint_save(dir, &info, parts, 2, nullptr, &error) < 0) {
            state.SkipWithError(error.message);
            break;
        }
        state.PauseTiming();
        rp_checkpoint_prune(dir);
        state.ResumeTiming();
    }
    rp_checkpoint_dir_close(dir);
    remove_directory(path);
    state.SetBytesProcessed(int64_t(state.iterations()) * state.range(0));
}

enum plain { through_page_cache, past_page_cache, and_read_back };

bool put_plainly(const char *file, const pages &contents, pages &found, enum plain how)
{
    size_t done = 0, size = contents.size();
    int direct = how == through_page_cache ? 0 : O_DIRECT;
    int fd = open(file, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | direct, 0600);
    if (fd < 0 || (direct && fallocate(fd, 0, 0, off_t(size)) < 0))
        return false;
    for (ssize_t put; done < size && (put = write(fd, contents.data() + done, size - done)) > 0;)
        done += size_t(put);
    bool good = done == size && fsync(fd) == 0;
    if (how == and_read_back)
        good = good && pread(fd, found.data(), size, 0) == ssize_t(size);
    return close(fd) == 0 && good;
}

// The least that any program pays.
void plain(benchmark::State &state, enum plain how)
{
    std::string path = make_directory(), file = path + "/plain";
    pages contents = contents_of(size_t(state.range(0))), found = contents;
    for (auto _ : state) {
        if (!put_plainly(file.c_str(), contents, found, how)) {
            state.SkipWithError("the plain write failed");
            break;
        }
        state.PauseTiming();
        unlink(file.c_str());
        state.ResumeTiming();
    }
    remove_directory(path);
    state.SetBytesProcessed(int64_t(state.iterations()) * state.range(0));
}

void plain_write_and_fsync(benchmark::State &state)
{
    plain(state, through_page_cache);
}

void direct_write_and_fsync(benchmark::State &state)
{
    plain(state, past_page_cache);
}

void direct_write_fsync_and_read(benchmark::State &state)
{
    plain(state, and_read_back);
}

// The cost of a resume: read and verify.
void open_and_verify(benchmark::State &state)
{
    std::string path = make_directory();
    pages contents = contents_of(size_t(state.range(0)));
    char token[4096] = "state", *file = nullptr;
    rp_checkpoint_piece pieces[] = {{token, sizeof token}, {contents.data(), contents.size()}};
    rp_checkpoint_part parts[] = {{RP_CHECKPOINT_STATE, &pieces[0], 1, nullptr},
                                  {RP_CHECKPOINT_CONTENTS, &pieces[1], 1, nullptr}};
    struct rp_checkpoint_info info = {};
    info.contents_end_row = 1;
    rp_checkpoint_dir *dir;
    rp_error error;
    const rp_checkpoint_place place = {path.c_str(), nullptr, 2, true, nullptr, 0};
    if (rp_checkpoint_dir_begin(&dir, &place, &error) < 0 ||
        rp_checkpoint_save(dir, &info, parts, 2, &file, &error) < 0) {
        state.SkipWithError(error.message);
        return;
    }
    for (auto _ : state) {
        rp_checkpoint *checkpoint;
        if (rp_checkpoint_open(&checkpoint, file, &error) < 0) {
            state.SkipWithError(error.message);
            break;
        }
        rp_checkpoint_close(checkpoint);
    }
    free(file);
    rp_checkpoint_dir_close(dir);
    remove_directory(path);
    state.SetBytesProcessed(int64_t(state.iterations()) * state.range(0));
}

void sizes(benchmark::internal::Benchmark *bench)
{
    for (int64_t mib : {1, 64, 256})
        bench->Arg(mib << 20);
    bench->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK(save)->Apply(sizes);
BENCHMARK(plain_write_and_fsync)->Apply(sizes);
BENCHMARK(direct_write_and_fsync)->Apply(sizes);
BENCHMARK(direct_write_fsync_and_read)->Apply(sizes);
BENCHMARK(open_and_verify)->Apply(sizes);

} // namespace
