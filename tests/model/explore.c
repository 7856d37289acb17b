/* SPDX-License-Identifier: Apache-2.0 */
/* explore.c — every run of a scenario that differs in more than the order of independent steps.
 *
 * Depth first: a run is repeated from the last choice that has another branch, or from the last
 * snapshot before that (snapshot.h). Threads are coroutines. A run that comes to a state that was
 * there before is given up; a state is the stacks of the threads, the private state of the
 * scenario, and memory.h's state of the shared memory. Accesses to data are no choices: if their
 * order mattered, they would be races, and those are found whatever the order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "scenarios.h"
#include "snapshot.h"
#include "switch.h"
#include "threads.h"

#define CHOICES 8192u
#define TRACE 4096u
#define STATES (1u << 24) /* size of the table; a power of two */
#define SITES 512u

struct choice {
    uint16_t taken, count;
};

struct site {
    const void *at;
    enum step_kind kind;
    int order;
};

_Bool rp_defects[RP_DEFECT_COUNT];
bool model_long;
static bool replays; /* each run begins at its first step */
static struct choice choices[CHOICES];
static unsigned choice_count, choice_at;
static uint64_t *states;
static uint64_t state_count, run_count, step_count;
static struct site sites[SITES];
static unsigned site_count;
static const void *weakened;
static struct {
    struct step step;
    unsigned thread;
    uint64_t result;
} trace[TRACE];
static unsigned trace_count;

void explore_note(struct step *step)
{
    unsigned i = 0;
    while (i < site_count && sites[i].at != step->site)
        i++;
    if (i == site_count && site_count < SITES)
        sites[site_count++] = (struct site){step->site, step->kind, step->order};
    if (weakened && step->site == weakened)
        step->order = WEAKENED;
}

void explore_trace(unsigned thread, const struct step *step, uint64_t result)
{
    step_count++;
    if (trace_count == TRACE) {
        model_fail("a run without an end");
        return;
    }
    trace[trace_count].step = *step;
    trace[trace_count].thread = thread;
    trace[trace_count++].result = result;
}

unsigned explore_choose(unsigned count)
{
    if (count == 1)
        return 0;
    if (choice_at == CHOICES) {
        fprintf(stderr, "model: a run without an end\n");
        exit(2);
    }
    if (choice_at == choice_count)
        choices[choice_count++] = (struct choice){0, (uint16_t)count};
    if (choices[choice_at].count != count) {
        fprintf(stderr, "model: a run did not repeat itself\n");
        exit(2);
    }
    return choices[choice_at++].taken;
}

/* The next run; false when all have been. */
static bool next_run(void)
{
    while (choice_count > 0) {
        struct choice *last = &choices[choice_count - 1];
        if (++last->taken < last->count)
            return true;
        choice_count--;
    }
    return false;
}

static struct run *const run = &model_run;

/* ---- one run --------------------------------------------------------------------------------- */

/* The future of a thread follows from its stack and from the values that it reads. */
static uint64_t hash_thread(const struct thread *t, const uint8_t *stack)
{
    if (t->life == NOT_STARTED || t->life >= ENDED)
        return t->life;
    size_t used = (size_t)(stack + STACK_BYTES - t->stack);
    return model_mix(rp_hash64(t->stack, used), model_mix((uint64_t)t->life, used));
}

static bool is_bounded(void)
{
    return run->scenario->preemptions > 0;
}

static uint64_t hash_state(void)
{
    const struct knowledge *active[MODEL_THREADS], *others[3 * MODEL_THREADS + MODEL_BELLS];
    unsigned active_count = 0, other_count = 0;
    uint64_t hash = run->kills_left;
    if (is_bounded())
        hash = (hash * 64 + run->preemptions_left) * 64 + run->last;
    for (unsigned i = 0; i < run->thread_count; i++) {
        const struct thread *t = &run->threads[i];
        bool known = t->life != NOT_STARTED;
        if (known && t->life < ENDED)
            active[active_count++] = &t->memory.now;
        others[other_count++] = known ? &t->memory.now : NULL;
        others[other_count++] = known && t->life < ENDED ? &t->memory.read : NULL;
        others[other_count++] = known && t->life < ENDED ? &t->memory.fenced : NULL;
        hash = model_mix(hash, hash_thread(t, model_stacks[i]));
    }
    for (unsigned i = 0; i < MODEL_BELLS; i++) {
        hash = model_mix(hash, run->bells[i].rung);
        others[other_count++] = &run->bells[i].told;
    }
    if (run->scenario->state)
        hash = model_mix(hash, rp_hash64(run->scenario->state, run->scenario->state_bytes));
    return model_mix(hash, memory_hash(active, active_count, others, other_count));
}

/* The memory of this run, for those that begin in the same way. */
static void save_run(void)
{
    if (replays || !snapshot_begin(choice_at))
        return;
    snapshot_add(run, sizeof *run);
    snapshot_add(&trace_count, sizeof trace_count);
    for (unsigned i = 0; i < run->thread_count; i++)
        thread_save(i);
    const struct model_scenario *scenario = run->scenario;
    if (scenario->state)
        snapshot_add(scenario->state, scenario->state_bytes);
    for (unsigned i = 0; i < MODEL_KNOWN && scenario->known[i].at; i++)
        snapshot_add(scenario->known[i].at, scenario->known[i].bytes);
    model_segments_save();
    memory_save();
}

/* Whether this state is new. */
static bool enter_state(void)
{
    uint64_t hash = hash_state();
    hash += hash == 0;
    uint64_t at = hash;
    for (; states[at & (STATES - 1)]; at++)
        if (states[at & (STATES - 1)] == hash)
            return false;
    states[at & (STATES - 1)] = hash;
    if (++state_count > STATES / 4 * 3) {
        fprintf(stderr, "model: %s: more states than the table holds\n", run->scenario->name);
        exit(2);
    }
    return true;
}

static bool wake_by_timeout(void)
{
    for (unsigned i = 0; run->scenario->timeouts && i < run->thread_count; i++)
        if (run->threads[i].life == ASLEEP && run->threads[i].step.order) {
            run->threads[i].life = WOKEN;
            memory_wait(&run->threads[i].memory);
            return true;
        }
    return false;
}

static bool all_ended(void)
{
    for (unsigned i = 0; i < run->thread_count; i++)
        if (run->threads[i].life != NOT_STARTED && run->threads[i].life < ENDED)
            return false;
    return true;
}

static void finish(void)
{
    if (!all_ended())
        model_fail("asleep for ever");
    else if (run->scenario->end)
        run->scenario->end();
}

static void begin_run(void)
{
    memory_reset();
    memset(run->bells, 0, sizeof run->bells);
    for (unsigned i = 0; i < MODEL_THREADS; i++)
        run->threads[i].life = NOT_STARTED;
    run->kills_left = run->scenario->kills;
    run->preemptions_left = run->scenario->preemptions * (model_long ? 2 : 1);
    run->last = MODEL_THREADS;
    choice_at = trace_count = 0;
    run->failure = NULL;
    run->scenario->begin();
    for (unsigned i = 0; i < run->thread_count; i++)
        if (!run->scenario->threads[i].waits)
            thread_start(i, NULL);
}

/* Who may have the next turn, then who may be killed. Returns how many of the first kind. */
static unsigned list_options(unsigned *options, unsigned *count)
{
    bool stay = is_bounded() && run->preemptions_left == 0 && run->last < MODEL_THREADS &&
                thread_can_go(&run->threads[run->last]);
    *count = 0;
    for (unsigned i = 0; i < run->thread_count; i++)
        if (thread_can_go(&run->threads[i]) && (!stay || i == run->last))
            options[(*count)++] = i;
    unsigned turns = *count;
    for (unsigned i = 0; i < run->thread_count && run->kills_left > 0; i++) {
        enum life life = run->threads[i].life;
        if (run->scenario->threads[i].killable && life != NOT_STARTED && life < ENDED)
            options[(*count)++] = i;
    }
    return turns;
}

static void give_turn(unsigned index)
{
    if (index != run->last && run->last < MODEL_THREADS && run->preemptions_left > 0 &&
        thread_can_go(&run->threads[run->last]))
        run->preemptions_left--;
    run->last = index;
    thread_take_turn(index);
}

static void run_once(void)
{
    run_count++;
    if (choice_count > 0 && snapshot_find(choice_count - 1, &choice_at))
        memory_restore();
    else
        begin_run();
    while (!run->failure) {
        unsigned options[2 * MODEL_THREADS], count;
        unsigned turns = list_options(options, &count);
        if (turns == 0 && wake_by_timeout())
            continue;
        if (count == 0) {
            finish();
            return;
        }
        if (count > 1 && choice_at == choice_count) {
            if (!enter_state())
                return;
            save_run();
        }
        if (turns == 0 && explore_choose(2) == 0) { /* no kill */
            finish();
            return;
        }
        unsigned chosen = explore_choose(count);
        if (chosen < turns)
            give_turn(options[chosen]);
        else
            thread_kill(&run->threads[options[chosen]]);
    }
}

static bool explore(void)
{
    states = calloc(STATES, sizeof *states); /* zero pages: as much as is used */
    if (!states)
        exit(2);
    state_count = run_count = step_count = choice_count = 0;
    for (run->thread_count = 0; run->thread_count < MODEL_THREADS; run->thread_count++)
        if (!run->scenario->threads[run->thread_count].name)
            break;
    do {
        run_once();
    } while (!run->failure && next_run());
    free(states);
    snapshot_clear();
    return !run->failure;
}

/* ---- the program ----------------------------------------------------------------------------- */

static void print_trace(void)
{
    static const char *const names[STEP_KINDS] = {"load",  "store", "add",   "or",   "swap",
                                                  "fence", "wake",  "sleep", "ring", "hear",
                                                  "start", "join",  "look",  "end"};
    for (unsigned i = 0; i < trace_count; i++)
        printf("    %-10s %-5s value %llu result %llu at %p\n",
               run->scenario->threads[trace[i].thread].name, names[trace[i].step.kind],
               (unsigned long long)trace[i].step.value, (unsigned long long)trace[i].result,
               trace[i].step.site);
}

/* The sites that this scenario has passed. */
static void print_sites(void)
{
    for (unsigned i = 0; i < site_count; i++)
        if (sites[i].at)
            printf("site %p kind %d order %d\n", sites[i].at, (int)sites[i].kind, sites[i].order);
    site_count = 0;
}

static int list_scenarios(void)
{
    for (const struct model_scenario *const *s = model_scenarios; *s; s++)
        puts((*s)->name);
    return 0;
}

static void plant_defect(const char *name)
{
#define DEFECT_NAME(name) #name,
    static const char *const names[] = {RP_DEFECTS(DEFECT_NAME)};
#undef DEFECT_NAME
    for (size_t i = 0; i < RP_DEFECT_COUNT; i++) {
        if (strcmp(names[i], name))
            continue;
        rp_defects[i] = true;
        return;
    }
    fprintf(stderr, "model: no such defect: %s\n", name);
    exit(2);
}

/* model_check [--list] [--long] [--replay] [--trace] [--weaken SITE] [--defect NAME]
 * [SCENARIO...]: explores the scenarios, all by default. SITE is an address that was printed
 * before: its order, or its wake-up, is left out. NAME is a planted defect. Exit 1 at the first
 * thing that is wrong. */
static const char *const *parse_options(const char *const *argument, bool *show)
{
    for (; *argument && argument[0][0] == '-'; argument++) {
        if (strcmp(*argument, "--long") == 0)
            model_long = true;
        else if (strcmp(*argument, "--replay") == 0)
            replays = true;
        else if (strcmp(*argument, "--trace") == 0)
            *show = true;
        else if (strcmp(*argument, "--weaken") == 0 && argument[1])
            weakened = (const void *)(uintptr_t)strtoull(*++argument, NULL, 0);
        else if (strcmp(*argument, "--defect") == 0 && argument[1])
            plant_defect(*++argument);
    }
    return argument;
}

static bool is_wanted(const char *const *names, const char *name)
{
    bool wanted = !*names;
    for (; *names; names++)
        wanted = wanted || strcmp(*names, name) == 0;
    return wanted;
}

int main(int argc, char **argv)
{
    bool show = false;
    if (argc > 1 && strcmp(argv[1], "--list") == 0)
        return list_scenarios();
    setvbuf(stdout, NULL, _IOLBF, 0);
    rp_log_set_level(RP_LOG_ERROR);
    const char *const *names = parse_options((const char *const *)(argv + 1), &show);
    for (const struct model_scenario *const *s = model_scenarios; *s; s++) {
        if (!is_wanted(names, (*s)->name))
            continue;
        run->scenario = *s;
        bool good = explore();
        printf("scenario %s: %llu states, %llu runs, %llu steps: %s\n", run->scenario->name,
               (unsigned long long)state_count, (unsigned long long)run_count,
               (unsigned long long)step_count, good ? "holds" : run->failure);
        if (!good && show)
            print_trace();
        if (!good)
            return 1;
        print_sites();
    }
    return 0;
}
