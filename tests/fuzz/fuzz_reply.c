/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's answer to a trainer: u8 mode (3: what is sent along: nothing, one, two, or the wrong
 * two descriptors; 4: the bytes are the answer, or else edits of a good one; 8: the ring says it
 * has ended; 16: that its engine stops; 128: the answer is one to `stat`), then the bytes.
 *
 * Whatever comes, attach ends in a failure with a message or in a client that takes a batch or a
 * failure; no descriptor stays open. The good answer is accepted. */
#include <sys/socket.h>

#include "../unit/fake_engine.h"
#include "fuzz.h"

static struct rp_ring ring;
static uint8_t answer[4096];
static size_t answer_bytes;
static int fds[2];
static unsigned fd_count;

static int engine_end = -1;

static void hang_up(void)
{
    if (engine_end >= 0)
        close(engine_end);
    engine_end = -1;
}

/* In the place of rp_socket_connect: an engine that has answered already. */
int __wrap_rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error);
int __wrap_rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error)
{
    (void)run_dir, (void)run, (void)error;
    int pair[2];
    FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_REQUIRE(rp_socket_send(pair[1], answer, answer_bytes, NULL, 0, fds, fd_count, NULL) == 0);
    hang_up();
    engine_end = pair[1];
    return pair[0];
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct rp_geometry geometry = fake_geometry(4, 0);
    signal(SIGPIPE, SIG_IGN);
    FUZZ_REQUIRE(rp_ring_create(&ring, &geometry, (struct rp_hash128){7, 0}, 1, 0, NULL) == 0);
    FUZZ_REQUIRE(rp_ring_attach_trainer(&ring, 0, NULL) == 0);
    fake_write_batch(&ring, 0, 1);
    rp_ring_publish(&ring, 1);
    return 0;
}

static void choose_fds(unsigned mode)
{
    fds[0] = mode % 4 == 3 ? ring.control.fd : ring.data.fd;
    fds[1] = mode % 4 == 3 ? ring.data.fd : ring.control.fd;
    fd_count = mode % 4 == 3 ? 2 : mode % 4;
    rp_ring_set_status(&ring,
                       mode & 8    ? RP_RING_END
                       : mode & 16 ? RP_RING_STOPPED
                                   : RP_RING_RUNNING,
                       1, NULL);
}

static void make_answer(unsigned mode, struct fuzz_input *input)
{
    struct rp_reply good = {.magic = RP_MESSAGE_MAGIC,
                            .abi_version = RP_ABI_VERSION,
                            .kind = mode & 128 ? RP_REPLY_TEXT : RP_REPLY_WELCOME,
                            .text_bytes = 12,
                            .generation = 1};
    answer_bytes = sizeof good + good.text_bytes;
    memcpy(answer, &good, sizeof good);
    memcpy(answer + sizeof good, "state, 0\nxyz", good.text_bytes);
    if (!(mode & 4)) {
        fuzz_edit(input, answer, answer_bytes);
    } else {
        answer_bytes = rp_min_u64(input->left, sizeof answer);
        if (answer_bytes)
            memcpy(answer, input->at, answer_bytes);
    }
}

static bool meet_engine(struct rp_error *error)
{
    struct rp_client_options options = {.connect_timeout_ns = 1, .restart_timeout_ns = 1};
    struct rp_client *client;
    struct rp_batch batch;
    if (!fuzz_accepted(rp_client_attach(&client, &options, error), error))
        return false;
    hang_up();
    for (unsigned i = 0; i < 3; i++) {
        int code = rp_client_next(client, 0, &batch, error);
        FUZZ_REQUIRE(code <= RP_NEXT_END && code != 0);
        if (code != RP_NEXT_BATCH)
            break;
        FUZZ_REQUIRE(fake_batch_holds(&batch, 0) && rp_client_next_row(client) == FAKE_ROWS);
        FUZZ_REQUIRE(rp_client_release(client, &batch) == 0);
    }
    rp_client_detach(client);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    unsigned mode = (unsigned)fuzz_number(&input, 1);
    char *text = NULL;
    int lowest = dup(0);
    close(lowest);
    bool good = !(mode & 4) && input.left < 4, accepted;
    choose_fds(mode);
    make_answer(mode, &input);
    if (mode & 128) {
        accepted = fuzz_accepted(rp_engine_ask(NULL, "fuzz", "stat", &text, &error), &error);
        FUZZ_REQUIRE(!accepted || strlen(text) < sizeof answer);
        rp_text_free(text);
    } else {
        accepted = meet_engine(&error);
        good = good && mode % 4 == 2;
    }
    FUZZ_REQUIRE(accepted || !good);
    hang_up();
    int now = dup(0);
    close(now);
    FUZZ_REQUIRE(now == lowest);
    return 0;
}
