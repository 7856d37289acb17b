/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c — coroutines that stop in front of each step on shared memory, and the steps. */
#include "threads.h"

#include <alloca.h>
#include <string.h>
#include <ucontext.h>

#include "snapshot.h"

#define CALLS_BYTES 4096u /* below a step: about as much as calls need until the next one */

_Alignas(64) uint8_t model_stacks[MODEL_THREADS][STACK_BYTES];
struct run model_run;
static unsigned running = MODEL_THREADS;
static jmp_buf explorer;

bool explore_in_thread(void)
{
    return running < MODEL_THREADS;
}

void model_fail(const char *what)
{
    if (!model_run.failure)
        model_run.failure = what;
    if (explore_in_thread())
        _longjmp(explorer, 1);
}

/* ---- on the stack of a thread ---------------------------------------------------------------- */

uint64_t explore_step(struct step step)
{
    struct thread *self = &model_run.threads[running];
    /* the caller of the small functions of base/atomic.h and shm/wait.c: no function is inlined */
    step.site = self->depth > 0 ? self->callers[self->depth - 1] : NULL;
    explore_note(&step);
    self->step = step;
    self->stack = __builtin_frame_address(0);
    self->lowest = alloca(16);
    if (_setjmp(self->at) == 0)
        _longjmp(explorer, 1);
    return self->result;
}

void explore_enter(const void *site)
{
    if (!explore_in_thread())
        return;
    struct thread *self = &model_run.threads[running];
    if (self->depth == DEPTH)
        model_fail("too deep");
    self->callers[self->depth++] = site;
}

void explore_leave(void)
{
    if (explore_in_thread())
        model_run.threads[running].depth--;
}

static void end_thread(struct thread *t, enum life life)
{
    t->life = life;
    if (!model_run.scenario->threads[t - model_run.threads].rings)
        return;
    model_run.bells[0].rung++;
    memory_tell(&model_run.bells[0].told, &t->memory);
}

void thread_kill(struct thread *t)
{
    end_thread(t, KILLED);
    model_run.kills_left--;
}

void explore_access(const void *at, size_t bytes, bool write)
{
    struct thread *self = &model_run.threads[running];
    if (write && model_run.kills_left > 0 && model_run.scenario->threads[running].killable &&
        explore_choose(2) == 1) {
        thread_kill(self);
        _longjmp(explorer, 1);
    }
    const char *wrong = memory_access(&self->memory, running, at, bytes, write);
    if (wrong)
        model_fail(wrong);
}

static void thread_main(unsigned index)
{
    model_run.scenario->threads[index].run();
    (void)explore_step((struct step){.kind = STEP_END});
}

void model_bell_ring(unsigned bell)
{
    (void)explore_step((struct step){.kind = STEP_RING, .value = bell});
}
void model_bell_wait(unsigned bell)
{
    (void)explore_step((struct step){.kind = STEP_HEAR, .value = bell});
}
void model_start(unsigned thread)
{
    (void)explore_step((struct step){.kind = STEP_START, .value = thread});
}
bool model_wait_end(unsigned thread)
{
    return explore_step((struct step){.kind = STEP_JOIN, .value = thread}) != 0;
}
unsigned model_kills(void)
{
    return model_run.scenario->kills;
}
bool model_has_ended(unsigned thread)
{
    return explore_step((struct step){.kind = STEP_LOOK, .value = thread}) != 0;
}

void thread_save(unsigned index)
{
    const struct thread *t = &model_run.threads[index];
    if (t->life != NOT_STARTED && t->life < ENDED)
        snapshot_add(t->lowest, (size_t)(model_stacks[index] + STACK_BYTES - t->lowest));
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Frames have gaps, in which earlier calls would differ. */
static void forget_calls(uint8_t *lowest)
{
    memset(lowest - CALLS_BYTES, 0, CALLS_BYTES);
}

static void resume(unsigned index)
{
    forget_calls(model_run.threads[index].lowest);
    running = index;
    if (_setjmp(explorer) == 0)
        _longjmp(model_run.threads[index].at, 1);
    running = MODEL_THREADS;
}

void thread_start(unsigned index, const struct thread_memory *from)
{
    static ucontext_t contexts[MODEL_THREADS];
    struct thread *t = &model_run.threads[index];
    ucontext_t *context = &contexts[index];
    if (t->life != NOT_STARTED) {
        model_fail("a thread is started twice");
        return;
    }
    t->life = READY;
    t->depth = 0;
    memory_start_thread(&t->memory, index, from);
    forget_calls(model_stacks[index] + STACK_BYTES);
    if (!context->uc_stack.ss_sp)
        getcontext(
            context); /* once, so that the registers that it starts with are always the same */
    context->uc_stack.ss_sp = model_stacks[index];
    context->uc_stack.ss_size = STACK_BYTES;
    makecontext(context, (void (*)(void))thread_main, 1, index);
    running = index;
    if (_setjmp(explorer) == 0)
        setcontext(context);
    running = MODEL_THREADS;
}

bool thread_can_go(const struct thread *t)
{
    if (t->life == WOKEN)
        return true;
    if (t->life != READY)
        return false;
    if (t->step.kind == STEP_HEAR)
        return model_run.bells[t->step.value].rung > 0;
    if (t->step.kind == STEP_JOIN)
        return model_run.threads[t->step.value].life >= ENDED;
    return true;
}

static void wake_all(unsigned waker, const void *at)
{
    for (unsigned i = 0; i < model_run.thread_count; i++) {
        struct thread *t = &model_run.threads[i];
        if (t->life != ASLEEP || t->step.at != at)
            continue;
        t->life = WOKEN;
        memory_learn(&t->memory, &model_run.threads[waker].memory.now);
    }
}

/* The kernel takes a lock to read the word, and so does who wakes, after a fence. It is not assumed
 * that others see this thread's stores by then, although Linux has a barrier there too. */
static void fall_asleep(struct thread *t, unsigned self)
{
    memory_look(&t->memory);
    unsigned oldest, word = memory_word(t->step.at, 4);
    unsigned newest = memory_stores(&t->memory, word, &oldest) - 1;
    unsigned store = newest - explore_choose(newest - oldest + 1);
    uint32_t found = (uint32_t)memory_load(&t->memory, self, word, store, false);
    if (found == (uint32_t)t->step.value)
        t->life = ASLEEP;
}

static bool acquires(int order)
{
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static bool releases(int order)
{
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static uint64_t do_load(struct thread *t, unsigned self)
{
    unsigned oldest, word = memory_word(t->step.at, (unsigned)t->step.bytes);
    unsigned newest = memory_stores(&t->memory, word, &oldest) - 1;
    unsigned store = newest - explore_choose(newest - oldest + 1);
    return memory_load(&t->memory, self, word, store, acquires(t->step.order));
}

static uint64_t do_change(struct thread *t, unsigned self)
{
    unsigned word = memory_word(t->step.at, (unsigned)t->step.bytes), oldest;
    unsigned newest = memory_stores(&t->memory, word, &oldest) - 1;
    struct thread_memory look = t->memory;
    uint64_t value = t->step.value;
    if (t->step.kind == STEP_OR)
        value |= memory_load(&look, self, word, newest, false);
    return memory_change(&t->memory, self, word, value, t->step.kind != STEP_ADD,
                         acquires(t->step.order), releases(t->step.order));
}

static void do_fence(struct thread *t, unsigned self)
{
    memory_fence(&t->memory, self);
}

/* Through the kernel, to and from whoever reads there. */
static uint64_t do_kernel(struct thread *t, unsigned self)
{
    struct step *step = &t->step;
    do_fence(t, self);
    switch (step->kind) {
    case STEP_RING:
        model_run.bells[step->value].rung++;
        memory_tell(&model_run.bells[step->value].told, &t->memory);
        return 0;
    case STEP_HEAR:
        model_run.bells[step->value].rung = 0;
        memory_learn(&t->memory, &model_run.bells[step->value].told);
        return 0;
    case STEP_JOIN:
        memory_learn(&t->memory, &model_run.threads[step->value].memory.now);
        return model_run.threads[step->value].life == KILLED;
    case STEP_LOOK:
        if (model_run.threads[step->value].life < ENDED)
            return 0;
        memory_learn(&t->memory, &model_run.threads[step->value].memory.now);
        return 1;
    default:
        return 0;
    }
}

static uint64_t do_step(struct thread *t, unsigned self)
{
    struct step *step = &t->step;
    switch (step->kind) {
    case STEP_LOAD:
        return do_load(t, self);
    case STEP_STORE:
        memory_store(&t->memory, self, memory_word(step->at, (unsigned)step->bytes), step->value,
                     releases(step->order));
        return 0;
    case STEP_ADD:
    case STEP_OR:
    case STEP_SWAP:
        return do_change(t, self);
    case STEP_FENCE:
        if (step->order != WEAKENED)
            do_fence(t, self);
        return 0;
    case STEP_WAKE:
        do_fence(t, self);
        if (step->order != WEAKENED)
            wake_all(self, step->at);
        return 0;
    case STEP_SLEEP:
        fall_asleep(t, self);
        return 0;
    case STEP_END:
        end_thread(t, ENDED);
        return 0;
    default:
        return do_kernel(t, self);
    }
}

void thread_take_turn(unsigned index)
{
    struct thread *t = &model_run.threads[index];
    if (t->life == WOKEN) {
        t->life = READY;
    } else {
        t->result = do_step(t, index);
        explore_trace(index, &t->step, t->result);
        if (t->step.kind == STEP_START)
            thread_start((unsigned)t->step.value, &t->memory);
    }
    if (t->life == READY && !model_run.failure)
        resume(index);
}
