/* SPDX-License-Identifier: Apache-2.0 */
/* How long a trainer looks before it sleeps: longer only while that finds something. Its looks are
 * the test's (tests/CMakeLists.txt wraps rp_spin), so no clock has a say. */
#include "ring_pair.h"

#include "shm/wait.h"

#define WAITS_A_TRY 8u /* a long look in vain makes all but the last of so many waits short */

static struct {
    struct rp_ring *finds; /* a batch is published at the first look; NULL: nothing comes */
    unsigned looks;
    uint32_t limit_ns; /* of the last look */
} spin;

bool __wrap_rp_spin(uint32_t *spins, uint32_t limit_ns);
bool __wrap_rp_spin(uint32_t *spins, uint32_t limit_ns)
{
    (void)spins;
    spin.looks++;
    spin.limit_ns = limit_ns;
    if (spin.finds)
        rp_ring_publish(spin.finds, spin.finds->tail + 1);
    return spin.finds != NULL;
}

/* One wait, which finds a batch or ends in sleep. Was it a long one? */
static bool waits_long(struct pair *pair, bool finds)
{
    struct rp_error error;
    spin.finds = finds ? &pair->ring : NULL;
    spin.looks = 0;
    if (finds)
        fill(&pair->ring, pair->ring.tail);
    rp_ring_view_wait(&pair->view, 0);
    assert_int_equal(spin.looks, 1);
    assert_int_equal(take(pair, &error), finds ? RP_RING_TAKEN : RP_RING_EMPTY);
    if (finds) {
        (void)rp_ring_view_release(&pair->view, pair->view.next);
        assert_int_equal(rp_ring_poll_release(&pair->ring), 0);
    }
    assert_true(spin.limit_ns >= RP_SPIN_NS);
    return spin.limit_ns > RP_SPIN_NS;
}

static void looks_that_find_something_stay_long(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, 4, 0);
    for (unsigned i = 0; i < 3 * WAITS_A_TRY; i++)
        assert_true(waits_long(&pair, true));
    pair_close(&pair);
}

/* Nothing comes for a long time: every eighth wait tries it. */
static void waits_in_vain_are_short(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, 4, 0);
    for (unsigned i = 0; i < 5 * WAITS_A_TRY; i++)
        assert_int_equal(waits_long(&pair, false), i % WAITS_A_TRY == 0);
    pair_close(&pair);
}

/* A short look that finds something says nothing of long ones: it neither counts nor forgives. */
static void short_looks_that_find_something_change_nothing(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, 4, 0);
    assert_true(waits_long(&pair, false));
    for (unsigned i = 1; i < WAITS_A_TRY; i++) {
        for (unsigned k = 0; k < 2 * WAITS_A_TRY; k++)
            assert_false(waits_long(&pair, true));
        assert_false(waits_long(&pair, false));
    }
    assert_true(waits_long(&pair, false));
    pair_close(&pair);
}

/* One long look that finds something, and all are long again. */
static void a_try_that_finds_something_is_believed(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, 4, 0);
    for (unsigned i = 0; i < 2 * WAITS_A_TRY; i++)
        (void)waits_long(&pair, false);
    assert_true(waits_long(&pair, true));
    assert_true(waits_long(&pair, true));
    assert_true(waits_long(&pair, false));
    for (unsigned i = 1; i < WAITS_A_TRY; i++) /* and forgotten as before */
        assert_false(waits_long(&pair, false));
    assert_true(waits_long(&pair, true));
    pair_close(&pair);
}

/* A batch, a status, a quarantine: with any of them the wait is over before the first look. */
static void news_need_no_look(void **state)
{
    (void)state;
    for (int news = 0; news < 3; news++) {
        struct pair pair;
        pair_open(&pair, 4, 0);
        if (news == 0)
            rp_ring_publish(&pair.ring, 1);
        if (news == 1)
            rp_ring_set_status(&pair.ring, RP_RING_END, 0, NULL);
        if (news == 2) {
            rp_a64_store_release(&control_of(&pair)->release, 3);
            assert_int_equal(rp_ring_poll_release(&pair.ring), -RP_E_PROTOCOL);
        }
        spin.looks = 0;
        rp_ring_view_wait(&pair.view, 0);
        assert_int_equal(spin.looks, 0);
        pair_close(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_that_find_something_stay_long),
        cmocka_unit_test(waits_in_vain_are_short),
        cmocka_unit_test(short_looks_that_find_something_change_nothing),
        cmocka_unit_test(a_try_that_finds_something_is_believed),
        cmocka_unit_test(news_need_no_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
