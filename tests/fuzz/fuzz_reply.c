/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's answer to a trainer: u8 mode (3: the attachment: none, the answer's body, two
 * descriptors, or the wrong two; 32: the body as well; 4: the bytes are the answer, or else edits
 * of a good one; 8: the ring says it has ended; 16: that its engine stops; 64: the answer is the
 * next engine's, to a trainer that has taken a batch from another one, and its ring has the hash of
 * the contract in it; 128: the answer is one to `stat`), then the bytes.
 *
 * Whatever comes, attach ends in a failure with a message or in a client that takes a batch or a
 * failure; no descriptor stays open. The good answer is accepted. A trainer continues with an
 * engine whose contract has the fields of its own, and with no other. */
#include "canned_answer.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    answer_start();
    return 0;
}

static bool meet_engine(struct rp_error *error)
{
    struct rp_client_options options = {
        .struct_size = sizeof options, .connect_timeout_ns = 1, .restart_timeout_ns = 1};
    struct rp_client *client;
    struct rp_batch batch = {.struct_size = sizeof batch};
    if (!fuzz_accepted(rp_client_attach(&client, &options, error), error))
        return false;
    peer.hung_up = true;
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

static bool is_with_body(unsigned mode)
{
    return mode % 4 == 1 || mode & 32;
}

/* A trainer has taken batch 0; its engine dies, and the next one answers. */
static bool meet_successor(unsigned mode, struct fuzz_input *input, struct rp_error *error)
{
    struct rp_client_options options = {
        .struct_size = sizeof options, .connect_timeout_ns = 1, .restart_timeout_ns = 1};
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct fuzz_input unedited = {NULL, 0};
    struct rp_client *client;
    choose_fds(GOOD_MODE);
    make_answer(GOOD_MODE, &unedited);
    FUZZ_REQUIRE(rp_client_attach(&client, &options, error) == 0);
    FUZZ_REQUIRE(rp_client_next(client, 0, &batch, error) == RP_NEXT_BATCH);
    FUZZ_REQUIRE(rp_client_release(client, &batch) == 0);

    choose_fds(mode &
               ~8u); /* both engines have this ring, and one that has ended has no successor */
    make_answer(mode, input);
    bool is_ours = believe_contract();
    if (is_with_body(mode))
        peer_move_body(sizeof(struct rp_reply));
    peer.hung_up = true;
    FUZZ_REQUIRE(rp_client_next(client, 0, &batch, error) != RP_NEXT_BATCH);
    FUZZ_REQUIRE(rp_client_counts(client, &counts) == 0 && counts.reattaches <= 1);
    FUZZ_REQUIRE(counts.reattaches == 0 || is_ours);
    rp_client_detach(client);
    return counts.reattaches == 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    unsigned mode = (unsigned)fuzz_number(&input, 1);
    char *text = NULL;
    bool good = !(mode & 4) && input.left < 4, with_body = is_with_body(mode), accepted;
    bool follows = (mode & 192) == 64;
    if (!follows) {
        choose_fds(mode);
        make_answer(mode, &input);
        if (with_body)
            peer_move_body(sizeof(struct rp_reply));
    }
    if (mode & 128) {
        accepted = fuzz_accepted(rp_run_stat(NULL, "fuzz", &text, &error), &error);
        FUZZ_REQUIRE(!accepted || strlen(text) < sizeof peer.message);
        rp_text_free(text);
    } else if (follows) {
        accepted = meet_successor(mode, &input, &error);
        good = good && mode % 4 == 2;
    } else {
        accepted = meet_engine(&error);
        good = good && mode % 4 == 2;
    }
    FUZZ_REQUIRE(accepted || !good);
    if (with_body)
        close(peer.fds[peer.fd_count - 1]);
    FUZZ_REQUIRE(fuzz_opened(ring.data.fd) == 1 && fuzz_opened(ring.seats[0].control.fd) == 1);
    FUZZ_REQUIRE(fuzz_opened(peer.fd) == 0 &&
                 !(with_body && fuzz_opened(peer.fds[peer.fd_count - 1])));
    return 0;
}
