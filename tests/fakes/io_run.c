/* SPDX-License-Identifier: Apache-2.0 */
#include "io_run.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "io_fake.h"

enum { POISON = 0xa5, GUARD_BYTES = 64, PAGE_BYTES = 4096 };

void io_sample_make(struct io_sample *sample, uint64_t size, uint64_t seed)
{
    snprintf(sample->path, sizeof sample->path, "/tmp/ringpack-test-io-XXXXXX");
    int fd = mkostemp(sample->path, O_CLOEXEC);
    RP_ASSERT(fd >= 0);
    sample->size = size;
    sample->bytes = rp_calloc(size, 1);
    RP_ASSERT(sample->bytes);
    for (uint64_t i = 0; i < size; i++)
        sample->bytes[i] = (uint8_t)(io_fake_random(&seed) >> 56);
    RP_ASSERT(write(fd, sample->bytes, size) == (ssize_t)size && fsync(fd) == 0);
    close(fd);
    sample->fd = open(sample->path, O_RDONLY | O_CLOEXEC);
    RP_ASSERT(sample->fd >= 0);
}

void io_sample_free(struct io_sample *sample)
{
    close(sample->fd);
    unlink(sample->path);
    free(sample->bytes);
}

/* A place for one read in flight, with poison in it before it is read, and after it. */
struct place {
    uint8_t *memory;
    struct rp_io_read read;
    bool busy;
};

struct state {
    struct io_run *run;
    struct rp_io *io;
    uint64_t random;
    uint32_t place_bytes;
    struct place *places;
    unsigned started, finished, wrong;
};

static void start_read(struct state *state, uint32_t number)
{
    struct io_run *run = state->run;
    struct place *place = &state->places[number];
    uint64_t mask = run->alignment - 1, size = run->sample->size;
    uint64_t offset = (io_fake_random(&state->random) % size) & ~mask;
    uint64_t bytes = rp_align_up(1 + io_fake_random(&state->random) % run->bytes_max,
                                 run->alignment);
    uint64_t shift = run->alignment == 1 ? io_fake_random(&state->random) % PAGE_BYTES : 0;
    memset(place->memory, POISON, state->place_bytes);
    place->busy = true;
    place->read = (struct rp_io_read){
        .object = run->fd,
        .bytes = (uint32_t)bytes,
        .bytes_needed = (uint32_t)rp_min_u64(bytes, size - offset),
        .alignment = run->alignment,
        .offset = offset,
        .buffer = place->memory + shift,
        .tag = number,
    };
    rp_io_submit(state->io, &place->read, 1);
    state->started++;
}

static bool read_is_right(const struct state *state, const struct rp_io_done *done)
{
    struct place *place = &state->places[done->tag];
    const struct rp_io_read *read = &place->read;
    const uint8_t *buffer = read->buffer;
    if (!place->busy || done->result != 0 || done->bytes < read->bytes_needed ||
        done->bytes > read->bytes)
        return false;
    for (unsigned i = 0; i < GUARD_BYTES; i++)
        if (buffer[read->bytes + i] != POISON)
            return false;
    return memcmp(buffer, state->run->sample->bytes + read->offset, read->bytes_needed) == 0;
}

static void finish_reads(struct state *state)
{
    struct rp_io_done done[256];
    uint32_t in_flight = rp_io_in_flight(state->io);
    unsigned max = 1 + (unsigned)(io_fake_random(&state->random) % RP_ARRAY_COUNT(done));
    unsigned wait_min = (unsigned)(io_fake_random(&state->random) % (in_flight + 1));
    unsigned count = rp_io_wait(state->io, done, max, wait_min);
    if (count < rp_min_u64(wait_min, max) || count > max)
        state->wrong++;
    for (unsigned i = 0; i < count; i++) {
        if (!read_is_right(state, &done[i]))
            state->wrong++;
        state->places[done[i].tag].busy = false;
    }
    state->finished += count;
}

static uint32_t find_free_place(const struct state *state)
{
    uint32_t number = 0;
    while (state->places[number].busy)
        number++;
    RP_ASSERT(number < state->run->depth);
    return number;
}

unsigned io_run_reads(struct io_run *run)
{
    struct state state = {.run = run, .random = run->seed};
    state.place_bytes = (uint32_t)rp_align_up(run->bytes_max + 2 * PAGE_BYTES + GUARD_BYTES,
                                              PAGE_BYTES);
    size_t region_bytes = (size_t)state.place_bytes * run->depth;
    uint8_t *memory = rp_calloc_aligned(PAGE_BYTES, 2 * region_bytes);
    state.places = rp_calloc(run->depth, sizeof *state.places);
    RP_ASSERT(memory && state.places);
    for (uint32_t i = 0; i < run->depth; i++)
        state.places[i].memory = memory + (size_t)state.place_bytes * i +
                                 (run->in_region && i % 2 == 0 ? 0 : region_bytes);
    struct rp_io_options options = {.depth = run->depth, .may_fall_back = run->may_fall_back};
    struct rp_error error;
    int code = rp_io_open(&state.io, run->method, &options, &error);
    if (code < 0) {
        fprintf(stderr, "rp_io_open: %s\n", error.message);
        abort();
    }
    rp_io_use_region(state.io, memory, region_bytes);
    while (state.finished < run->reads) {
        while (state.started < run->reads && rp_io_room(state.io))
            start_read(&state, find_free_place(&state));
        finish_reads(&state);
    }
    rp_io_get_counts(state.io, &run->counts);
    rp_io_close(state.io);
    free(state.places);
    free(memory);
    return state.wrong;
}

int io_open(const char *path, bool direct, uint32_t *alignment_out, struct rp_error *error)
{
    const struct rp_io_place place = {.path = path, .o_direct = direct};
    struct rp_io_object object;
    int code = rp_io_open_file(&object, &place, error);
    if (code < 0)
        return code;
    *alignment_out = object.alignment;
    return object.fd;
}

struct rp_io_done io_read_once(const struct rp_io_method *method, const struct rp_io_read *read,
                               struct rp_io_counts *counts)
{
    struct rp_io_options options = {.depth = 4};
    struct rp_io_done done;
    struct rp_io *io;
    int code = rp_io_open(&io, method, &options, NULL);
    RP_ASSERT(code == 0);
    rp_io_submit(io, read, 1);
    unsigned count = rp_io_wait(io, &done, 1, 1);
    RP_ASSERT(count == 1 && rp_io_in_flight(io) == 0);
    if (counts)
        rp_io_get_counts(io, counts);
    rp_io_close(io);
    return done;
}
