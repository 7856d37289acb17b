/* SPDX-License-Identifier: Apache-2.0 */
/* How long a trainer spins before it sleeps: longer only while that finds a batch, and not at all
 * while no spin does. Its spins are the test's (tests/CMakeLists.txt wraps rp_spin), so no clock
 * has a say. */
#include "ring_pair.h"

#include "shm/wait.h"

#define WAITS_A_TRY                                                                                \
    8u /* a long spin in vain makes all but the last of these waits short or none                  \
        */

static struct {
    struct rp_ring *finds; /* a batch is published at the first spin; NULL: no batch comes */
    unsigned looks;
    uint32_t limit_ns; /* length of the last spin */
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

enum look { NONE, SHORT, LONG };

/* One wait, which finds a batch if it looks for one, or ends in sleep. How long was its spin? */
static enum look look_of_a_wait(struct pair *pair, bool finds)
{
    struct rp_error error;
    spin.finds = finds ? &pair->ring : NULL;
    spin.looks = 0;
    if (finds)
        fill(&pair->ring, pair->ring.tail);
    rp_ring_view_wait(&pair->view, 0);
    bool found = finds && spin.looks > 0;
    assert_true(spin.looks <= 1);
    assert_int_equal(take(pair, &error), found ? RP_RING_TAKEN : RP_RING_EMPTY);
    if (found) {
        (void)rp_ring_view_release(&pair->view, pair->view.next);
        assert_int_equal(rp_ring_poll_release(&pair->ring), 0);
    }
    assert_true(spin.looks == 0 || spin.limit_ns >= RP_SPIN_NS);
    return spin.looks == 0 ? NONE : spin.limit_ns > RP_SPIN_NS ? LONG : SHORT;
}

static void looks_that_find_something_stay_long(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, 4, 0);
    for (unsigned i = 0; i < 3 * WAITS_A_TRY; i++)
        assert_int_equal(look_of_a_wait(&pair, true), LONG);
    pair_close(&pair);
}

/* No batch comes for a long time: the spins are short, then there are none, and every eighth wait
 * tries it. */
static void waits_in_vain_are_short_and_then_sleep_at_once(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, 4, 0);
    for (unsigned i = 0; i < 5 * WAITS_A_TRY; i++)
        assert_int_equal(look_of_a_wait(&pair, false), i % WAITS_A_TRY == 0 ? LONG
                                                       : i < WAITS_A_TRY    ? SHORT
                                                                            : NONE);
    pair_close(&pair);
}

/* A short spin that finds a batch is no evidence for long ones: it neither counts nor forgives. */
static void short_looks_that_find_something_change_nothing(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, 4, 0);
    assert_int_equal(look_of_a_wait(&pair, false), LONG);
    for (unsigned i = 1; i < WAITS_A_TRY; i++) {
        for (unsigned k = 0; k < 2 * WAITS_A_TRY; k++)
            assert_int_equal(look_of_a_wait(&pair, true), SHORT);
        assert_int_equal(look_of_a_wait(&pair, false), SHORT);
    }
    assert_int_equal(look_of_a_wait(&pair, false), LONG);
    pair_close(&pair);
}

/* One long spin that finds something, and all are long again. */
static void a_try_that_finds_something_is_believed(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, 4, 0);
    for (unsigned i = 0; i < 2 * WAITS_A_TRY; i++)
        (void)look_of_a_wait(&pair, false);
    assert_int_equal(look_of_a_wait(&pair, true), LONG);
    assert_int_equal(look_of_a_wait(&pair, true), LONG);
    assert_int_equal(look_of_a_wait(&pair, false), LONG);
    for (unsigned i = 1; i < WAITS_A_TRY; i++) /* and forgotten as before */
        assert_int_equal(look_of_a_wait(&pair, false), SHORT);
    assert_int_equal(look_of_a_wait(&pair, true), LONG);
    pair_close(&pair);
}

/* A batch, a status, a quarantine: with any of them the wait is over before the first spin. */
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
        cmocka_unit_test(waits_in_vain_are_short_and_then_sleep_at_once),
        cmocka_unit_test(short_looks_that_find_something_change_nothing),
        cmocka_unit_test(a_try_that_finds_something_is_believed),
        cmocka_unit_test(news_need_no_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
