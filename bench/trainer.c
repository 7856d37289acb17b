/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c — a C trainer under a magnifying glass, and the bare ring to compare it with.
 *
 *     ringpack_trainer attach run_dir=DIR batches=2000 think_us=1000 log=FILE
 *     ringpack_trainer attach run_dir=DIR batches=200 warm=256 rest_ms=300 read=131072
 *     ringpack_trainer attach run_dir=DIR batches=200 warm=256 rest_ms=300 strict=1
 *     ringpack_trainer attach run_dir=DIR batches=2000 states=FILE back=200
 *     ringpack_trainer slices run_dir=DIR engine=PID
 *     ringpack_trainer bare slots=256 slot_bytes=196608 batches=200 warm=256 read=131072
 *
 * attach: take, check and return a number of batches of a running engine, after `warm` ones (pages
 * of the ring are faulted in then) and a rest, in which the ring fills; `think_us` sleeps after
 * each; `rank` is 0 unless it is given. `log` gets two u64 a batch: when next() was called
 * (CLOCK_MONOTONIC) and how long it took, in ns. SIGTERM ends it early, with its report. `read`
 * sums that number of bytes of input_ids, as a trainer's copy to its device would touch them.
 * `strict` ends it with SIGSYS at any system call but write and exit (seccomp), from the second
 * batch on. `states` keeps the state tokens of the newest batches in a file that outlives the
 * process; `back` attaches from the token of that number of batches before the newest one there.
 *
 * slices: take batches for so long as standard input says, and answer with JSON (slice.h). A slice
 * begins and ends with full rings and an engine whose workers (workers.h) sleep: when its time is
 * over the trainer stops taking, and waits until they have slept for ASLEEP_NS; the slice ended
 * where that began. So a slice has the engine's work for as many tokens as were taken, whatever it
 * had read and packed ahead, and no slice has its idle time.
 *
 * bare: the cost of a hand-over of slots through shared memory between any two processes: a child
 * fills the ring, the parent takes. One word each way, no checks, no sleeps; the memory is of the
 * kind that the engine takes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "ringpack/client.h"
#include "shm/segment.h"
#include "slice.h"
#include "workers.h"

struct arguments {
    const char *run, *run_dir, *log, *states;
    uint64_t batches, warm, rest_ms, think_us, read, strict, slots, slot_bytes, rank, back, engine;
};

/* State tokens in a file: the token of the state after batch k is in slot k mod STATES_KEPT. */
#define STATES_KEPT 4096u
#define STATE_BYTES_MAX 16368u
struct states {
    uint64_t newest; /* 1 + the number of the newest batch; 0: no batch yet */
    uint64_t reserved;
    struct {
        uint64_t batch, bytes;
        uint8_t token[STATE_BYTES_MAX];
    } slots[STATES_KEPT];
};

struct result {
    uint64_t batches, waits, ns, sum, slot_bytes;
    struct rusage before, after;
};

_Noreturn static void refuse(const char *what)
{
    fprintf(stderr, "ringpack_trainer: %s\n", what);
    exit(2);
}

/* The thread's time: other load of a busy machine is not counted. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t sum_of(const void *bytes, uint64_t count)
{
    const uint64_t *words = bytes;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count / sizeof *words; i++)
        sum += words[i];
    return sum;
}

/* No call that stdio or the allocator might make: it may be forbidden by now. */
_Noreturn static void report(const struct result *r)
{
    char text[512];
    int length = snprintf(text, sizeof text,
                          "{\"batches\": %" PRIu64 ", \"cpu_ns\": %.1f, \"waits\": %" PRIu64
                          ", \"sum\": %" PRIu64 ", \"switches\": %ld, \"slot_bytes\": %" PRIu64
                          "}\n",
                          r->batches, (double)r->ns / (double)(r->batches ? r->batches : 1),
                          r->waits, r->sum, r->after.ru_nvcsw - r->before.ru_nvcsw, r->slot_bytes);
    ssize_t put = write(STDOUT_FILENO, text, (size_t)length);
    syscall(SYS_exit, put == length ? 0 : 2);
    __builtin_unreachable();
}

static volatile sig_atomic_t stop_asked;

static void ask_stop(int number)
{
    (void)number;
    stop_asked = 1;
}

/* ---- with an engine -------------------------------------------------------------------------- */

static struct states *open_states(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct states)) < 0)
        refuse("the file of state tokens cannot be made");
    void *memory = mmap(NULL, sizeof(struct states), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        refuse("the file of state tokens cannot be mapped");
    return memory;
}

static void keep_state(const struct rp_client *client, const struct rp_batch *batch,
                       struct states *states)
{
    const struct rp_geometry *g = rp_client_geometry(client);
    uint64_t number = batch->next_row / ((uint64_t)g->world * g->rows) - 1;
    uint8_t *token = states->slots[number % STATES_KEPT].token;
    size_t bytes = rp_client_state(client, token, STATE_BYTES_MAX);
    if (bytes > STATE_BYTES_MAX)
        refuse("a state token is longer than its place in the file");
    states->slots[number % STATES_KEPT].bytes = bytes;
    states->slots[number % STATES_KEPT].batch = number;
    states->newest = number + 1;
}

static void take_one(struct rp_client *client, const struct arguments *a, struct result *result,
                     struct states *states, uint64_t *log)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_error error;
    uint64_t begin = log ? rp_now_ns() : 0;
    if (rp_client_next(client, -1, &batch, &error) != RP_NEXT_BATCH)
        refuse("the stream ended too early");
    if (log) {
        log[0] = begin;
        log[1] = rp_now_ns() - begin;
    }
    const struct rp_section_layout *ids =
        &rp_client_geometry(client)->sections[RP_SECTION_INPUT_IDS];
    if (a->read)
        result->sum += sum_of(batch.sections[RP_SECTION_INPUT_IDS], ids->bytes);
    if (states)
        keep_state(client, &batch, states);
    rp_client_release(client, &batch);
}

/* Not SECCOMP_MODE_STRICT: it takes the clock's counter away too. */
static void forbid_system_calls(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        refuse("seccomp is not to be had");
}

static void drain(struct rp_client *client, const struct arguments *a, struct states *states,
                  uint64_t *log)
{
    struct rp_client_counts before = {.struct_size = sizeof before};
    struct rp_client_counts after = {.struct_size = sizeof after};
    struct result result = {.slot_bytes = rp_client_geometry(client)->slot_bytes};
    for (uint64_t i = 0; i < a->warm; i++)
        take_one(client, a, &result, states, NULL);
    rp_sleep_ns(1000000 * a->rest_ms);
    if (rp_client_counts(client, &before) < 0)
        refuse("the library does not take the counts");
    getrusage(RUSAGE_SELF, &result.before);
    if (a->strict)
        forbid_system_calls();
    uint64_t begin = a->strict ? 0 : cpu_ns();
    for (uint64_t i = 0; i < a->batches && !stop_asked; i = result.batches) {
        take_one(client, a, &result, states, log ? log + 2 * i : NULL);
        result.batches++;
        if (a->think_us)
            rp_sleep_ns(1000 * a->think_us);
    }
    result.ns = a->strict ? 0 : cpu_ns() - begin;
    if (rp_client_counts(client, &after) < 0)
        refuse("the library does not take the counts");
    result.waits = after.waits - before.waits;
    if (!a->strict)
        getrusage(RUSAGE_SELF, &result.after);
    if (log) {
        FILE *file = fopen(a->log, "wbe");
        if (!file || fwrite(log, 16, result.batches, file) != result.batches || fclose(file) != 0)
            refuse("the log cannot be written");
    }
    report(&result);
}

/* ---- in slices ------------------------------------------------------------------------------- */

#define POLL_NS 100000u
#define ASLEEP_NS 20000000u /* a thread that sleeps for that long is idle */

struct engine {
    clockid_t clock;
    struct workers workers;
};

static struct engine find_engine(pid_t pid)
{
    struct engine engine;
    if (clock_getcpuclockid(pid, &engine.clock) != 0 || !workers_find(&engine.workers, pid))
        refuse("slices need engine=PID, of an engine with packer threads");
    return engine;
}

static uint64_t engine_cpu_ns(const struct engine *engine)
{
    struct timespec t;
    if (clock_gettime(engine->clock, &t) < 0)
        refuse("the engine is gone");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Wait until all workers sleep. Returns when the last of them went to sleep, and the CPU time that
 * the engine had used by then. */
static uint64_t await_sleep(const struct engine *engine, uint64_t *cpu_ns_out)
{
    for (uint64_t asleep = 0;; rp_sleep_ns(POLL_NS)) {
        uint64_t now = rp_now_ns();
        int work = workers_work(&engine->workers);
        if (work < 0)
            refuse("the engine is gone, or its threads are new ones");
        if (work > 0) {
            asleep = 0;
        } else if (asleep == 0) {
            asleep = now;
            *cpu_ns_out = engine_cpu_ns(engine);
        } else if (now - asleep >= ASLEEP_NS) {
            return asleep;
        }
    }
}

static void take_for_slice(struct rp_client *client, struct slice *slice)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_error error;
    if (rp_client_next(client, -1, &batch, &error) != RP_NEXT_BATCH)
        refuse("slices need num_epochs=endless");
    const struct rp_row_info *rows = batch.sections[RP_SECTION_ROWS];
    for (uint32_t i = 0; i < batch.rows; i++)
        slice->tokens += rows[i].tokens;
    slice->rows += batch.rows;
    rp_client_release(client, &batch);
}

_Noreturn static void slices(struct rp_client *client, const struct arguments *a)
{
    struct engine engine = find_engine((pid_t)a->engine);
    uint64_t cpu;
    (void)await_sleep(&engine, &cpu);
    for (struct slice slice; slice_begin(&slice);) {
        slice.engine_cpu_ns = engine_cpu_ns(&engine);
        while (slice_lasts(&slice))
            take_for_slice(client, &slice);
        slice_end(&slice);
        slice.end_ns = rp_max_u64(slice.end_ns, await_sleep(&engine, &cpu));
        slice.engine_cpu_ns = cpu - slice.engine_cpu_ns;
        slice_report(&slice);
    }
    exit(0);
}

static void attach(const struct arguments *a, bool in_slices)
{
    struct rp_client_options options = {
        .struct_size = sizeof options,
        .run = a->run ? a->run : "bench",
        .run_dir = a->run_dir,
        .rank = (uint32_t)a->rank,
    };
    struct rp_client *client;
    struct rp_error error;
    uint64_t *log = NULL;
    struct states *states = a->states ? open_states(a->states) : NULL;
    if (states && a->back) {
        uint64_t number = states->newest - 1 - a->back;
        if (states->newest <= a->back || states->slots[number % STATES_KEPT].batch != number)
            refuse("the file has no state token of that batch");
        options.state = states->slots[number % STATES_KEPT].token;
        options.state_bytes = states->slots[number % STATES_KEPT].bytes;
    }
    signal(SIGTERM, ask_stop);
    if (a->log && !(log = rp_take_pages(16 * a->batches + 1)))
        refuse("out of memory");
    if (rp_client_attach(&client, &options, &error) < 0)
        refuse(error.message);
    if (in_slices)
        slices(client, a);
    drain(client, a, states, log);
}

/* ---- a bare ring ----------------------------------------------------------------------------- */

struct words {
    _Alignas(128) struct rp_a64 tail;
    _Alignas(128) struct rp_a64 release;
};

/* The memory that the engine takes for its rings. */
static void *share(size_t bytes)
{
    struct rp_segment segment;
    struct rp_error error;
    if (rp_segment_create(&segment, "bare-ring", bytes, true, &error) < 0)
        refuse(error.message);
    return segment.data;
}

struct bare {
    struct words *words;
    uint8_t *slots;
};

_Noreturn static void fill(const struct bare *ring, const struct arguments *a)
{
    for (uint64_t k = 0; k < a->warm + a->batches; k++) {
        while (k - rp_a64_load_acquire(&ring->words->release) == a->slots) /* PAIRS bare-ring */
            sched_yield();
        memset(ring->slots + k % a->slots * a->slot_bytes, (int)k, a->slot_bytes);
        rp_a64_store_release(&ring->words->tail, k + 1); /* PAIRS bare-ring */
    }
    _exit(0);
}

static uint64_t take_bare(const struct bare *ring, const struct arguments *a, uint64_t k)
{
    while (rp_a64_load_acquire(&ring->words->tail) == k) /* PAIRS bare-ring */
        ;
    const uint8_t *slot = ring->slots + k % a->slots * a->slot_bytes;
    uint64_t sum = a->read ? sum_of(slot, a->read) : *(const volatile uint64_t *)(const void *)slot;
    rp_a64_store_release(&ring->words->release, k + 1);
    return sum;
}

static void bare(const struct arguments *a)
{
    if (!a->slots || !a->slot_bytes || a->batches > a->slots)
        refuse("bare needs slots, slot_bytes, and no more batches than slots");
    struct result result = {.batches = a->batches};
    struct bare ring = {share(sizeof *ring.words), share(a->slots * a->slot_bytes)};
    pid_t child = fork();
    if (child == 0)
        fill(&ring, a);
    for (uint64_t k = 0; k < a->warm; k++)
        result.sum += take_bare(&ring, a, k);
    waitpid(child, NULL, 0);
    rp_sleep_ns(1000000 * a->rest_ms);
    uint64_t begin = cpu_ns();
    for (uint64_t k = a->warm; k < a->warm + a->batches; k++)
        result.sum += take_bare(&ring, a, k);
    result.ns = cpu_ns() - begin;
    report(&result);
}

/* ---- the program ----------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    struct arguments a = {0};
    const struct {
        const char *key;
        uint64_t *value;
    } numbers[] = {{"batches=", &a.batches}, {"warm=", &a.warm},
                   {"rest_ms=", &a.rest_ms}, {"think_us=", &a.think_us},
                   {"read=", &a.read},       {"strict=", &a.strict},
                   {"slots=", &a.slots},     {"slot_bytes=", &a.slot_bytes},
                   {"rank=", &a.rank},       {"back=", &a.back},
                   {"engine=", &a.engine}};
    for (int i = 2; i < argc; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (!strncmp(argv[i], numbers[k].key, strlen(numbers[k].key)))
                known = rp_text_count(strchr(argv[i], '=') + 1, numbers[k].value);
        if (!strncmp(argv[i], "run_dir=", 8))
            a.run_dir = argv[i] + 8;
        else if (!strncmp(argv[i], "run=", 4))
            a.run = argv[i] + 4;
        else if (!strncmp(argv[i], "log=", 4))
            a.log = argv[i] + 4;
        else if (!strncmp(argv[i], "states=", 7))
            a.states = argv[i] + 7;
        else if (!known)
            refuse("an argument is not understood");
    }
    if (argc > 1 && !strcmp(argv[1], "attach") && a.run_dir)
        attach(&a, false);
    else if (argc > 1 && !strcmp(argv[1], "slices") && a.run_dir)
        attach(&a, true);
    else if (argc > 1 && !strcmp(argv[1], "bare"))
        bare(&a);
    refuse("expected `attach run_dir=DIR batches=N`, `slices run_dir=DIR engine=PID` or "
           "`bare slots=N slot_bytes=N batches=N`");
}
