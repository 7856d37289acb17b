/* SPDX-License-Identifier: Apache-2.0 */
/* memory_segment.h — shared memory that is mapped once, in both ways, and then handed out for every
 * input without a call to the kernel: the linker puts these in the place of shm/segment.c.
 *
 * As there, who reads gets pages that cannot be written; and the page after the last byte cannot be
 * read. Left out: seals, and the huge pages of long rings. */
#ifndef RP_TESTS_MEMORY_SEGMENT_H
#define RP_TESTS_MEMORY_SEGMENT_H

#include "fuzz.h"
#include "shm/layout.h"
#include "shm/segment.h"
#include "shm/wait.h"

#define SEGMENTS_MAX 6

static struct memory_segment {
    uint8_t *writable, *readable;
    size_t bytes;
    int fd; /* a file in memory, which counts its users */
} memory_segments[SEGMENTS_MAX];

FUZZ void map_segment(struct memory_segment *memory, size_t bytes)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_REQUIRE(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    memory->bytes = bytes;
    memory->writable = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memory->readable = mmap(NULL, bytes + RP_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0);
    FUZZ_REQUIRE(memory->writable != MAP_FAILED && memory->readable != MAP_FAILED);
    FUZZ_REQUIRE(mmap(memory->readable, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) ==
                 memory->readable);
    close(fd);
}

int __wrap_rp_segment_create(struct rp_segment *segment, const char *name, size_t bytes, bool huge,
                             struct rp_error *error);
int __wrap_rp_segment_create(struct rp_segment *segment, const char *name, size_t bytes, bool huge,
                             struct rp_error *error)
{
    (void)name, (void)error;
    FUZZ_REQUIRE(!huge);
    struct memory_segment *memory = memory_segments;
    bytes = rp_align_up(bytes, RP_PAGE_BYTES);
    while (memory->bytes && (memory->bytes != bytes || fuzz_opened(memory->fd) > 0))
        FUZZ_REQUIRE(++memory < memory_segments + SEGMENTS_MAX);
    if (!memory->bytes)
        map_segment(memory, bytes);
    memset(memory->writable, 0, bytes);
    char number[] = {(char)('0' + (memory - memory_segments)), 0};
    memory->fd = open(fuzz_file(number, "", 0), O_RDWR);
    *segment = (struct rp_segment){.fd = memory->fd, .data = memory->writable, .bytes = bytes};
    return 0;
}

int __wrap_rp_segment_seal_size(struct rp_segment *segment, struct rp_error *error);
int __wrap_rp_segment_seal_size(struct rp_segment *segment, struct rp_error *error)
{
    (void)segment, (void)error;
    return 0;
}

int __wrap_rp_segment_seal_readers(struct rp_segment *segment, struct rp_error *error);
int __wrap_rp_segment_seal_readers(struct rp_segment *segment, struct rp_error *error)
{
    (void)segment, (void)error;
    return 0;
}

int __wrap_rp_segment_attach(struct rp_segment *segment, int fd, bool writable, size_t bytes_min,
                             struct rp_error *error);
int __wrap_rp_segment_attach(struct rp_segment *segment, int fd, bool writable, size_t bytes_min,
                             struct rp_error *error)
{
    *segment = (struct rp_segment){.fd = -1};
    for (struct memory_segment *memory = memory_segments; memory < memory_segments + SEGMENTS_MAX;
         memory++)
        if (memory->bytes >= bytes_min && memory->fd == fd && fd >= 0)
            *segment = (struct rp_segment){.fd = fd,
                                           .data = writable ? memory->writable : memory->readable,
                                           .bytes = memory->bytes};
    if (segment->fd >= 0)
        return 0;
    if (fd >= 0)
        close(fd);
    return rp_fail(error, -RP_E_PROTOCOL, NULL, "no segment of at least %zu bytes", bytes_min);
}

void __wrap_rp_segment_close(struct rp_segment *segment);
void __wrap_rp_segment_close(struct rp_segment *segment)
{
    if (segment->fd >= 0)
        close(segment->fd);
    *segment = (struct rp_segment){.fd = -1};
}

/* No thread sleeps here. */
void __wrap_rp_futex_wake_all(const struct rp_a32 *word);
void __wrap_rp_futex_wake_all(const struct rp_a32 *word)
{
    (void)word;
}

#endif
