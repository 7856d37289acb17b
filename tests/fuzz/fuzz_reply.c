/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's answer to a trainer: u8 mode (3: what is sent along: nothing, one, two, or the wrong
 * two descriptors; 4: the bytes are the answer, or else edits of a good one; 8: the ring says it
 * has ended; 16: that its engine stops; 128: the answer is one to `stat`), then the bytes.
 *
 * Whatever comes, attach ends in a failure with a message or in a client that takes a batch or a
 * failure; no descriptor stays open. The good answer is accepted. */
#include "canned_answer.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    answer_start();
    return 0;
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
        good = good && mode % 4 != 1; /* one descriptor would hold a long answer */
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
