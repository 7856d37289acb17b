/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine and a returning trainer: the cost in memory, and the effect on the other ranks. */
#include "engine_kit.h"

#include <poll.h>
#include <sys/stat.h>

/* ---- a trainer in a process of its own ------------------------------------------------------- */

struct visit {
    pid_t pid;
    int quit;   /* closed: it gives up its connection, and lives on */
    ino_t ring; /* which memory it was given */
};

/* Attach without a client: the connection, and the memory of the ring. */
static int attach_raw(uint32_t rank, uint64_t row, ino_t *ring_out)
{
    static uint8_t message[RP_MESSAGE_BYTES_MAX];
    struct rp_reply reply;
    struct rp_error error;
    for (int fds[2];; rp_sleep_ns(1000000)) {
        int fd = ask_for_row(rank, row);
        assert_true(receive_into(fd, message, sizeof message, fds, PATIENCE_MS, &error) > 0);
        memcpy(&reply, message, sizeof reply);
        if (reply.kind == RP_REPLY_WELCOME) {
            struct stat ring;
            assert_int_equal(fstat(fds[0], &ring), 0);
            *ring_out = ring.st_ino;
            close(fds[0]);
            close(fds[1]);
            return fd;
        }
        close(fd);
        if (reply.code != -RP_E_BUSY)
            fail_msg("%s", (char *)message + sizeof reply);
    }
}

static struct visit visit_start(uint32_t rank, uint64_t row)
{
    int ready[2], quit[2];
    char byte;
    struct visit visit = {0};
    assert_int_equal(pipe2(ready, O_CLOEXEC) | pipe2(quit, O_CLOEXEC), 0);
    visit.pid = fork();
    if (visit.pid == 0) {
        close(quit[1]);
        int fd = attach_raw(rank, row, &visit.ring);
        (void)!write(ready[1], &visit.ring, sizeof visit.ring);
        (void)!read(quit[0], &byte, 1);
        close(fd);
        (void)!write(ready[1], &visit.ring, sizeof visit.ring);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &visit.ring, sizeof visit.ring), sizeof visit.ring);
    close(ready[1]);
    close(quit[0]);
    visit.quit = quit[1];
    close(ready[0]);
    return visit;
}

static void visit_kill(struct visit *visit)
{
    assert_int_equal(kill(visit->pid, SIGKILL), 0);
    assert_int_equal(waitpid(visit->pid, NULL, 0), visit->pid);
    close(visit->quit);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t address_space(pid_t pid)
{
    char path[64];
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu", &pages), 1);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The seat's next trainer gets the memory of one that was killed, wherever it continues; so an
 * engine without room for another ring can take it. */
static void a_killed_trainers_memory_is_its_successors(void **state)
{
    (void)state;
    static const char *const large[] = {"prefetch_factor", "64", NULL};
    struct engine engine = engine_start(large);
    struct rp_client *other = trainer(1, NULL, 0);
    struct visit first = visit_start(0, 0);
    visit_kill(&first);
    uint64_t ring = rp_client_geometry(other)->slot_bytes * 64;
    struct rlimit limit = {.rlim_max = RLIM_INFINITY};
    limit.rlim_cur = address_space(engine.pid) + ring / 2;
    assert_int_equal(prlimit(engine.pid, RLIMIT_AS, &limit, NULL), 0);
    struct visit same_row = visit_start(0, 0);
    assert_int_equal(same_row.ring, first.ring);
    visit_kill(&same_row);
    struct visit later_row = visit_start(0, 3 * RANKS * ROWS);
    assert_int_equal(later_row.ring, first.ring);
    visit_kill(&later_row);
    struct visit earlier_row = visit_start(0, RANKS * ROWS);
    assert_int_equal(earlier_row.ring, first.ring);
    take_batches(other, 1, 0, 10);
    visit_kill(&earlier_row);
    rp_client_detach(other);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* A process that lost its connection may read on: its memory goes to no other trainer while it
 * lives. */
static void a_living_readers_memory_is_its_own(void **state)
{
    (void)state;
    static const char *const options[] = {NULL};
    struct engine engine = engine_start(options);
    struct visit first = visit_start(0, 0);
    close(first.quit);
    struct visit second = visit_start(0, 0);
    assert_int_not_equal(second.ring, first.ring);
    close(second.quit);
    first.quit = second.quit = -1;
    visit_kill(&first);
    struct visit third = visit_start(0, 0);
    assert_int_not_equal(third.ring, second.ring);
    visit_kill(&second);
    visit_kill(&third);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* ---- rows that are far ----------------------------------------------------------------------- */

#define MADE_UP (1ull << 60) /* planning to it takes years */
#define FAR_ROW 400000ull    /* planning to it takes a while */

static const char *const endless[] = {"num_epochs", "0", "checkpoint_dir", "checkpoints", NULL};

static bool is_answered(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, 0) == 1;
}

/* A control group with little memory and a fifth of a processor, of version 2 or 1. */
static const struct limit {
    const char *folder, *key, *value;
} limits[2][2] = {
    {{"/sys/fs/cgroup", "memory.max", "33554432"}, {"/sys/fs/cgroup", "cpu.max", "20000 100000"}},
    {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "33554432"},
     {"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "20000"}}};

static void group_path(char path[96], const struct limit *limit)
{
    snprintf(path, 96, "%s/ringpack-test-%d", limit->folder, (int)getpid());
}

static bool group_write(const struct limit *limit, const char *key, const char *value)
{
    char folder[96], path[160];
    group_path(folder, limit);
    snprintf(path, sizeof path, "%s/%s", folder, key);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t written = fd < 0 ? -1 : write(fd, value, strlen(value));
    if (fd >= 0)
        close(fd);
    return written == (ssize_t)strlen(value);
}

/* Memory that the process has already is not moved with it: the limit is for later memory. */
static bool confine(pid_t pid, uint32_t version)
{
    char path[96], text[16];
    bool is_confined = true;
    snprintf(text, sizeof text, "%d", (int)pid);
    for (uint32_t i = 0; i < 2 && is_confined; i++) {
        const struct limit *limit = &limits[version][i];
        group_path(path, limit);
        is_confined = (mkdir(path, 0755) == 0 || errno == EEXIST) &&
                      group_write(limit, limit->key, limit->value) &&
                      group_write(limit, "cgroup.procs", text);
    }
    return is_confined;
}

/* After the case, so that a case that fails leaves no groups either. */
static int end_group(void **state)
{
    char path[96];
    (void)end_newest(state);
    for (uint32_t i = 0; i < 4; i++) {
        group_path(path, &limits[i / 2][i % 2]);
        for (uint32_t tries = 0; rmdir(path) != 0 && errno == EBUSY && tries < 1000; tries++)
            rp_sleep_ns(1000000);
    }
    return 0;
}

/* Two peers name rows beyond any plan, and stay. The ranks are served, stat and saves work, a
 * trainer whose row is far as well comes to its place before them, and SIGTERM is heard. */
static void name_made_up_rows(struct engine *engine)
{
    int made_up[2] = {ask_for_row(0, MADE_UP), ask_for_row(0, MADE_UP + RANKS * ROWS)};
    rp_sleep_ns(20000000);
    stat_must_work();
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    take_by_turns(clients, 0, 10);
    stat_must_work();
    save_now();
    rp_client_detach(clients[0]);
    rp_client_detach(clients[1]);
    close(attach_at_row(0, FAR_ROW));
    assert_false(is_answered(made_up[0]) || is_answered(made_up[1]));
    assert_int_equal(engine_end(engine, SIGTERM), 0);
    close(made_up[0]);
    close(made_up[1]);
}

static void a_made_up_row_holds_up_nobody(void **state)
{
    (void)state;
    forget_checkpoints();
    struct engine engine = engine_start(endless);
    name_made_up_rows(&engine);
    forget_checkpoints();
}

static void a_made_up_row_holds_up_nobody_in_a_small_group(void **state)
{
    (void)state;
    forget_checkpoints();
    struct engine engine = engine_start(endless);
    if (confine(engine.pid, 0) || confine(engine.pid, 1)) {
        name_made_up_rows(&engine);
        forget_checkpoints();
        return;
    }
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    forget_checkpoints();
    print_message("SKIPPED: no control group with limits of memory and processors can be made\n");
    skip();
}

/* A seat may be taken far ahead of the others. The engine does not plan to its row. */
static void a_made_up_row_ahead_of_others_holds_up_nobody(void **state)
{
    (void)state;
    struct engine engine = engine_start(endless);
    struct rp_client *other = trainer(1, NULL, 0);
    int made_up = ask_for_row(0, MADE_UP);
    take_batches(other, 1, 0, 20);
    stat_must_work();
    assert_true(is_answered(made_up));
    close(made_up);
    rp_client_detach(other);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    forget_checkpoints();
}

/* A peer that wanted a far row and has left is forgotten, in any order. */
static void askers_of_far_rows_come_and_go(void **state)
{
    (void)state;
    struct engine engine = engine_start(endless);
    int fds[8];
    for (uint64_t i = 0; i < 24; i++) {
        if (i >= 8)
            close(fds[i % 8]);
        fds[i % 8] = ask_for_row(0, MADE_UP - i * RANKS * ROWS);
        rp_sleep_ns(1000000);
    }
    for (uint32_t i = 0; i < 8; i++)
        close(fds[i * 3 % 8]);
    stat_must_work();
    struct rp_client *client = trainer(0, NULL, 0);
    take_batches(client, 0, 0, 2);
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    forget_checkpoints();
}

/* A row after the end of the stream is refused with a word, however far it is. */
static void a_row_behind_the_end_is_refused(void **state)
{
    (void)state;
    static uint8_t message[RP_MESSAGE_BYTES_MAX];
    static const char *const options[] = {"num_epochs", "200", NULL};
    struct rp_reply reply;
    struct rp_error error;
    int fds[2];
    struct engine engine = engine_start(options);
    int fd = ask_for_row(0, MADE_UP);
    assert_true(receive_into(fd, message, sizeof message, fds, PATIENCE_MS, &error) > 0);
    memcpy(&reply, message, sizeof reply);
    assert_int_equal(reply.kind, RP_REPLY_REFUSED);
    assert_int_equal(reply.code, -RP_E_USAGE);
    assert_non_null(strstr((char *)message + sizeof reply, "1152921504606846976"));
    close(fd);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* ---- read-ahead --------------------------------------------------------------------- */

/* Whether the last trainer of the seat has ended, or has left and may still read its ring: the next
 * one costs no read, and the other rank continues. */
static void a_return_reads_nothing_again(void **state)
{
    (void)state;
    static const char *const threads[] = {"packers", "2", NULL};
    static const char *const processes[] = {"packers", "2", "packer_processes", "true", NULL};
    for (uint32_t round = 0; round < (processes_work() ? 2u : 1u); round++) {
        struct engine engine = engine_start(round ? processes : threads);
        struct rp_client *other = trainer(1, NULL, 0);
        uint64_t bytes = bytes_read_ahead();
        for (uint32_t i = 0; i < 10; i++) {
            struct visit visit = visit_start(0, 0);
            if (i % 2)
                close(visit.quit);
            else
                visit_kill(&visit);
            if (i % 2) { /* it lives until the next one has its seat */
                struct visit next = visit_start(0, 0);
                assert_int_not_equal(next.ring, visit.ring);
                visit.quit = -1;
                visit_kill(&visit);
                visit_kill(&next);
            }
        }
        assert_true(bytes_read() < 2 * bytes); /* fifteen returns; each start reads that much */
        struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), other};
        take_by_turns(clients, 0, 12);
        rp_client_detach(clients[0]);
        rp_client_detach(clients[1]);
        assert_int_equal(engine_end(&engine, SIGTERM), 0);
    }
}

/* ---- a rank that is far behind --------------------------------------------------------------- */

#define BEHIND 10u /* batches; a ring has 2 */

/* Rank 0 attaches from its state after one batch, which its ring does not have any more. */
static struct rp_client *return_far_behind(struct rp_client *clients[RANKS])
{
    static uint8_t token[KIT_STATE_MAX];
    take_by_turns(clients, 0, 1);
    size_t bytes = rp_client_state(clients[0], token, sizeof token);
    assert_true(bytes <= sizeof token);
    take_by_turns(clients, 1, BEHIND);
    rp_client_detach(clients[0]);
    (void)bytes_read_ahead();
    return trainer(0, token, bytes);
}

/* Its neighbour is far ahead when it returns, and gets further before it has taken a batch; the
 * neighbour's read-ahead is not read again; both get every batch, also when the rank returns a
 * second time before it has caught up, and after it has. With little read ahead the flow joins soon
 * (flow/catch_up.h). */
static void stay_behind(const char *prefetch_bytes, const char *packer_processes)
{
    const char *options[] = {
        "num_epochs",     "0", "packers", "2", "prefetch_bytes", prefetch_bytes, "packer_processes",
        packer_processes, NULL};
    struct engine engine = engine_start(options);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    clients[0] = return_far_behind(clients);
    uint64_t bytes = bytes_read();
    take_batches(clients[1], 1, BEHIND, 2 * BEHIND);
    assert_true(bytes_read_ahead() - bytes < 4u << 20);
    take_batches(clients[0], 0, 1, BEHIND / 2);
    rp_client_detach(clients[0]);
    clients[0] = trainer(0, NULL, 0);
    take_batches(clients[0], 0, BEHIND / 2, 2 * BEHIND);
    take_by_turns(clients, 2 * BEHIND, 4 * BEHIND);
    rp_client_detach(clients[0]);
    rp_client_detach(clients[1]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static void a_rank_far_behind_holds_up_nobody(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < (processes_work() ? 2u : 1u); round++) {
        stay_behind("8mb", round ? "true" : "false"); /* a start reads 8 MiB */
        stay_behind("128kb", round ? "true" : "false");
    }
}

/* All of the stream is planned when a rank falls behind, so no row of its ring is planned again: it
 * gets all that is left while the others continue. */
static void a_rank_falls_behind_near_the_end(void **state)
{
    (void)state;
    static const char *const options[] = {"prefetch_bytes", "8mb", NULL};
    static uint8_t token[KIT_STATE_MAX];
    const uint64_t last = rp_div_up(kit.row_count, ROWS * RANKS), slots = 2;
    struct engine engine = engine_start(options);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    take_by_turns(clients, 0, 1);
    size_t bytes = rp_client_state(clients[0], token, sizeof token);
    take_by_turns(clients, 1, last - 2 * slots);
    (void)bytes_read_ahead();
    rp_client_detach(clients[0]);
    clients[0] = trainer(0, token, bytes);
    take_batches(clients[0], 0, 1, last - slots); /* as far as the ring of the other rank */
    take_batches(clients[1], 1, last - 2 * slots, last);
    assert_int_equal(take(clients[1], 0), RP_NEXT_END);
    take_batches(clients[0], 0, last - slots, last);
    assert_int_equal(take(clients[0], 0), RP_NEXT_END);
    rp_client_detach(clients[0]);
    rp_client_detach(clients[1]);
    assert_int_equal(engine_wait(&engine), 0);
}

/* The next engine starts at the checkpoint, which is later than the row of the rank that is behind,
 * and the other rank attaches first. */
static void a_rank_behind_the_start_of_an_engine_is_served(void **state)
{
    (void)state;
    static uint8_t token[KIT_STATE_MAX];
    const uint64_t slots = 2;
    struct engine engine = engine_start(with_checkpoints);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    take_by_turns(clients, 0, 1);
    size_t bytes = rp_client_state(clients[0], token, sizeof token);
    take_by_turns(clients, 1, BEHIND);
    rp_client_detach(clients[0]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    engine = engine_start(with_checkpoints);
    take_batches(clients[1], 1, BEHIND, BEHIND + slots + 1); /* the last one is of this engine */
    clients[0] = trainer(0, token, bytes);
    take_batches(clients[0], 0, 1, BEHIND + slots + 1);
    take_by_turns(clients, BEHIND + slots + 1, BEHIND + slots + 2);
    rp_client_detach(clients[0]);
    rp_client_detach(clients[1]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    forget_checkpoints();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_made_up_row_holds_up_nobody, end_newest),
        cmocka_unit_test_teardown(a_made_up_row_holds_up_nobody_in_a_small_group, end_group),
        cmocka_unit_test_teardown(a_made_up_row_ahead_of_others_holds_up_nobody, end_newest),
        cmocka_unit_test_teardown(askers_of_far_rows_come_and_go, end_newest),
        cmocka_unit_test_teardown(a_row_behind_the_end_is_refused, end_newest),
        cmocka_unit_test_teardown(a_killed_trainers_memory_is_its_successors, end_newest),
        cmocka_unit_test_teardown(a_living_readers_memory_is_its_own, end_newest),
        cmocka_unit_test_teardown(a_return_reads_nothing_again, end_newest),
        cmocka_unit_test_teardown(a_rank_far_behind_holds_up_nobody, end_newest),
        cmocka_unit_test_teardown(a_rank_falls_behind_near_the_end, end_newest),
        cmocka_unit_test_teardown(a_rank_behind_the_start_of_an_engine_is_served, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
