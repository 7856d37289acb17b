/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine whose flow restarts while another event is due: a checkpoint, a signal. If the
 * engine's thread could serve that in between, it is held in its wait, and then meets all events at
 * once. */
#include "engine_kit.h"

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "checkpoint/checkpoint.h"

#define STEP 4u            /* micro-batches: 8 rows, 2 each */
#define BLOCK_BYTES 14000u /* a block has at least that many; single-document reads are shorter */
#define A_MOMENT_NS 100000u

static const char *const always_due[] = {
    "prefetch_factor", "16",          "dp_world_size",    "1", "shuffle", "none",
    "checkpoint_dir",  "checkpoints", "checkpoint_steps", "1", NULL};

/* The commands to the engine's process, in memory that both see. */
static struct strings {
    struct rp_a32 hold, is_held; /* its wait for events */
    struct rp_a32 is_blind;      /* once it sees none */
    struct rp_a64 bad_from;      /* the first block after this offset cannot be read, */
    struct rp_a64 bad_at;        /* which is here: every read that begins there fails, */
    struct rp_a32 hold_bad;      /* but not before it may */
    struct rp_a32 has_failed;
    ino_t tokens;
} * strings;

static void sleep_while(const struct rp_a32 *word)
{
    while (rp_a32_load_acquire(word))
        rp_sleep_ns(A_MOMENT_NS);
}

static void sleep_until(const struct rp_a32 *word)
{
    while (!rp_a32_load_acquire(word))
        rp_sleep_ns(A_MOMENT_NS);
}

/* ---- in front of the C library --------------------------------------------------------------- */

int epoll_wait(int fd, struct epoll_event *events, int capacity, int timeout_ms)
{
    if (strings && rp_a32_load_acquire(&strings->hold)) {
        rp_a32_store_release(&strings->is_held, 1);
        sleep_while(&strings->hold);
    }
    if (strings && rp_a32_exchange_acquire(&strings->is_blind, 0))
        return 0;
    return epoll_pwait(fd, events, capacity, timeout_ms, NULL);
}

static bool is_bad(int fd, size_t bytes, uint64_t offset)
{
    struct stat info;
    if (!strings || offset < rp_a64_load_acquire(&strings->bad_from) || fstat(fd, &info) != 0 ||
        info.st_ino != strings->tokens)
        return false;
    if (bytes >= BLOCK_BYTES && rp_a64_load_acquire(&strings->bad_at) == UINT64_MAX)
        rp_a64_store_release(&strings->bad_at, offset);
    if (offset != rp_a64_load_acquire(&strings->bad_at))
        return false;
    sleep_while(&strings->hold_bad);
    rp_a32_store_release(&strings->has_failed, 1);
    errno = EIO;
    return true;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    static ssize_t (*next)(int fd, void *data, size_t bytes, off_t offset);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pread");
    return is_bad(fd, bytes, (uint64_t)offset) ? -1 : next(fd, data, bytes, offset);
}

/* A read of cached pages: none, so that a thread reads. */
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    (void)fd, (void)parts, (void)count, (void)offset, (void)flags;
    errno = EAGAIN;
    return -1;
}

/* ---- a trainer that rings no bells: the engine hears of it when it polls --------------------- */

struct quiet {
    int socket;
    struct rp_ring_view view;
};

static int say(int fd, struct rp_request request)
{
    struct rp_error error;
    return rp_socket_send(
        fd, &(struct rp_message){.header = &request, .header_bytes = sizeof request}, &error);
}

static struct quiet be_welcome(int fd)
{
    static uint8_t message[RP_MESSAGE_BYTES_MAX];
    struct quiet quiet = {.socket = fd};
    struct rp_reply reply;
    struct rp_error error;
    int fds[2];
    assert_true(receive_into(fd, message, sizeof message, fds, PATIENCE_MS, &error) > 0);
    memcpy(&reply, message, sizeof reply);
    if (reply.kind != RP_REPLY_WELCOME)
        fail_msg("%.*s", (int)reply.text_bytes, (char *)message + sizeof reply);
    assert_int_equal(rp_ring_view_open(&quiet.view, fds[0], fds[1], reply.first_batch, &error), 0);
    return quiet;
}

static void leave(struct quiet *quiet)
{
    rp_ring_view_close(&quiet->view);
    close(quiet->socket);
}

static bool take_one(struct quiet *quiet)
{
    const uint8_t *slot;
    struct rp_slot_header header;
    struct rp_error error;
    int code = rp_ring_view_take(&quiet->view, &slot, &header, &error);
    assert_true(code == RP_RING_TAKEN || code == RP_RING_EMPTY);
    return code == RP_RING_TAKEN;
}

static void take_a_step(struct quiet *quiet)
{
    for (uint64_t until = quiet->view.next + STEP; quiet->view.next < until;)
        if (!take_one(quiet))
            rp_sleep_ns(A_MOMENT_NS);
}

/* As long as there are any. */
static void take_all(struct quiet *quiet)
{
    take_a_step(quiet);
    for (int idle = 0; idle < 200; idle++, rp_sleep_ns(A_MOMENT_NS))
        while (take_one(quiet))
            idle = 0;
}

/* Batches below `batch`, all at once. Returns the row after them. */
static uint64_t give_back(struct quiet *quiet, uint64_t batch)
{
    (void)rp_ring_view_release(&quiet->view, batch);
    return batch * ROWS;
}

/* ---- an engine that saves every step --------------------------------------------------------- */

static struct engine begin(uint64_t bad_from)
{
    forget_checkpoints();
    rp_a64_store_release(&strings->bad_from, bad_from);
    rp_a64_store_release(&strings->bad_at, UINT64_MAX);
    return engine_start(always_due);
}

static void hold_engine(void)
{
    rp_a32_store_release(&strings->is_held, 0);
    rp_a32_store_release(&strings->hold, 1);
    sleep_until(&strings->is_held);
}

static void let_engine_go(void)
{
    rp_a32_store_release(&strings->hold, 0);
}

/* The row of the newest checkpoint, 0 without one. */
static uint64_t saved_row(void)
{
    struct rp_checkpoint *checkpoint;
    struct rp_error error;
    uint64_t row = 0;
    int code = rp_checkpoint_newest(&checkpoint, "checkpoints", false, &error);
    if (code < 0)
        fail_msg("%s", error.message);
    if (code == 1)
        row = rp_checkpoint_info(checkpoint)->next_row;
    rp_checkpoint_close(checkpoint);
    return row;
}

static void wait_for_save(uint64_t row)
{
    for (uint64_t begin_ns = rp_now_ns(); saved_row() != row; rp_sleep_ns(A_MOMENT_NS))
        if (rp_now_ns() - begin_ns > (uint64_t)PATIENCE_NS)
            fail_msg("no checkpoint of row %d", (int)row);
}

/* A trainer that comes now gets every row from here on. */
static void read_the_rest(uint64_t row)
{
    struct rp_client *client = trainer(0, NULL, 0);
    while (take(client, row) == RP_NEXT_BATCH)
        row += ROWS;
    assert_true(row >= kit.row_count);
    rp_client_detach(client);
}

/* The trainer gave back a step and left before the engine came by, and is back: its ring is
 * rebuilt, and steps are counted from there on. */
static void a_save_that_is_due_outlives_a_move(void **state)
{
    (void)state;
    struct engine engine = begin(UINT64_MAX);
    struct quiet quiet = be_welcome(ask_for_row(0, RP_NEXT_ROW_ANY));
    struct rp_error error;
    int again = rp_socket_connect_within(run_dir, "default", PATIENCE_NS, &error);
    stat_must_work(); /* it has been let in */
    take_a_step(&quiet);
    hold_engine();
    uint64_t row = give_back(&quiet, quiet.view.next);
    leave(&quiet);
    assert_int_equal(say(again, attach_request(0, RP_NEXT_ROW_ANY)), 0);
    let_engine_go();
    quiet = be_welcome(again);
    assert_int_equal(quiet.view.next * ROWS, row);
    wait_for_save(row);
    leave(&quiet);
    read_the_rest(row);
    assert_int_equal(engine_wait(&engine), 0);
}

/* An engine that is held, and that has to restart its flow when it is let go: a block failed. */
static struct engine begin_to_fail(struct quiet *quiet)
{
    rp_a32_store_release(&strings->hold_bad, 1);
    rp_a32_store_release(&strings->has_failed, 0);
    struct engine engine = begin(rp_corpus_shard(kit.corpus, 0)->bytes / 2);
    *quiet = be_welcome(ask_for_row(0, RP_NEXT_ROW_ANY));
    take_all(quiet);
    hold_engine();
    rp_a32_store_release(&strings->hold_bad, 0);
    sleep_until(&strings->has_failed);
    rp_sleep_ns(200 * A_MOMENT_NS); /* for good: the last requested one has failed as well */
    return engine;
}

static void a_save_that_is_due_outlives_a_restart(void **state)
{
    (void)state;
    struct quiet quiet;
    struct engine engine = begin_to_fail(&quiet);
    uint64_t row = give_back(&quiet, quiet.view.next);
    let_engine_go();
    wait_for_save(row);
    leave(&quiet);
    read_the_rest(row);
    assert_int_equal(engine_wait(&engine), 0);
}

/* The signal is served before the flow restarts, or after it. */
static void a_signal_and_a_restart(bool signal_first)
{
    struct quiet quiet;
    struct engine engine = begin_to_fail(&quiet);
    uint64_t row = give_back(&quiet, quiet.view.next);
    row -= row % (STEP * ROWS); /* whole steps of them */
    rp_a32_store_release(&strings->is_blind, !signal_first);
    kill(engine.pid, SIGTERM);
    let_engine_go();
    assert_int_equal(engine_wait(&engine), 0);
    leave(&quiet);
    assert_int_equal(saved_row(), row);
    rp_a64_store_release(&strings->bad_from, UINT64_MAX);
    engine = engine_start(always_due);
    read_the_rest(row);
    assert_int_equal(engine_wait(&engine), 0);
}

static void a_signal_before_a_restart_saves_and_ends_well(void **state)
{
    (void)state;
    a_signal_and_a_restart(true);
}

static void a_signal_in_a_restart_saves_and_ends_well(void **state)
{
    (void)state;
    a_signal_and_a_restart(false);
}

static int restarts_enter(void **state)
{
    struct stat info;
    struct rp_plan_config config = small_plan();
    int code = kit_enter(state);
    config.shuffle = RP_SHUFFLE_NONE;
    snprintf(run_dir, sizeof run_dir, "%s/run", scratch);
    kit_write(&tomes, 0, 60, 4);
    kit_open(&kit, &tomes, 1, &config);
    strings = mmap(NULL, sizeof *strings, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0);
    assert_int_equal(stat("tomes.bin", &info), 0);
    strings->tokens = info.st_ino;
    return code;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_save_that_is_due_outlives_a_move, end_newest),
        cmocka_unit_test_teardown(a_save_that_is_due_outlives_a_restart, end_newest),
        cmocka_unit_test_teardown(a_signal_before_a_restart_saves_and_ends_well, end_newest),
        cmocka_unit_test_teardown(a_signal_in_a_restart_saves_and_ends_well, end_newest),
    };
    return cmocka_run_group_tests(tests, restarts_enter, engine_leave);
}
