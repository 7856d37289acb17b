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

#include "base/defect.h"
#include "story.h"

#define JOBS_MAX 64u
#define REPEATS 32u
#define HEALTHY_SEEDS 200u

_Bool rp_defects[RP_DEFECT_COUNT];
static const char *const defect_names[] = {
#define DEFECT_NAME(name, text) #name,
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

/* Defects that other tests find: in the simulator they have no effect, or too rarely.
 * One a line, so that additions rarely conflict. */
/* clang-format off */
static const char *const found_elsewhere[] = {
    "alert_for_tools",
    "ask_for_each_reader",
    "ask_silent_engines",
    "blame_next_stage",
    "change_steps_late",
    "close_files_in_use",
    "compare_across_stages",
    "compare_dealt_rows",
    "count_all_in_first_stage",
    "count_steps_without_a_rank",
    "count_equal_saves",
    "count_older_deliveries",
    "count_rows_before_state",
    "count_steps_from_attach",
    "drop_exported_field",
    "end_stages_as_streams",
    "fetch_during_fill",
    "forget_indexes",
    "forget_names",
    "edit_past_limits",
    "forget_raised_alerts",
    "forget_rewound_copies",
    "forget_shard_stamp",
    "forget_version",
    "ignore_changed_files",
    "ignore_changed_objects",
    "ignore_content_range",
    "ignore_directory_id",
    "ignore_short_documents",
    "ignore_trial",
    "import_from_here",
    "insist_on_rings",
    "join_silently",
    "keep_grown_contents",
    "keep_left_position",
    "keep_last_step",
    "keep_slow_readers",
    "side_before_bos",
    "side_of_neighbour",
    "side_not_shifted",
    "ignore_side_length",
    "ignore_side_tokenizer",
    "trust_hashes_of_store",
    "value_for_inserted",
    "trust_side_size",
    "landmark_of_another_stream",
    "leave_batch_out_of_digest",
    "leave_out_journal_stop",
    "leave_out_last_revalidation",
    "lose_live_records",
    "map_small_files",
    "mask_before_bos",
    "match_hidden_keys",
    "outlive_engine",
    "pad_after_end",
    "print_control_characters",
    "provenance_off_by_one",
    "prune_before_copy",
    "save_mapped_tokens",
    "send_token_in_clear",
    "share_parts",
    "show_ended_engines",
    "show_own_words",
    "take_ignored_signals",
    "take_late_weights",
    "tell_no_progress",
    "trust_any_output",
    "trust_cached_bytes",
    "trust_chain_hash",
    "trust_chain_links",
    "trust_changed_inputs",
    "trust_cut_listing",
    "trust_description",
    "trust_fetched_bytes",
    "trust_finished_parts",
    "trust_index_pages",
    "trust_kept_damage",
    "trust_plan_of_one_rank",
    "trust_seen_blocks",
    "wait_before_announcing",
    "wait_for_alert_command",
    "wait_for_any_lock",
    "wait_for_key_command",
};
/* clang-format on */

static bool is_found_here(size_t defect)
{
    for (size_t i = 0; i < sizeof found_elsewhere / sizeof *found_elsewhere; i++)
        if (!strcmp(defect_names[defect], found_elsewhere[i]))
            return false;
    return true;
}

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

/* The seed that the table of DEFECTS.md has for a defect, whose stories are told first; 0 if none.
 * A row: | `NAME` | the breach | SEED | other tests | */
static uint64_t known_seed(const char *table, const char *defect)
{
    FILE *rows = table ? fopen(table, "r") : NULL;
    uint64_t seed = 0;
    char row[1024], name[64];
    while (rows && fgets(row, sizeof row, rows))
        if (sscanf(row, "| `%63[a-z_]` |", name) == 1 && !strcmp(name, defect))
            (void)sscanf(row, "| `%*[a-z_]` |%*[^|]| %" SCNu64 " |", &seed);
    if (rows)
        fclose(rows);
    return seed;
}

/* Each defect must be found, or the simulator proves nothing. */
static int run_controls(const char *table)
{
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);
    int missed = 0;
    if (find_defect(RP_DEFECT_COUNT, options.first, HEALTHY_SEEDS, job)) {
        printf("controls: something is found without a defect\n");
        return 1;
    }
    for (size_t i = 0; i < RP_DEFECT_COUNT; i++) {
        if (!is_found_here(i))
            continue;
        uint64_t known = known_seed(table, defect_names[i]);
        uint64_t seed = known ? find_defect(i, known, 1, job) : 0;
        if (known && !seed)
            printf("%-24s NOT found by seed %" PRIu64 " of the table\n", defect_names[i], known);
        seed = seed ? seed : find_defect(i, options.first, options.seeds, job);
        if (seed)
            printf("%-24s found by seed %" PRIu64 "\n", defect_names[i], seed);
        else
            printf("%-24s NOT FOUND in %" PRIu64 " seeds\n", defect_names[i], options.seeds);
        missed += seed == 0;
    }
    printf(missed ? "controls: %d defects live\n" : "controls: every defect was found\n", missed);
    return missed ? 1 : 0;
}

/* ---- the command line ------------------------------------------------------------------------ */

static int usage(void)
{
    fprintf(stderr, "usage: ringpack_sim [--seeds N] [--first S] [--jobs J] [--defect NAME]\n"
                    "       ringpack_sim --seed S [--trace] [--defect NAME]\n"
                    "       ringpack_sim --controls[=TABLE] [--seeds N]\n");
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
                                          {"controls", 2, NULL, 'c'}, {NULL, 0, NULL, 0}};
    uint64_t single = 0;
    bool controls = false;
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
            controls = true;
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
    if (controls)
        return run_controls(table);
    struct counts counts = {0};
    if (single)
        return tell(single, &counts) ? 0 : 1;
    return tell_many();
}
