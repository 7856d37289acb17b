/* SPDX-License-Identifier: Apache-2.0 */
/* points.c — see points.h. The known points, how often they were reached and how often they killed
 * stand in a file that all processes map; points that have killed seldom are drawn before others.
 * tools/campaign makes the file and reads it.
 *
 * A point counts before it kills. */
#include "points.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "switch.h"

#define POINTS_BITS 13
#define POINTS_MAX (1u << POINTS_BITS) /* some hundred are used */
#define RANGES_MAX 128u
#define VISITS_MAX 2000u /* the latest visit that is drawn; later moments are for kills in time */
#define CANDIDATES 4

enum role { NOBODY, ENGINE, TRAINER, PACKER, ROLES };

struct point {
    uint64_t key; /* 0 = free; offset in the program << 4 | role << 2 | when */
    uint64_t visits, lives, kills;
};
struct ledger { /* tools/campaign knows it */
    uint64_t random, processes[ROLES], kills[ROLES];
    struct point points[POINTS_MAX];
};

static struct ledger *ledger;
static enum role role;
static struct point *target;     /* NULL: lives on */
static uint64_t visits_left;     /* the target's */
static uint8_t seen[POINTS_MAX]; /* in this life */
static struct range {
    uintptr_t begin, end;   /* equal: free */
} ranges[RANGES_MAX];       /* mapped shared and writable */
static uint32_t ranges_end; /* all from here on have always been free */

/* ---- drawing --------------------------------------------------------------------------------- */

/* splitmix64 over a word that all processes share. */
static uint64_t draw(uint64_t below)
{
    uint64_t z = __atomic_add_fetch(&ledger->random, UINT64_C(0x9e3779b97f4a7c15),
                                    __ATOMIC_RELAXED);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

/* The point that has killed least, of some known points of this role. */
static struct point *draw_point(void)
{
    uint32_t count = 0;
    static uint16_t known[POINTS_MAX];
    for (uint32_t i = 0; i < POINTS_MAX; i++)
        if (ledger->points[i].key && (ledger->points[i].key >> 2 & 3) == role)
            known[count++] = (uint16_t)i;
    struct point *best = NULL;
    for (int i = 0; count && i < CANDIDATES; i++) {
        struct point *other = &ledger->points[known[draw(count)]];
        best = best && best->kills <= other->kills ? best : other;
    }
    return best;
}

/* A new life. One in eight is let live: it finds points that shorter ones never reach. */
static void arm(enum role new_role)
{
    role = new_role;
    target = NULL;
    memset(seen, 0, sizeof seen);
    __atomic_add_fetch(&ledger->processes[role], 1, __ATOMIC_RELAXED);
    struct point *point = draw(8) ? draw_point() : NULL;
    if (!point)
        return;
    uint64_t usual = 2 * point->visits / (point->lives ? point->lives : 1);
    visits_left = 1 + draw(usual < 1 ? 1 : usual > VISITS_MAX ? VISITS_MAX : usual);
    target = point;
}

static void open_ledger(void)
{
    const char *path = getenv("RP_POINTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct stat status;
    if (fd < 0)
        return;
    if (fstat(fd, &status) != 0 || (size_t)status.st_size != sizeof *ledger)
        abort(); /* whoever made it knows another layout */
    void *mapped = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ledger = mapped == MAP_FAILED ? NULL : mapped;
}

__attribute__((constructor)) static void begin(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "serve") != 0)
        return;
    open_ledger();
    if (ledger)
        arm(ENGINE);
}

void rp_point_forked(void)
{
    if (!ledger)
        open_ledger();
    if (ledger)
        arm(role == ENGINE ? PACKER : TRAINER);
}

/* ---- visiting -------------------------------------------------------------------------------- */

/* The point's slot; a new one belongs to whoever comes first. */
static struct point *find_point(uint64_t key)
{
    uint64_t i = key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - POINTS_BITS);
    for (;; i = (i + 1) % POINTS_MAX) {
        uint64_t *word = &ledger->points[i].key, found = 0;
        if (*word == key ||
            __atomic_compare_exchange_n(word, &found, key, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            found == key)
            return &ledger->points[i];
    }
}

bool rp_point_is_drawn(uintptr_t place, enum rp_when when)
{
    if (role == NOBODY)
        return false;
    uint64_t offset = place - (uintptr_t)__executable_start;
    struct point *point = find_point(offset << 4 | (uint64_t)role << 2 | when);
    uint8_t *met = &seen[point - ledger->points];
    __atomic_add_fetch(&point->visits, 1, __ATOMIC_RELAXED);
    if (!__atomic_exchange_n(met, 1, __ATOMIC_RELAXED))
        __atomic_add_fetch(&point->lives, 1, __ATOMIC_RELAXED);
    if (point != target || __atomic_sub_fetch(&visits_left, 1, __ATOMIC_RELAXED) != 0)
        return false;
    __atomic_add_fetch(&point->kills, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&ledger->kills[role], 1, __ATOMIC_RELAXED);
    return true;
}

void rp_point_die(void)
{
    for (;;)
        syscall(SYS_kill, (long)getpid(), SIGKILL);
}

void rp_point_pass(uintptr_t place, enum rp_when when)
{
    if (rp_point_is_drawn(place, when))
        rp_point_die();
}

void rp_point_pass_store(uintptr_t place, const void *address)
{
    if (role != NOBODY && rp_point_is_shared(address))
        rp_point_pass(place, RP_BEFORE);
}

/* ---- shared memory --------------------------------------------------------------------------- */

bool rp_point_is_shared(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    for (uint32_t i = 0; i < ranges_end; i++)
        if (at - ranges[i].begin < ranges[i].end - ranges[i].begin)
            return true;
    return false;
}

void rp_point_mapped(const void *address, size_t bytes)
{
    for (uint32_t i = 0; i < RANGES_MAX; i++)
        if (ranges[i].begin == ranges[i].end) {
            ranges[i] = (struct range){(uintptr_t)address, (uintptr_t)address + bytes};
            ranges_end = i < ranges_end ? ranges_end : i + 1;
            return;
        }
    abort(); /* RANGES_MAX is too small */
}

void rp_point_unmapped(const void *address)
{
    for (uint32_t i = 0; i < RANGES_MAX; i++)
        if (ranges[i].begin == (uintptr_t)address)
            ranges[i] = (struct range){0, 0};
}

/* ---- defects --------------------------------------------------------------------------------- */

_Bool rp_defects[RP_DEFECT_COUNT];

__attribute__((constructor)) static void switch_defects(void)
{
#define RP_DEFECT_TEXT(name) #name,
    static const char *const names[] = {RP_DEFECTS(RP_DEFECT_TEXT)};
    const char *wanted = getenv("RP_DEFECT");
    for (size_t i = 0; wanted && i < RP_DEFECT_COUNT; i++)
        rp_defects[i] = strcmp(wanted, names[i]) == 0;
}
