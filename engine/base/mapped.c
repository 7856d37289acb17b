/* SPDX-License-Identifier: Apache-2.0 */
/* SIGBUS is synchronous: it is raised by an instruction that reads a mapping, never inside malloc
 * or stdio. So the handler need not restrict itself to async-signal-safe functions. */
#include "base/mapped.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/available.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"

#define EXIT_TROUBLE 2
/* Room for the mappings of the program, its libraries, rings and threads. */
#define OTHER_MAPPINGS 1024u
/* Retries of a page that the disk cannot read, first after 1 ms and then each time after twice as
 * long: a second in all. */
#define RETRIES 10u
#define FIRST_PAUSE_NS 1000000u
#define LEAST_PAGE_BYTES 4096u

struct rp_mapped_file {
    struct rp_mapped_file *_Atomic next;
    struct rp_mapped_file *before;
    const uint8_t *start;
    uint64_t bytes;
    char path[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held to change the list, not to read */
static struct rp_mapped_file *_Atomic mappings;
static uint64_t mapping_count;
/* The mapping that was found lost, in memory shared with forked children; NULL if rp_mapped_watch
 * was not called. An address is also valid in children, because files are mapped before the fork.
 */
static struct rp_a64 *lost;

/* The handler's jump target, and its finding. */
struct guard {
    sigjmp_buf jump;
    bool tries_again; /* then the guard decides whether the file is lost, and not the handler */
    const struct rp_mapped_file *mapping;
    uintptr_t page;
};
static _Thread_local struct guard *guard;

struct rp_mapped_file *rp_mapped_add(const void *start, uint64_t bytes, const char *path)
{
    size_t path_bytes = strlen(path) + 1;
    struct rp_mapped_file *mapping = rp_calloc(1, sizeof *mapping + path_bytes);
    if (!mapping)
        return NULL;
    mapping->start = start;
    mapping->bytes = bytes;
    memcpy(mapping->path, path, path_bytes);
    pthread_mutex_lock(&lock);
    struct rp_mapped_file *first = mappings;
    mapping->next = first;
    if (first)
        first->before = mapping;
    mappings = mapping;
    mapping_count++;
    pthread_mutex_unlock(&lock);
    return mapping;
}

void rp_mapped_remove(struct rp_mapped_file *mapping)
{
    if (!mapping)
        return;
    pthread_mutex_lock(&lock);
    struct rp_mapped_file *next = mapping->next;
    if (mapping->before)
        mapping->before->next = next;
    else
        mappings = next;
    if (next)
        next->before = mapping->before;
    mapping_count--;
    if (lost && rp_a64_load_relaxed(lost) == (uintptr_t)mapping)
        rp_a64_store_relaxed(lost, 0);
    pthread_mutex_unlock(&lock);
    free(mapping);
}

uint64_t rp_mapped_count(void)
{
    pthread_mutex_lock(&lock);
    uint64_t count = mapping_count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Read once: after the limit has been raised, the engine must be restarted. 0 = not known. */
static uint64_t limit_of_mappings(void)
{
    static uint64_t _Atomic limit; /* 1 + the limit; every thread stores the same value */
    uint64_t known = limit;
    if (known == 0) {
        uint64_t value;
        known = 1 + (rp_read_number("/proc/sys/vm/max_map_count", "", &value) ? value : 0);
        limit = known;
    }
    return known - 1;
}

int rp_mapped_check_room(uint64_t more, struct rp_error *error)
{
    uint64_t limit = limit_of_mappings();
    uint64_t wanted = rp_mapped_count() + more + OTHER_MAPPINGS;
    if (limit == 0 || wanted <= limit)
        return 0;
    char hint[160];
    snprintf(hint, sizeof hint,
             "raise it (`sysctl -w vm.max_map_count=%" PRIu64
             "`, as root), or put the corpus into fewer, larger shards",
             rp_pow2_at_least(wanted));
    return rp_fail(error, -RP_E_RESOURCE, hint,
                   "mapped files: expected vm.max_map_count to be at least %" PRIu64
                   ", found %" PRIu64,
                   wanted, limit);
}

static const struct rp_mapped_file *find(const void *address)
{
    const struct rp_mapped_file *mapping = mappings;
    while (mapping && (uint64_t)((const uint8_t *)address - mapping->start) >= mapping->bytes)
        mapping = mapping->next;
    return mapping;
}

/* Is the file shorter than its mapping? *found_bytes is its size, UINT64_MAX if no such file
 * exists: it may have been removed, while its mapping lives on. */
static bool is_cut(const struct rp_mapped_file *mapping, uint64_t *found_bytes)
{
    struct stat now;
    *found_bytes = stat(mapping->path, &now) == 0 ? (uint64_t)now.st_size : UINT64_MAX;
    return *found_bytes < mapping->bytes;
}

static int fail_lost(const struct rp_mapped_file *mapping, struct rp_error *error)
{
    uint64_t found;
    if (is_cut(mapping, &found))
        return rp_fail(error, -RP_E_CHANGED,
                       "delivered and saved rows are valid; restore the file, and start again",
                       "%s: was truncated while it was in use: bytes: expected %" PRIu64
                       ", found %" PRIu64,
                       mapping->path, mapping->bytes, found);
    return rp_fail(error, -RP_E_CHANGED,
                   "delivered and saved rows are valid; check the disk (dmesg), and start again",
                   "%s: a page of it cannot be read any more%s", mapping->path,
                   found == UINT64_MAX ? ", and there is no file of that name now"
                                       : ", though the file is as long as before");
}

int rp_mapped_lost(struct rp_error *error)
{
    uint64_t address = lost ? rp_a64_load_acquire(lost) : 0; /* PAIRS mapping-lost */
    return address ? fail_lost((const struct rp_mapped_file *)(uintptr_t)address, error) : 0;
}

static void end_process(const struct rp_mapped_file *mapping)
{
    struct rp_error error = {.message = "memory that was mapped is no longer there",
                             .hint = "check the disk (dmesg) and start again"};
    if (mapping)
        (void)fail_lost(mapping, &error);
    dprintf(STDERR_FILENO, "ringpack: error RP_E_CHANGED: %s\n  next: %s\n", error.message,
            error.hint);
    _exit(EXIT_TROUBLE);
}

static void lose(const struct rp_mapped_file *mapping)
{
    rp_a64_store_release(lost, (uintptr_t)mapping); /* PAIRS mapping-lost */
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    const struct rp_mapped_file *mapping = find(info->si_addr);
    if (!mapping || !guard)
        end_process(mapping);
    guard->mapping = mapping;
    guard->page = rp_align_down((uintptr_t)info->si_addr, LEAST_PAGE_BYTES);
    if (!guard->tries_again)
        lose(mapping);
    siglongjmp(guard->jump, 1);
}

void rp_mapped_watch(void)
{
    if (!lost) {
        void *page = mmap(NULL, sizeof *lost, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                          -1, 0);
        if (page == MAP_FAILED)
            return; /* without a handler SIGBUS ends the process, which is safe as well */
        lost = page;
    }
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
}

static bool work_within(struct guard *here, void (*work)(void *argument), void *argument)
{
    struct guard *outer = guard;
    /* With the signal mask, because the jump leaves the handler. */
    bool is_whole = sigsetjmp(here->jump, 1) == 0;
    if (is_whole) {
        guard = here;
        work(argument);
    }
    guard = outer;
    return is_whole;
}

bool rp_mapped_guard(void (*work)(void *argument), void *argument)
{
    struct guard here = {.tries_again = false};
    return work_within(&here, work, argument);
}

bool rp_mapped_guard_again(void (*work)(void *argument), void *argument)
{
    struct guard here = {.tries_again = true};
    uintptr_t page = 0;
    uint32_t tries = 0;
    uint64_t found;
    while (!work_within(&here, work, argument)) {
        tries = here.page == page ? tries + 1 : 0;
        page = here.page;
        if (tries == RETRIES || is_cut(here.mapping, &found)) {
            lose(here.mapping);
            return false;
        }
        rp_sleep_ns((uint64_t)FIRST_PAUSE_NS << tries);
    }
    return true;
}
