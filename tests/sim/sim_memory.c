/* SPDX-License-Identifier: Apache-2.0 */
/* sim_memory.c — the heap of all simulated processes. All memory is freed at the end of a seed,
 * also allocations of killed processes.
 *
 * Memory is filled with junk when it is allocated and when it is freed, so that wrong reads are
 * noticed. */
#include "sim_wrap.h"

#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include "sim_files.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#define REGION_BYTES (1ull << 32)
#define CLASS_FIRST 5u /* the smallest blocks have 2^5 bytes */
#define CLASSES 32u
#define JUNK_BYTES_MAX 512u
#define HUGE_PAGE_BYTES (2u << 20)

struct head {                            /* before every allocation */
    _Alignas(16) const void *allocation; /* marks an allocation among other addresses */
    uint64_t bytes;
    uint32_t class;
    uint32_t back; /* bytes from the start of its block to the allocation */
};

struct spare {
    struct spare *next;
};

static uint8_t *region;
static uint64_t used;
static struct spare *spares[CLASSES];

void *sim_take(size_t bytes, size_t alignment)
{
    size_t wanted = bytes + sizeof(struct head) + (alignment > 16 ? alignment : 0);
    uint32_t class = CLASS_FIRST;
    while ((1ull << class) < wanted)
        class ++;
    if (!region)
        region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *block = (uint8_t *)spares[class];
    if (block) {
        spares[class] = spares[class]->next;
    } else {
        if (used + (1ull << class) > REGION_BYTES)
            return NULL;
        block = region + used;
        used += 1ull << class;
    }
    uintptr_t start = (uintptr_t)block + sizeof(struct head);
    if (alignment > 16)
        start = (start + alignment - 1) & ~(uintptr_t)(alignment - 1);
    struct head *head = (struct head *)start - 1;
    *head = (struct head){(void *)start, bytes, class, (uint32_t)(start - (uintptr_t)block)};
    return (void *)start;
}

static void junk(void *memory, uint64_t bytes, int value)
{
    memset(memory, value, bytes < JUNK_BYTES_MAX ? bytes : JUNK_BYTES_MAX);
}

void sim_give(void *memory)
{
    struct head *head = (struct head *)memory - 1, was = *head;
    head->allocation = NULL;
    junk(memory, was.bytes, 0xde);
    struct spare *spare = (struct spare *)(void *)((uint8_t *)memory - was.back);
    spare->next = spares[was.class];
    spares[was.class] = spare;
}

bool sim_owns(const void *memory)
{
    const uint8_t *at = memory;
    return region && at >= region && at < region + REGION_BYTES;
}

void sim_memory_reset(void)
{
    used = 0;
    memset(spares, 0, sizeof spares);
}

/* ---- the heap -------------------------------------------------------------------------------- */

WRAP(void *, malloc, size_t bytes)
{
    if (!sim.current)
        return __real_malloc(bytes);
    void *memory = sim_take(bytes, 16);
    if (memory)
        junk(memory, bytes, 0xa5);
    return memory;
}

WRAP(void *, calloc, size_t count, size_t bytes)
{
    if (!sim.current)
        return __real_calloc(count, bytes);
    size_t total;
    void *memory = __builtin_mul_overflow(count, bytes, &total) ? NULL : sim_take(total, 16);
    return memory ? memset(memory, 0, total) : NULL;
}

WRAP(void *, aligned_alloc, size_t alignment, size_t bytes)
{
    return sim.current ? sim_take(bytes, alignment) : __real_aligned_alloc(alignment, bytes);
}

WRAP(void, free, void *memory)
{
    if (sim_owns(memory))
        sim_give(memory);
    else
        __real_free(memory);
}

WRAP(void *, realloc, void *memory, size_t bytes)
{
    if (!sim.current)
        return __real_realloc(memory, bytes);
    void *moved = sim_take(bytes, 16);
    if (memory && moved) {
        uint64_t had = ((struct head *)memory - 1)->bytes;
        memcpy(moved, memory, had < bytes ? had : bytes);
        sim_give(memory);
    }
    return moved;
}

WRAP(void *, reallocarray, void *memory, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return NULL;
    return __wrap_realloc(memory, total);
}

WRAP(char *, strndup, const char *text, size_t most)
{
    size_t length = strnlen(text, most);
    char *copy = __wrap_malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
    }
    return copy;
}

WRAP(char *, strdup, const char *text)
{
    return __wrap_strndup(text, SIZE_MAX >> 1);
}

WRAP(int, vasprintf, char **out, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    *out = length < 0 ? NULL : __wrap_malloc((size_t)length + 1);
    return *out ? vsnprintf(*out, (size_t)length + 1, format, arguments) : -1;
}

WRAP(XXH3_state_t *, XXH3_createState, void)
{
    XXH3_state_t *state = sim_take(sizeof *state, 64);
    if (state)
        XXH3_INITSTATE(state);
    return state;
}

WRAP(XXH_errorcode, XXH3_freeState, XXH3_state_t *state)
{
    if (state)
        sim_give(state);
    return XXH_OK;
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* The address of reserved space (PROT_NONE), which is never accessed. */
#define NOWHERE ((uint8_t *)(1ull << 46))

#define MAPS_MAX 512
static struct map {
    const struct sim_process *process;
    struct sim_node *node;
} maps[MAPS_MAX];
static uint32_t map_count;

void sim_maps_reset(void);
void sim_maps_close(const struct sim_process *process);

void sim_maps_reset(void)
{
    map_count = 0;
}

void *sim_find_map(const struct sim_process *process, uint64_t bytes)
{
    for (uint32_t i = map_count; i-- > 0;)
        if (maps[i].process == process && maps[i].node->bytes == bytes)
            return maps[i].node->data;
    return NULL;
}

struct sim_node *sim_mapped_node(const void *address, uint64_t *offset)
{
    for (uint32_t i = 0; i < map_count; i++) {
        const uint8_t *start = maps[i].node->data;
        *offset = (uint64_t)((const uint8_t *)address - start);
        if ((const uint8_t *)address >= start && *offset < maps[i].node->bytes)
            return maps[i].node;
    }
    return NULL;
}

static void drop_map(uint32_t index)
{
    struct sim_node *node = maps[index].node;
    maps[index] = maps[--map_count];
    node->maps--;
    sim_node_unref(node);
}

/* Close the mappings of a dead process. */
void sim_maps_close(const struct sim_process *process)
{
    for (uint32_t i = map_count; i-- > 0;)
        if (maps[i].process == process)
            drop_map(i);
}

/* All mappings of a file are its only copy; the requested address is ignored. */
WRAP(void *, mmap, void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (!sim.current)
        return __real_mmap(address, bytes, protection, flags, fd, offset);
    if (fd < 0) {
        if (protection == PROT_NONE)
            return NOWHERE;
        static const char never_woken;
        if (sim_fault(sim_faults.delay, "memory is slow to come"))
            (void)sim_wait(&never_woken, sim.now_ns + sim_below(&sim.random, 20 * SIM_MS));
        /* it is given back only as a whole, without a part for the alignment of its start
         * (rp_take_pages) */
        void *memory = sim_take(bytes, bytes > HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 4096);
        return memory ? memset(memory, 0, bytes) : MAP_FAILED;
    }
    struct sim_node *node = sim_node_of(fd);
    if (node && node->kind == SIM_MEMORY && bytes > node->bytes)
        sim_node_resize(node, bytes); /* a memfd may be mapped before it is resized */
    if (!node || bytes > node->capacity || map_count == MAPS_MAX) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    maps[map_count++] = (struct map){.process = sim.current->process, .node = node};
    node->maps++;
    return node->data;
}

WRAP(int, munmap, void *address, size_t bytes)
{
    if (!sim.current)
        return __real_munmap(address, bytes);
    if (!sim_owns(address))
        return 0; /* reserved space */
    for (uint32_t i = map_count; i-- > 0;) {
        if (maps[i].node->data == address && maps[i].process == sim.current->process) {
            drop_map(i);
            return 0;
        }
    }
    for (uint32_t i = 0; i < map_count; i++)
        if ((uint8_t *)address >= maps[i].node->data &&
            (uint8_t *)address < maps[i].node->data + maps[i].node->capacity)
            return 0; /* the slack after a mapping */
    if (((struct head *)address - 1)->allocation == address)
        sim_give(address);
    return 0;
}
