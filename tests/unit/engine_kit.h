/* SPDX-License-Identifier: Apache-2.0 */
/* engine_kit.h — whole engines in processes of their own over a small corpus, and trainers that
 * know their rows. */
#ifndef RP_TESTS_ENGINE_KIT_H
#define RP_TESTS_ENGINE_KIT_H

#include "flow_kit.h"
#include "patience.h"
#include "receive.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "server/server.h"
#include "ringpack/client.h"

#define ROWS 2u
/* A test may have more ranks: then its engines need dp_world_size and global_batch_size. */
#ifndef RANKS
#define RANKS 2u
#endif
#ifndef DOCUMENTS
#define DOCUMENTS 1500u /* about 170 rows */
#endif
#define SECOND 1000000000ll

static const struct kit_source tomes = {"tomes", 8, 2, DOCUMENTS};
static struct kit kit;
static char run_dir[64];

/* ---- an engine ------------------------------------------------------------------------------- */

struct engine {
    pid_t pid;
    int lifeline; /* our end */
};

static pid_t newest; /* a test that fails leaves it */

KIT int end_newest(void **state)
{
    (void)state;
    if (newest > 0 && kill(newest, SIGKILL) == 0)
        waitpid(newest, NULL, 0);
    newest = 0;
    return 0;
}

/* `options` are pairs of key and text, NULL at the end. */
KIT int configure(struct rp_config *config, const char *const *options, struct rp_error *error)
{
    static const char *const always[] = {"seq_len",
                                         "256",
                                         "batch_size",
                                         "2",
                                         "dp_world_size",
                                         "2",
                                         "global_batch_size",
                                         "8",
                                         "sources",
                                         "tomes",
                                         "io",
                                         "pread",
                                         "prefetch_bytes",
                                         "1mb",
                                         "prefetch_factor",
                                         "2",
                                         "max_docs_per_row",
                                         "64",
                                         "packing_buffer",
                                         "16",
                                         "stream_version",
                                         "1",
                                         "seed",
                                         "5",
                                         "profile",
                                         "full",
                                         NULL};
    int code = 0;
    rp_config_init(config);
    for (const char *const *key = always; code >= 0 && *key; key += 2)
        code = rp_config_set(config, key[0], key[1], error);
    for (const char *const *key = options; code >= 0 && *key; key += 2)
        code = rp_config_set(config, key[0], key[1], error);
    if (code >= 0)
        code = rp_config_set(config, "run_dir", run_dir, error);
    if (code >= 0) /* in the scratch folder, and not in the user's home */
        code = rp_config_set(config, "mount_guard_dir", "records", error);
    return code < 0 ? code : rp_config_finish(config, error);
}

KIT void live(const char *const *options, int ready_fd, int lifeline_fd)
{
    struct rp_config config;
    struct rp_error error = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = configure(&config, options, &error);
    struct rp_engine_options engine = {
        .config = &config, .ready_fd = ready_fd, .lifeline_fd = lifeline_fd};
    if (code >= 0)
        code = rp_engine_run(&engine, &error);
    if (code < 0)
        fprintf(stderr, "engine: %s\n", error.message);
    _exit(code < 0 ? 2 : 0);
}

KIT struct engine engine_start(const char *const *options)
{
    int ready[2], lifeline[2];
    char text[8];
    assert_int_equal(pipe2(ready, O_CLOEXEC) | pipe2(lifeline, O_CLOEXEC), 0);
    struct engine engine = {.pid = fork(), .lifeline = lifeline[1]};
    if (engine.pid == 0) {
        close(ready[0]);
        close(lifeline[1]);
        live(options, ready[1], lifeline[0]);
    }
    newest = engine.pid;
    close(ready[1]);
    close(lifeline[0]);
    assert_int_equal(read(ready[0], text, sizeof text), 6);
    close(ready[0]);
    return engine;
}

/* Its exit status, or 1000 + the signal. */
KIT int engine_wait(struct engine *engine)
{
    int status;
    assert_int_equal(waitpid(engine->pid, &status, 0), engine->pid);
    close(engine->lifeline);
    newest = newest == engine->pid ? 0 : newest;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

KIT int engine_end(struct engine *engine, int signal)
{
    kill(engine->pid, signal);
    return engine_wait(engine);
}

/* ---- trainers -------------------------------------------------------------------------------- */

KIT struct rp_client *replica_trainer(uint32_t rank, uint32_t replica, const void *token,
                                      size_t token_bytes)
{
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run_dir = run_dir,
                                        .rank = rank,
                                        .replica = replica,
                                        .state = token,
                                        .state_bytes = token_bytes,
                                        .connect_timeout_ns = PATIENCE_NS,
                                        .restart_timeout_ns = PATIENCE_NS};
    struct rp_client *client;
    struct rp_error error;
    if (rp_client_attach(&client, &options, &error) != 0)
        fail_msg("rank %u, replica %u: %s", rank, replica, error.message);
    return client;
}

KIT struct rp_client *trainer(uint32_t rank, const void *token, size_t token_bytes)
{
    return replica_trainer(rank, 0, token, token_bytes);
}

/* The next batch of a rank, if there is one, must be the one at `row`; returns the code of
 * rp_client_next. */
KIT int try_to_take(struct rp_client *client, uint64_t row, struct rp_error *error)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    int code = rp_client_next(client, PATIENCE_NS, &batch, error);
    if (code != RP_NEXT_BATCH)
        return code;
    const struct rp_geometry *g = rp_client_geometry(client);
    const struct rp_row_info *info = batch.sections[RP_SECTION_ROWS];
    const struct rp_provenance *all = batch.sections[RP_SECTION_PROVENANCE];
    assert_int_equal(batch.first_row, row);
    for (uint32_t i = 0; i < ROWS; i++, row++) {
        const struct expected_row *expected = &kit.rows[row].expected;
        assert_int_equal(info[i].row, row);
        assert_int_equal(info[i].fragments, row < kit.row_count ? expected->count : 0);
        for (uint32_t f = 0; f < info[i].fragments; f++) {
            assert_int_equal(all[i * g->max_docs_per_row + f].document,
                             expected->fragments[f].document);
            assert_int_equal(all[i * g->max_docs_per_row + f].offset,
                             expected->fragments[f].offset);
        }
    }
    assert_int_equal(rp_client_release(client, &batch), 0);
    return code;
}

/* The same; the engine must not fail. */
KIT int take(struct rp_client *client, uint64_t row)
{
    struct rp_error error = {0};
    int code = try_to_take(client, row, &error);
    if (code < 0)
        fail_msg("row %d: %s", (int)row, error.message);
    return code;
}

/* Batches [first, last) of a run from row 0. */
KIT void take_batches(struct rp_client *client, uint32_t rank, uint64_t first, uint64_t last)
{
    for (uint64_t k = first; k < last; k++)
        assert_int_equal(take(client, (k * RANKS + rank) * ROWS), RP_NEXT_BATCH);
}

KIT void take_by_turns(struct rp_client *const clients[RANKS], uint64_t first, uint64_t last)
{
    for (uint64_t k = first; k < last; k++)
        for (uint32_t r = 0; r < RANKS; r++)
            take_batches(clients[r], r, k, k + 1);
}

KIT struct rp_request attach_request(uint32_t rank, uint64_t row)
{
    return (struct rp_request){.magic = RP_MESSAGE_MAGIC,
                               .abi_version = RP_ABI_VERSION,
                               .kind = RP_REQUEST_ATTACH,
                               .run = "default",
                               .rank = rank,
                               .next_row = row,
                               .step_row = RP_NEXT_ROW_ANY,
                               .pid = getpid()};
}

KIT int ask_for_row(uint32_t rank, uint64_t row)
{
    struct rp_request request = attach_request(rank, row);
    struct rp_error error;
    int fd = rp_socket_connect_within(run_dir, "default", PATIENCE_NS, &error);
    assert_true(fd >= 0);
    assert_int_equal(
        rp_socket_send(fd, &(struct rp_message){.header = &request, .header_bytes = sizeof request},
                       &error),
        0);
    return fd;
}

/* A trainer that only says where it is: its socket. */
KIT int attach_at_row(uint32_t rank, uint64_t row)
{
    static uint8_t message[RP_MESSAGE_BYTES_MAX];
    struct rp_reply reply;
    struct rp_error error;
    for (int fds[2];;) {
        int fd = ask_for_row(rank, row);
        assert_true(receive_into(fd, message, sizeof message, fds, PATIENCE_MS, &error) > 0);
        memcpy(&reply, message, sizeof reply);
        assert_true(reply.text_bytes > reply.contract_bytes); /* WELCOME comes with a state */
        if (reply.kind == RP_REPLY_WELCOME) {
            close(fds[0]);
            close(fds[1]);
            return fd;
        }
        close(fd);
        if (reply.code != -RP_E_BUSY) /* the last one's end has not been seen yet */
            fail_msg("%s", (char *)message + sizeof reply);
        rp_sleep_ns(1000000);
    }
}

/* Also while the engine still forgets a crowd that has just left. */
KIT void stat_must_work(void)
{
    struct rp_error error;
    char *text;
    int code = -RP_E_GONE;
    for (int i = 0; i < PATIENCE_MS && code == -RP_E_GONE; i++, rp_sleep_ns(1000000))
        code = rp_run_stat(run_dir, NULL, &text, &error);
    if (code != 0)
        fail_msg("%s", error.message);
    assert_int_equal(text[0], '{');
    rp_text_free(text);
}

KIT void save_now(void)
{
    struct rp_error error;
    char *text;
    if (rp_run_checkpoint(run_dir, NULL, &text, &error) != 0)
        fail_msg("%s", error.message);
    rp_text_free(text);
}

/* By all flows of the engine since it started. */
KIT uint64_t bytes_read(void)
{
    struct rp_error error;
    char *text;
    assert_int_equal(rp_run_stat(run_dir, NULL, &text, &error), 0);
    const char *at = strstr(text, "\"read_bytes\":");
    assert_non_null(at);
    uint64_t bytes = strtoull(at + strlen("\"read_bytes\":"), NULL, 10);
    rp_text_free(text);
    return bytes;
}

/* Until the rings and the prefetch ring are full. */
KIT uint64_t bytes_read_ahead(void)
{
    uint64_t before, bytes = bytes_read();
    do {
        before = bytes;
        rp_sleep_ns(100000000);
        bytes = bytes_read();
    } while (bytes != before || bytes == 0);
    return bytes;
}

KIT void forget_checkpoints(void)
{
    assert_int_equal(system("rm -rf checkpoints records"), 0);
}

KIT const char *const with_checkpoints[] = {"checkpoint_dir", "checkpoints", NULL};

KIT int engine_enter(void **state)
{
    int code = kit_enter(state);
    struct rp_plan_config config = small_plan();
    snprintf(run_dir, sizeof run_dir, "%s/run", scratch);
    kit_write(&tomes, 0, 60, 4);
    kit_open(&kit, &tomes, 1, &config);
    return code;
}

KIT int engine_leave(void **state)
{
    kit_close(&kit);
    return scratch_leave(state);
}

#endif
