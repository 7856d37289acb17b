/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a whole engine fails once, and all from there on: while it reads its config,
 * opens corpus and checkpoint and starts; while it takes in a trainer, saves and answers; and every
 * allocation of a trainer that attaches. No process crashes or hangs, each failure has a message,
 * and the rows are the right ones. */
#include "engine_kit.h"

#include "memory_faults.h"

#define CALLS_MAX 20000u

static FILE *said; /* the engines' logs */

static void write_config(void)
{
    static const char text[] =
        "stream_version: 1\nsources: [tomes]\nseq_len: 256\nbatch_size: 2\ndp_world_size: 2\n"
        "global_batch_size: 8\nio: pread\nprefetch_bytes: 64kb\nprefetch_factor: 2\n"
        "max_docs_per_row: 64\npacking_buffer: 16\nseed: 5\nprofile: full\n"
        "checkpoint_dir: checkpoints\nrun_record_dir: records\n";
    FILE *file = fopen("memory.yaml", "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, sizeof text - 1, file), sizeof text - 1);
    assert_int_equal(fclose(file), 0);
}

/* An engine from its config file on; the first pipe end says that it is ready. */
static void live_from_file(int ready_fd, uint32_t at, bool for_ever)
{
    struct rp_config config;
    struct rp_error error = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(fileno(said), STDERR_FILENO);
    rp_config_init(&config);
    if (at != UINT32_MAX)
        memory_spoil(getpid(), at, for_ever);
    int code = rp_config_read(&config, "memory.yaml", &error);
    if (code >= 0)
        code = rp_config_set(&config, "run_dir", run_dir, &error);
    if (code >= 0)
        code = rp_config_finish(&config, &error);
    struct rp_engine_options options = {.config = &config, .ready_fd = ready_fd, .lifeline_fd = -1};
    if (code >= 0)
        code = rp_engine_run(&options, &error);
    if (code < 0)
        dprintf(STDERR_FILENO, "failed: %s\n", error.message);
    _exit(code < 0 ? 2 : 0);
}

/* Start one; false if it ended before it was ready, with *status then. */
static bool start(struct engine *engine, uint32_t at, bool for_ever, int *status)
{
    int ready[2];
    char text[8];
    assert_int_equal(ftruncate(fileno(said), 0), 0);
    rewind(said);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    *engine = (struct engine){.pid = fork(), .lifeline = -1};
    if (engine->pid == 0)
        live_from_file(ready[1], at, for_ever);
    newest = engine->pid;
    close(ready[1]);
    bool is_ready = read(ready[0], text, sizeof text) == 6;
    close(ready[0]);
    if (!is_ready)
        *status = engine_wait(engine);
    return is_ready;
}

/* The last that the engine said. */
static const char *words(void)
{
    static char text[2048];
    off_t end = lseek(fileno(said), 0, SEEK_END), room = sizeof text - 1;
    ssize_t bytes = pread(fileno(said), text, (size_t)room, end > room ? end - room : 0);
    text[bytes < 0 ? 0 : bytes] = '\0';
    return text;
}

/* It must have been a failure with words after it. */
static void check_said(uint32_t at)
{
    const char *failure = strstr(words(), "failed: ");
    if (!failure || failure[strlen("failed: ")] == '\n')
        fail_msg("allocation %u: it only said `%s`", at, words());
}

#define USUAL_PATIENCE_NS (SECOND / 5)

/* How long a trainer waits for its answer: briefly, because an engine without memory may give none.
 * On a busy machine an engine may need longer, so it grows until a trainer is taken in. */
static uint64_t trainer_patience_ns = USUAL_PATIENCE_NS;

static void be_more_patient(void)
{
    trainer_patience_ns = rp_min_u64(2 * trainer_patience_ns, PATIENCE_NS);
}

/* The first two batches of a rank; false if the engine ran out of memory before: its threads may do
 * so after it has taken the trainers in. */
static bool take_first(struct rp_client *client, uint32_t rank)
{
    struct rp_error error = {0};
    for (uint64_t k = 0; k < 2; k++) {
        int code = try_to_take(client, (k * RANKS + rank) * ROWS, &error);
        if (code < 0) {
            assert_non_null(strstr(error.message, "out of memory"));
            return false;
        }
        assert_int_equal(code, RP_NEXT_BATCH);
    }
    return true;
}

/* The first batches of both ranks; false if the engine could not take the trainers in, or failed.
 */
static bool read_some(void)
{
    static uint8_t first_state[65536];
    static size_t first_state_bytes;
    struct rp_client *clients[RANKS] = {NULL};
    struct rp_error error;
    bool served = true;
    for (uint32_t rank = 0; served && rank < RANKS; rank++) {
        struct rp_client_options options = {.struct_size = sizeof options,
                                            .run_dir = run_dir,
                                            .rank = rank,
                                            .state = first_state_bytes ? first_state : NULL,
                                            .state_bytes = first_state_bytes,
                                            .connect_timeout_ns = trainer_patience_ns,
                                            .restart_timeout_ns = PATIENCE_NS};
        served = rp_client_attach(&clients[rank], &options, &error) == 0;
        assert_true(served || error.message[0] != '\0');
        if (served && !first_state_bytes)
            first_state_bytes = rp_client_state(clients[rank], first_state, sizeof first_state);
    }
    if (served)
        trainer_patience_ns = USUAL_PATIENCE_NS;
    for (uint32_t rank = 0; served && rank < RANKS; rank++)
        served = take_first(clients[rank], rank);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rp_client_detach(clients[rank]);
    return served;
}

/* The same, until it works. False if the engine has ended. */
static bool read_some_in_the_end(const struct engine *engine)
{
    siginfo_t ended = {.si_pid = 0};
    while (!read_some()) {
        assert_int_equal(waitid(P_PID, (id_t)engine->pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        if (ended.si_pid)
            return false;
        be_more_patient();
    }
    return true;
}

/* The distance, in allocations, between two tries. */
static uint32_t stride(void)
{
    return getenv("RP_LONG") ? 1 : 5;
}

static void starts_or_says_why(bool for_ever)
{
    uint32_t refused = 0, served = 0, calls = UINT32_MAX;
    for (uint32_t at = 0; at < calls; at += stride()) {
        struct engine engine;
        int status;
        assert_true(at < CALLS_MAX);
        forget_checkpoints();
        if (start(&engine, at, for_ever, &status)) {
            served += read_some();
            uint32_t made = memory_mend();
            if (made <= at) { /* no allocation has failed */
                calls = made;
                assert_true(read_some_in_the_end(&engine));
            }
            status = engine_end(&engine, SIGTERM);
        } else {
            refused++;
            check_said(at);
        }
        if (status != 0 && status != 2)
            fail_msg("allocation %u: the engine ended with %d; it said:\n%s", at, status, words());
    }
    print_message("  %u allocations, refused at %u of them, served at %u\n", calls, refused,
                  served);
    assert_true(refused > 0 && served > 0);
}

static void every_allocation_of_the_start_fails_once(void **state)
{
    (void)state;
    starts_or_says_why(false);
}

static void all_from_one_on_fail(void **state)
{
    (void)state;
    starts_or_says_why(true);
}

/* ---- while it runs --------------------------------------------------------------------------- */

/* Every request is answered or refused. Returns how often it was refused. */
static unsigned ask_all(void)
{
    static int (*const questions[])(const char *, const char *, char **,
                                    struct rp_error *) = {rp_run_stat, rp_run_checkpoint};
    unsigned refused = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(questions); i++) {
        struct rp_error error = {0};
        char *text;
        int code = questions[i](run_dir, NULL, &text, &error);
        assert_true(code == 0 || error.message[0] != '\0');
        refused += code != 0;
        if (code == 0)
            rp_text_free(text);
    }
    return refused;
}

/* It continues; or, if the stream cannot be started again, it ends in order and says so. */
static void a_running_engine_goes_on(void **state)
{
    (void)state;
    struct engine engine;
    int status;
    unsigned refused = 0, ended = 0;
    forget_checkpoints();
    assert_true(start(&engine, UINT32_MAX, false, &status));
    for (uint32_t at = 0; at < CALLS_MAX; at++) {
        memory_spoil(engine.pid, at, false);
        refused += !read_some();
        refused += ask_all();
        if (memory_mend() <= at)
            break;
        if (read_some_in_the_end(&engine))
            continue;
        ended++;
        assert_int_equal(engine_wait(&engine), 2);
        check_said(at);
        assert_true(start(&engine, UINT32_MAX, false, &status));
    }
    print_message("  refused %u times, ended %u times\n", refused, ended);
    assert_true(refused > ended);
    assert_true(read_some_in_the_end(&engine)); /* with memory again */
    assert_int_equal(ask_all(), 0);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static void a_trainer_that_attaches(void **state)
{
    (void)state;
    struct engine engine;
    int status;
    unsigned refused = 0;
    forget_checkpoints();
    assert_true(start(&engine, UINT32_MAX, false, &status));
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        bool met = true, attached = false;
        for (uint32_t at = 0; met || !attached; at += met) {
            memory_spoil(getpid(), at, for_ever);
            attached = read_some();
            met = memory_mend() > at;
            refused += met && !attached;
            if (!met && !attached)
                be_more_patient();
        }
    }
    assert_true(refused > 0);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static int enter(void **state)
{
    int code = engine_enter(state);
    memory_spoil(0, 0, false); /* the page is there before anybody is forked */
    said = tmpfile();
    write_config();
    return code;
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("left out: a sanitizer ends the process where its own allocations fail\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_allocation_of_the_start_fails_once, end_newest),
        cmocka_unit_test_teardown(all_from_one_on_fail, end_newest),
        cmocka_unit_test_teardown(a_running_engine_goes_on, end_newest),
        cmocka_unit_test_teardown(a_trainer_that_attaches, end_newest),
    };
    return cmocka_run_group_tests(tests, enter, engine_leave);
}
