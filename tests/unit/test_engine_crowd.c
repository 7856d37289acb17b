/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine of 64 ranks, ten of which return from an older state at once: more than may have a
 * catch-up flow each (flow/catch_up.h). Every rank gets its rows, and second reads are bounded,
 * however many return. */
#define RANKS 64u
#define DOCUMENTS 8000u
#include "engine_kit.h"

#include <sys/mman.h>

#include "flow/catch_up.h"

#define RETURN 10u /* every sixth rank */
#define BEHIND 4u  /* batches; a ring has 2 */
#define END 6u

static struct rp_client *clients[RANKS];
static uint8_t tokens[RETURN][KIT_STATE_MAX];
static size_t token_bytes[RETURN];

/* The flow reads at most prefetch_bytes ahead. It restarts for each return that finds all catch-up
 * flows taken. */
#define START_BYTES (1u << 20)
#define STARTS_MAX (RETURN / (RP_CATCH_UPS_MAX + 1))

static void return_behind_the_first_batch(uint32_t i)
{
    uint32_t rank = 6 * i;
    rp_client_detach(clients[rank]);
    clients[rank] = trainer(rank, tokens[i], token_bytes[i]);
}

static void ten_of_64_ranks_return_at_once(void **state)
{
    (void)state;
    static const char *const options[] = {
        "dp_world_size", "64", "global_batch_size", "128", "num_epochs", "0", NULL};
    assert_true(RETURN > RP_CATCH_UPS_MAX);
    assert_true(END * RANKS * ROWS <= kit.row_count);
    struct engine engine = engine_start(options);
    for (uint32_t r = 0; r < RANKS; r++)
        clients[r] = trainer(r, NULL, 0);
    take_by_turns(clients, 0, 1);
    for (uint32_t i = 0; i < RETURN; i++) {
        token_bytes[i] = rp_client_state(clients[6 * i], tokens[i], KIT_STATE_MAX);
        assert_true(token_bytes[i] <= KIT_STATE_MAX);
    }
    take_by_turns(clients, 1, BEHIND);
    uint64_t bytes = bytes_read_ahead();
    for (uint32_t i = 0; i < RETURN; i++)
        return_behind_the_first_batch(i);
    for (uint64_t k = 1; k < BEHIND; k++)
        for (uint32_t i = RETURN; i-- > 0;)
            take_batches(clients[6 * i], 6 * i, k, k + 1);
    take_by_turns(clients, BEHIND, END);
    bytes = bytes_read_ahead() - bytes;
    print_message("  read again: %u bytes\n", (unsigned)bytes);
    assert_true(bytes <= (STARTS_MAX + RP_CATCH_UPS_MAX) * START_BYTES);
    for (uint32_t r = 0; r < RANKS; r++)
        rp_client_detach(clients[r]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    forget_checkpoints();
}

/* The engine's process counts in memory that it shares with the test. */
static struct rp_a32 *questions;

bool __real_rp_peer_has_ended(int pidfd);
bool __wrap_rp_peer_has_ended(int pidfd);
bool __wrap_rp_peer_has_ended(int pidfd)
{
    if (questions)
        rp_a32_add_relaxed(questions, 1);
    return __real_rp_peer_has_ended(pidfd);
}

/* An attach is no question to each consumer that is attached already. */
static void an_attach_costs_the_same_in_a_crowd(void **state)
{
    (void)state;
    static const char *const options[] = {"dp_world_size", "64", "global_batch_size", "128", NULL};
    questions = mmap(NULL, sizeof *questions, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    assert_true(questions != MAP_FAILED);
    struct engine engine = engine_start(options);
    for (uint32_t r = 0; r < RANKS; r++)
        clients[r] = trainer(r, NULL, 0);
    uint32_t asked = rp_a32_load_relaxed(questions);
    for (uint32_t r = 0; r < RANKS; r++)
        rp_client_detach(clients[r]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    forget_checkpoints();
    print_message("  %u questions\n", asked);
    assert_true(asked <= 4 * RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_attach_costs_the_same_in_a_crowd, end_newest),
        cmocka_unit_test_teardown(ten_of_64_ranks_return_at_once, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
