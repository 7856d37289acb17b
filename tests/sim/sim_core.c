/* SPDX-License-Identifier: Apache-2.0 */
/* sim_core.c — fibers, processes and the clock.
 *
 * The time advances a little with every call of the clock and every switch of fibers, and jumps to
 * the next deadline when no fiber can run, so a story of minutes takes milliseconds.
 *
 * Invariant: no result depends on an address, the real clock or the real machine. */
#include "sim.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_BYTES (128u << 10)
#define SWITCH_NS 300u
#define STORY_MAX_NS (10000 * SIM_S) /* an engine may wait ten minutes in each of some lives */

struct sim sim;
struct sim_faults sim_faults;
static uint8_t *stacks; /* [SIM_FIBERS_MAX] */
static void *program;   /* stack pointer of the program itself */
static const char poked;

/* ---- switching ------------------------------------------------------------------------------- */

void sim_switch(void **save, void *load);

/* Save the callee-saved registers on the stack; the compiler has saved the others. */
#if defined(__x86_64__)
__asm__(".text\n.globl sim_switch\n.type sim_switch,@function\nsim_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nretq\n"
        ".size sim_switch,.-sim_switch\n");
#define FRAME_WORDS 8
#define FRAME_RETURN 6
#elif defined(__aarch64__)
__asm__(".text\n.globl sim_switch\n.type sim_switch,%function\nsim_switch:\n"
        "sub sp,sp,#160\n"
        "stp x19,x20,[sp,#0]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
        "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\n"
        "stp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
        "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
        "ldp x19,x20,[sp,#0]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
        "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\n"
        "ldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
        "add sp,sp,#160\nret\n.size sim_switch,.-sim_switch\n");
#define FRAME_WORDS 20
#define FRAME_RETURN 11
#else
#error "sim_switch is written for x86-64 and aarch64"
#endif

static void switch_to(struct sim_fiber *next)
{
    struct sim_fiber *last = sim.current;
    if (next == last)
        return;
    if (last)
        last->saved_errno = errno;
    sim.current = next;
    sim.switches++;
    sim_switch(last ? &last->stack_pointer : &program, next ? next->stack_pointer : program);
    if (sim.current)
        errno = sim.current->saved_errno;
}

/* ---- runnable fibers ------------------------------------------------------------------------- */

static void make_runnable(struct sim_fiber *fiber)
{
    fiber->runnable = true;
    fiber->wait_on = NULL;
    fiber->at = sim.runnable_count;
    sim.runnable[sim.runnable_count++] = fiber;
}

static void make_waiting(struct sim_fiber *fiber, const void *object, uint64_t deadline)
{
    struct sim_fiber *moved = sim.runnable[--sim.runnable_count];
    sim.runnable[fiber->at] = moved;
    moved->at = fiber->at;
    fiber->runnable = false;
    fiber->wait_on = object;
    fiber->deadline = deadline;
    if (deadline < sim.next_deadline)
        sim.next_deadline = deadline;
}

static void expire(void)
{
    uint64_t next = SIM_NEVER;
    for (uint32_t i = 0; i < sim.fiber_count; i++) {
        struct sim_fiber *fiber = &sim.fibers[i];
        if (!fiber->alive || fiber->runnable)
            continue;
        if (fiber->deadline <= sim.now_ns) {
            fiber->timed_out = true;
            make_runnable(fiber);
        } else if (fiber->deadline < next) {
            next = fiber->deadline;
        }
    }
    sim.next_deadline = next;
}

/* Choose a random runnable fiber. The threads of a stopped process (SIGSTOP) wait until its end. */
static struct sim_fiber *choose(void)
{
    for (;;) {
        bool jump = sim_faults.time_jump && sim_chance(&sim.random, sim_faults.time_jump) &&
                    sim.next_deadline < sim.now_ns + SIM_S;
        if (sim.runnable_count == 0 || jump) {
            if (sim.next_deadline == SIM_NEVER)
                sim_fail("nothing can ever run again");
            if (sim.next_deadline > sim.now_ns)
                sim.now_ns = sim.next_deadline;
            if (sim.now_ns > STORY_MAX_NS)
                sim_fail("a fiber waits for ever");
        }
        if (sim.next_deadline <= sim.now_ns)
            expire();
        if (sim.runnable_count == 0)
            continue;
        struct sim_fiber *fiber = sim.runnable[sim_below(&sim.random, sim.runnable_count)];
        if (fiber->process->stopped_until <= sim.now_ns)
            return fiber;
        make_waiting(fiber, NULL, fiber->process->stopped_until);
    }
}

static void draw_slice(void)
{
    sim.slice = 1 + (uint32_t)sim_below(&sim.random, 2 * sim.slice_mean);
}

void sim_yield(void)
{
    sim.now_ns += SWITCH_NS;
    draw_slice();
    switch_to(choose());
}

void sim_step(void)
{
    struct sim_fiber *fiber = sim.current;
    if (!fiber)
        return;
    struct sim_process *process = fiber->process;
    sim.steps++;
    if (++process->steps == process->stop_at) {
        sim_trace("%s is stopped for %u ms", process->name, (unsigned)(process->stop_ns / SIM_MS));
        process->stopped_until = sim.now_ns + process->stop_ns;
        sim_yield();
    }
    if (process->steps == process->kill_at) {
        sim_kill(process);
        __builtin_unreachable(); /* a killed process does not return */
    }
    if (--sim.slice == 0)
        sim_yield();
}

void rp_simulation_step(void);
void rp_simulation_step(void)
{
    sim_step();
}

bool sim_wait(const void *object, uint64_t deadline_ns)
{
    struct sim_fiber *fiber = sim.current;
    if (sim_faults.spurious && sim_chance(&sim.random, sim_faults.spurious)) {
        sim_faults.injected++;
        sim_yield();
        return true;
    }
    fiber->timed_out = false;
    make_waiting(fiber, object, deadline_ns);
    sim_yield();
    return !fiber->timed_out;
}

unsigned sim_wake(const void *object, unsigned most)
{
    struct sim_fiber *waiting[SIM_FIBERS_MAX];
    unsigned count = 0, woken = 0;
    for (uint32_t i = 0; i < sim.fiber_count; i++)
        if (sim.fibers[i].alive && !sim.fibers[i].runnable && sim.fibers[i].wait_on == object)
            waiting[count++] = &sim.fibers[i];
    for (; count > 0 && woken < most; woken++) {
        unsigned pick = most < count ? (unsigned)sim_below(&sim.random, count) : count - 1;
        make_runnable(waiting[pick]);
        waiting[pick] = waiting[--count];
    }
    return woken;
}

void sim_poke(void)
{
    sim_wake(&poked, UINT32_MAX);
}

bool sim_wait_poke(uint64_t deadline_ns)
{
    return sim_wait(&poked, deadline_ns);
}

/* ---- fibers and processes -------------------------------------------------------------------- */

static void fiber_main(void)
{
    struct sim_fiber *fiber = sim.current;
    fiber->entry(fiber->argument);
    if (fiber->process->fibers == 1)
        sim_exit(0);
    fiber->alive = false;
    fiber->process->fibers--;
    make_waiting(fiber, NULL, SIM_NEVER);
    sim_wake(fiber, UINT32_MAX); /* fibers in pthread_join */
    sim_yield();
    __builtin_unreachable();
}

struct sim_fiber *sim_fiber_start(struct sim_process *process, void *(*entry)(void *),
                                  void *argument)
{
    uint32_t i = 0;
    while (i < sim.fiber_count && sim.fibers[i].alive)
        i++;
    if (i == SIM_FIBERS_MAX)
        sim_fail("more than %d threads", SIM_FIBERS_MAX);
    if (i == sim.fiber_count)
        sim.fiber_count++;
    struct sim_fiber *fiber = &sim.fibers[i];
    uint8_t *stack = stacks + (size_t)i * STACK_BYTES;
    *fiber = (struct sim_fiber){.stack = stack,
                                .process = process,
                                .entry = entry,
                                .argument = argument,
                                .alive = true,
                                .serial = ++sim.fibers_started};
    void **frame = (void **)(void *)(stack + STACK_BYTES) - FRAME_WORDS;
    memset(frame, 0, FRAME_WORDS * sizeof *frame);
    frame[FRAME_RETURN] = (void *)(uintptr_t)fiber_main;
    fiber->stack_pointer = frame;
    process->fibers++;
    make_runnable(fiber);
    return fiber;
}

struct sim_process *sim_spawn(const char *name, void *(*entry)(void *), void *argument)
{
    if (sim.process_count == SIM_PROCESSES_MAX)
        sim_fail("more than %d processes", SIM_PROCESSES_MAX);
    struct sim_process *process = &sim.processes[sim.process_count++];
    *process = (struct sim_process){.pid = (int)sim.process_count, .name = name};
    sim_fiber_start(process, entry, argument);
    sim_trace("%s starts as %d", name, process->pid);
    return process;
}

struct sim_process *sim_find(int pid)
{
    return pid >= 1 && (uint32_t)pid <= sim.process_count ? &sim.processes[pid - 1] : NULL;
}

static void end_process(struct sim_process *process)
{
    process->dead = true;
    for (uint32_t i = 0; i < sim.fiber_count; i++) {
        struct sim_fiber *fiber = &sim.fibers[i];
        if (!fiber->alive || fiber->process != process)
            continue;
        if (fiber->runnable)
            make_waiting(fiber, NULL, SIM_NEVER);
        fiber->alive = false;
    }
    process->fibers = 0;
    for (uint32_t i = 0; i < sim.process_count; i++)
        if (sim.processes[i].parent == process && !sim.processes[i].dead)
            end_process(&sim.processes[i]);
    sim_close_all(process);
    sim_poke();
}

void sim_kill(struct sim_process *process)
{
    if (process->dead)
        return;
    sim_trace("%s (%d) is killed at its step %u", process->name, process->pid,
              (unsigned)process->steps);
    process->killed = true;
    end_process(process);
    if (sim.current && sim.current->process == process)
        sim_yield();
}

void sim_exit(int status)
{
    struct sim_process *process = sim.current->process;
    sim_trace("%s (%d) ends: %d", process->name, process->pid, status);
    process->status = status;
    end_process(process);
    if (process->pid == 1) {
        sim.ended = true;
        switch_to(NULL);
    }
    sim_yield();
    __builtin_unreachable();
}

/* ---- the story ------------------------------------------------------------------------------- */

uint64_t sim_below(uint64_t *random, uint64_t limit)
{
    uint64_t z = *random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (uint64_t)(((unsigned __int128)z * limit) >> 64);
}

bool sim_chance(uint64_t *random, unsigned per_1000)
{
    return sim_below(random, 1000) < per_1000;
}

bool sim_fault(unsigned per_1000, const char *what)
{
    if (per_1000 == 0 || !sim_chance(&sim.random, per_1000))
        return false;
    sim_faults.injected++;
    sim_trace("fault: %s", what);
    return true;
}

void sim_begin(uint64_t seed, uint32_t slice_mean)
{
    if (!stacks)
        stacks = mmap(NULL, (size_t)SIM_FIBERS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool trace = sim.trace;
    sim = (struct sim){.now_ns = SIM_S,
                       .next_deadline = SIM_NEVER,
                       .random = seed,
                       .slice_mean = slice_mean,
                       .trace = trace};
    sim_faults = (struct sim_faults){0};
    sim_page_cache = (struct sim_page_cache){0};
    draw_slice();
}

void sim_run(void *(*entry)(void *), void *argument)
{
    sim_spawn("director", entry, argument);
    switch_to(choose());
}

void sim_end(void)
{
    sim_files_reset();
    sim_memory_reset();
}

void sim_fail(const char *format, ...)
{
    if (!sim.failure[0]) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(sim.failure, sizeof sim.failure, format, arguments);
        va_end(arguments);
        sim_trace("FAILED: %s", sim.failure);
    }
    sim.ended = true;
    switch_to(NULL);
    __builtin_unreachable();
}

void sim_trace(const char *format, ...)
{
    if (!sim.trace)
        return;
    printf("%12.6f %-10s ", (double)sim.now_ns * 1e-9,
           sim.current ? sim.current->process->name : "-");
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}
