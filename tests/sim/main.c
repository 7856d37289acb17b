/* SPDX-License-Identifier: Apache-2.0 */
/* main.c — ringpack_sim: runs many stories, or one; see story.h and README.md. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "story.h"
#include "switch.h"

#define JOBS_MAX 64u
#define REPEATS 32u
#define HEALTHY_SEEDS 200u

_Bool rp_defects[RP_DEFECT_COUNT];
static const char *const defect_names[] = {
#define DEFECT_NAME(name) #name,
    RP_DEFECTS(DEFECT_NAME)
#undef DEFECT_NAME
};

static struct options {
    uint64_t first, seeds;
    uint32_t jobs;
    const char *defect;
} options = {.first = 1, .seeds = 1000, .jobs = 1};

/* A process that runs some of the stories, in memory that all of them share. */
struct job {
    pid_t pid;
    uint64_t told, failed_seed; /* finished stories; seed of the first that failed, 0 = none */
    struct counts counts;
};

static void add_counts(struct counts *sum, const struct counts *more)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)more;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

/* ---- one story ------------------------------------------------------------------------------- */

static uint64_t seed_now;

static void print_command(void)
{
    fprintf(stderr, "repeat it with: ringpack_sim --seed %" PRIu64 "%s%s --trace\n", seed_now,
            options.defect ? " --defect " : "", options.defect ? options.defect : "");
}

static void crashed(int number)
{
    fprintf(stderr, "seed %" PRIu64 ": %s\n", seed_now, strsignal(number));
    print_command();
    _exit(1);
}

/* A fingerprint of the last story. */
static uint64_t story_fingerprint(void)
{
    return sim.steps * 1000003 + sim.switches * 10007 + sim.now_ns;
}

/* Run the story of a seed. True if no fault was found. */
static bool tell(uint64_t seed, struct counts *counts)
{
    static struct story story;
    uint64_t random = seed_now = seed;
    story = (struct story){.seed = seed, .random = sim_below(&random, UINT64_MAX)};
    uint32_t slice_mean = 1u << sim_below(&random, 9);
    sim_begin(sim_below(&random, UINT64_MAX), slice_mean);
    stream_draw(&story);
    sim_run(director_main, &story);
    story.counts.faults = sim_faults.injected;
    story.counts.steps = sim.steps;
    add_counts(counts, &story.counts);
    bool good = !sim.failure[0];
    sim_end();
    if (!good) {
        fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, sim.failure);
        print_command();
    }
    return good;
}

/* ---- many ------------------------------------------------------------------------------------ */

/* Run a story again. It must be the same, whatever ran before it. */
static bool repeats(uint64_t seed, uint64_t fingerprint)
{
    struct counts ignored = {0};
    (void)tell(seed, &ignored);
    if (story_fingerprint() == fingerprint)
        return true;
    fprintf(stderr, "seed %" PRIu64 " does not repeat itself\n", seed);
    return false;
}

static void work(struct job *job, uint32_t number)
{
    uint64_t fingerprints[REPEATS] = {0};
    for (uint64_t i = number; i < options.seeds && !job->failed_seed; i += options.jobs) {
        if (!tell(options.first + i, &job->counts))
            job->failed_seed = options.first + i;
        if (job->told < REPEATS)
            fingerprints[job->told] = story_fingerprint();
        job->told++;
    }
    for (uint64_t i = 0; i < REPEATS && i < job->told && !job->failed_seed; i++) {
        uint64_t seed = options.first + number + i * options.jobs;
        if (!repeats(seed, fingerprints[i]))
            job->failed_seed = seed;
    }
}

static void sum_up(const struct job *jobs, struct job *sum)
{
    *sum = (struct job){0};
    for (uint32_t i = 0; i < options.jobs; i++) {
        sum->told += jobs[i].told;
        if (jobs[i].failed_seed && (!sum->failed_seed || jobs[i].failed_seed < sum->failed_seed))
            sum->failed_seed = jobs[i].failed_seed;
        add_counts(&sum->counts, &jobs[i].counts);
    }
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Wait for all jobs, and print their progress every ten seconds. True if all ended without a
 * finding. */
static bool await(const struct job *jobs)
{
    bool good = true;
    double begin = seconds_now(), next = begin + 10;
    for (uint32_t left = options.jobs; left > 0;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) {
            left--;
            good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
            continue;
        }
        usleep(20000);
        if (seconds_now() < next)
            continue;
        struct job sum;
        sum_up(jobs, &sum);
        next += 10;
        printf("%" PRIu64 " of %" PRIu64 " seeds, %.0f a second\n", sum.told, options.seeds,
               (double)sum.told / (seconds_now() - begin));
        fflush(stdout);
    }
    return good;
}

static int tell_many(void)
{
    struct job *jobs = mmap(NULL, JOBS_MAX * sizeof *jobs, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double begin = seconds_now();
    for (uint32_t i = 0; i < options.jobs; i++) {
        jobs[i].pid = fork();
        if (jobs[i].pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(&jobs[i], i);
            _exit(jobs[i].failed_seed != 0);
        }
    }
    bool good = await(jobs);
    struct job sum;
    sum_up(jobs, &sum);
    const struct counts *c = &sum.counts;
    printf("%" PRIu64 " seeds from %" PRIu64 "%s%s: %s; %" PRIu64 " lives, %" PRIu64
           " engines, %" PRIu64 " trainers, %" PRIu64 " strangers, %" PRIu64 " kills, %" PRIu64
           " rollbacks, %" PRIu64 " ranks behind, %" PRIu64 " power cuts, %" PRIu64
           " faults, %" PRIu64 " checkpoints promised, %" PRIu64 " rows compared, %" PRIu64
           " steps, %" PRIu64 " streams with stages, %" PRIu64 " that grow, %" PRIu64
           " with a source that joins; %.0f seeds a second\n",
           sum.told, options.first, options.defect ? " with " : "",
           options.defect ? options.defect : "", good ? "0 differences" : "FOUND", c->lives,
           c->engines, c->trainers, c->strangers, c->kills, c->rollbacks, c->fallbacks,
           c->power_cuts, c->faults, c->saves, c->rows, c->steps, c->stages, c->growths, c->joins,
           (double)sum.told / (seconds_now() - begin));
    return good ? 0 : 1;
}

/* ---- positive controls ----------------------------------------------------------------------- */

/* In a child process with the defect (RP_DEFECT_COUNT = without any), run stories until one fails.
 * Returns its seed, 0 if none fails. */
static uint64_t find_defect(size_t defect, uint64_t first, uint64_t seeds, struct job *job)
{
    *job = (struct job){0};
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (defect < RP_DEFECT_COUNT)
            rp_defects[defect] = true;
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        while (!job->failed_seed && job->told++ < seeds)
            if (!tell(first + job->told - 1, &job->counts))
                job->failed_seed = first + job->told - 1;
        _exit(job->failed_seed != 0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid)
        return 0;
    bool found = job->failed_seed || !WIFEXITED(status) || WEXITSTATUS(status) == 1;
    return found ? first + job->told - 1 : 0;
}

/* Whether the table of DEFECTS.md has a seed for a defect: its stories are told first. A row:
 * | `NAME` | the breach | SEED | other tests |, with — for the seed if only other tests find it. */
static bool has_seed(FILE *table, const char *defect, uint64_t *seed)
{
    char row[1024], name[64];
    rewind(table);
    while (fgets(row, sizeof row, table))
        if (sscanf(row, "| `%63[a-z_]` |", name) == 1 && !strcmp(name, defect))
            return sscanf(row, "| `%*[a-z_]` |%*[^|]| %" SCNu64 " |", seed) == 1;
    return false;
}

/* Each defect must be found, or the simulator proves nothing. */
static int run_controls(const char *path)
{
    FILE *table = fopen(path, "r");
    if (!table) {
        perror(path);
        return 2;
    }
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);
    int missed = 0;
    if (find_defect(RP_DEFECT_COUNT, options.first, HEALTHY_SEEDS, job)) {
        printf("controls: something is found without a defect\n");
        return 1;
    }
    for (size_t i = 0; i < RP_DEFECT_COUNT; i++) {
        uint64_t known;
        if (!has_seed(table, defect_names[i], &known))
            continue;
        uint64_t seed = find_defect(i, known, 1, job);
        if (!seed)
            printf("%-24s NOT found by seed %" PRIu64 " of the table\n", defect_names[i], known);
        seed = seed ? seed : find_defect(i, options.first, options.seeds, job);
        if (seed)
            printf("%-24s found by seed %" PRIu64 "\n", defect_names[i], seed);
        else
            printf("%-24s NOT FOUND in %" PRIu64 " seeds\n", defect_names[i], options.seeds);
        missed += seed == 0;
    }
    fclose(table);
    printf(missed ? "controls: %d defects live\n" : "controls: every defect was found\n", missed);
    return missed ? 1 : 0;
}

/* ---- the command line ------------------------------------------------------------------------ */

static int usage(void)
{
    fprintf(stderr, "usage: ringpack_sim [--seeds N] [--first S] [--jobs J] [--defect NAME]\n"
                    "       ringpack_sim --seed S [--trace] [--defect NAME]\n"
                    "       ringpack_sim --controls=TABLE [--seeds N]\n");
    return 2;
}

static bool set_defect(const char *name)
{
    for (size_t i = 0; i < RP_DEFECT_COUNT; i++) {
        if (strcmp(defect_names[i], name))
            continue;
        rp_defects[i] = true;
        options.defect = name;
        return true;
    }
    fprintf(stderr, "no such defect: %s\n", name);
    return false;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"seeds", 1, NULL, 'n'},    {"first", 1, NULL, 'f'},
                                          {"jobs", 1, NULL, 'j'},     {"seed", 1, NULL, 's'},
                                          {"trace", 0, NULL, 't'},    {"defect", 1, NULL, 'd'},
                                          {"controls", 1, NULL, 'c'}, {NULL, 0, NULL, 0}};
    uint64_t single = 0;
    const char *table = NULL;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        uint64_t value = optarg ? strtoull(optarg, NULL, 10) : 0;
        switch (c) {
        case 'n':
            options.seeds = value;
            break;
        case 'f':
            options.first = value;
            break;
        case 'j':
            options.jobs = value >= 1 && value <= JOBS_MAX ? (uint32_t)value : 1;
            break;
        case 's':
            single = value;
            break;
        case 't':
            sim.trace = true;
            break;
        case 'c':
            table = optarg;
            break;
        case 'd':
            if (!set_defect(optarg))
                return 2;
            break;
        default:
            return usage();
        }
    }
    static uint8_t stack[64 << 10];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    if (table)
        return run_controls(table);
    struct counts counts = {0};
    if (single)
        return tell(single, &counts) ? 0 : 1;
    return tell_many();
}
