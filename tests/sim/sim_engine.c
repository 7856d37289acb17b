/* SPDX-License-Identifier: Apache-2.0 */
/* sim_engine.c — replaces the few functions of the engine that cannot run on the simulated machine,
 * which has no fork(2) and no huge pages. */
#include "sim_wrap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../fakes/io_fake.h"
#include "base/available.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "flow/packer.h"
#include "shm/segment.h"
#include "client/core.h"

#define SPINS 4u
#define FRONT_BYTES (64u << 10)

/* A packer process runs the same loop as a packer thread. The engine watches and kills it by its
 * pidfd. It shares the descriptors of the engine; all memory is shared here anyway. */
static void *packer_main(void *argument)
{
    const struct rp_packer *packer = argument;
    rp_packer_run(packer->plan, packer->index);
    sim_exit(0);
}

WRAP(int, rp_packer_start, struct rp_packer *packer, bool as_process, struct rp_error *error)
{
    if (!as_process)
        return __real_rp_packer_start(packer, false, error);
    struct sim_process *process = sim_spawn("packer", packer_main, packer);
    process->parent = sim.current->process;
    struct sim_node *node = sim_node_new(SIM_PIDFD);
    node->process = process;
    packer->started = true;
    packer->pid = process->pid;
    packer->pidfd = sim_descriptor_new(node, 0);
    return 0;
}

/* Without huge pages: to zero two megabytes at every start would be most of the time of a story. */
WRAP(int, rp_segment_create, struct rp_segment *segment, const char *name, size_t bytes, bool huge,
     struct rp_error *error)
{
    (void)huge;
    return __real_rp_segment_create(segment, name, bytes, false, error);
}

/* The list of mappings is a variable of the program, which a killed process leaves as it is. The
 * next simulated process uses the same variable, and would find mappings in freed memory. Simulated
 * files are never truncated, so the list is not needed. */
WRAP(struct rp_mapping *, rp_mapped_add, const void *start, uint64_t bytes, const char *path)
{
    (void)start, (void)bytes, (void)path;
    return rp_calloc(1, 1);
}

WRAP(void, rp_mapped_remove, struct rp_mapping *mapping)
{
    free(mapping);
}

/* A disk that completes reads in any order, late, and with errors. */
static int disk_reap(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min)
{
    static const char disk;
    sim_step();
    if (wait_min && sim_fault(sim_faults.delay, "a slow disk"))
        (void)sim_wait(&disk, sim.now_ns + sim_below(&sim.random, 3 * SIM_MS));
    return io_fake_method.reap(self, tags, results, max, wait_min);
}

static struct rp_io_method disk;

/* Half of the engines use that disk, the others the engine's own pool of threads. */
WRAP(int, rp_io_choose, const char *name, const struct rp_io_method **method_out, char *why,
     size_t why_bytes, struct rp_error *error)
{
    if (sim_chance(&sim.random, 500))
        return __real_rp_io_choose("pread", method_out, why, why_bytes, error);
    (void)name;
    struct io_fake_script script = {.seed = sim_below(&sim.random, UINT64_MAX),
                                    .cut = sim_faults.short_read,
                                    .again = sim_faults.interrupted,
                                    .broken = sim_faults.read_error,
                                    .lazy = sim_faults.interrupted,
                                    .reorder = true};
    io_fake_set(&script);
    disk = io_fake_method;
    disk.reap = disk_reap;
    *method_out = &disk;
    snprintf(why, why_bytes, "a simulated disk");
    return 0;
}

/* rp_spin in simulated time. */
WRAP(bool, rp_spin, uint32_t *spins, uint32_t limit_ns)
{
    sim.now_ns += limit_ns / SPINS;
    sim_step();
    return (*spins)++ % SPINS != SPINS - 1;
}

/* Only the front of a large buffer is zeroed, because no story uses more of it. */
WRAP(void *, rp_calloc_aligned, size_t alignment, size_t bytes)
{
    void *memory = sim_take(bytes, alignment);
    return memory ? memset(memory, 0, bytes < FRONT_BYTES ? bytes : FRONT_BYTES) : NULL;
}

/* The list of clients is for the children of fork(2). */
WRAP(int, rp_client_enlist, struct rp_client *client, struct rp_error *error)
{
    (void)client;
    (void)error;
    return 0;
}

WRAP(void, rp_client_delist, struct rp_client *client)
{
    (void)client;
}

/* A thread of the engine gives way to others; here it would be the simulator. */
WRAP(int, setpriority, __priority_which_t which, id_t who, int priority)
{
    (void)which;
    (void)who;
    (void)priority;
    return 0;
}

WRAP(struct rp_available, rp_memory_available, void)
{
    return (struct rp_available){1ull << 40, "simulated"};
}

/* Abstract socket addresses are not simulated; only the lock file excludes a second engine. */
WRAP(int, rp_guard_take, const char *directory, const char *run, pid_t *holder)
{
    if (!sim.current)
        return __real_rp_guard_take(directory, run, holder);
    *holder = 0;
    return -1;
}
