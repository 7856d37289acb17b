/* SPDX-License-Identifier: Apache-2.0 */
/* The window against a list that is searched from end to end. */
#include "plan_corpus.h"

#include "plan/window.h"

enum { THINGS_MAX = 300 };

struct thing {
    uint16_t slot;
    uint32_t value;
};

/* In order of arrival. */
struct model {
    uint32_t count;
    struct thing things[THINGS_MAX];
};

/* How many things of the model stand below thing i in the order of values. */
static uint32_t place_in_model(const struct model *model, uint32_t i, bool older_is_greater)
{
    uint32_t place = 0;
    for (uint32_t j = 0; j < model->count; j++) {
        uint32_t mine = model->things[i].value, other = model->things[j].value;
        place += other < mine || (other == mine && (older_is_greater ? j > i : j < i));
    }
    return place;
}

/* True if the window and the model order everything alike, going up and down. */
static bool is_equal(const struct rp_window *window, const struct model *model)
{
    static uint16_t going_up[THINGS_MAX];
    if (window->count != model->count)
        return false;
    uint16_t slot = RP_WINDOW_NONE;
    for (uint32_t i = 0; i < model->count; i++) {
        slot = rp_window_newer(window, slot);
        if (slot != model->things[i].slot ||
            rp_window_value(window, slot) != model->things[i].value)
            return false;
    }
    if (rp_window_newer(window, slot) != RP_WINDOW_NONE)
        return false;
    slot = RP_WINDOW_NONE;
    for (uint32_t i = 0; i < model->count; i++) {
        uint16_t lower = slot;
        slot = rp_window_upper(window, lower);
        if (slot == RP_WINDOW_NONE || rp_window_lower(window, slot) != lower)
            return false;
        going_up[i] = slot;
    }
    for (uint32_t i = 0; i < model->count; i++)
        if (going_up[place_in_model(model, i, window->older_is_greater)] != model->things[i].slot)
            return false;
    return rp_window_upper(window, slot) == RP_WINDOW_NONE;
}

/* Floor and ceiling of `value` against every thing of the model. */
static void check_search(const struct rp_window *window, const struct model *model, uint32_t value)
{
    uint32_t below = 0, up_to = 0;
    uint16_t floor = RP_WINDOW_NONE, ceiling = RP_WINDOW_NONE;
    for (uint32_t i = 0; i < model->count; i++) {
        below += model->things[i].value < value;
        up_to += model->things[i].value <= value;
    }
    for (uint32_t i = 0; i < model->count; i++) {
        uint32_t place = place_in_model(model, i, window->older_is_greater);
        floor = place + 1 == up_to ? model->things[i].slot : floor;
        ceiling = place == below ? model->things[i].slot : ceiling;
    }
    assert_int_equal(rp_window_floor(window, value), floor);
    assert_int_equal(rp_window_ceiling(window, value), ceiling);
    if (floor != RP_WINDOW_NONE) {
        uint16_t next = rp_window_lower(window, floor);
        assert_int_equal(rp_window_floor_but(window, value, floor), next);
        assert_int_equal(rp_window_floor_but(window, value, next), floor);
    }
}

static void forget(struct model *model, uint32_t index)
{
    model->count--;
    memmove(model->things + index, model->things + index + 1,
            (model->count - index) * sizeof *model->things);
}

static void run_against_model(uint32_t capacity, bool older_is_greater, uint32_t value_max,
                              uint64_t *random)
{
    struct rp_window window;
    struct model model = {0};
    assert_int_equal(rp_window_open(&window, capacity, older_is_greater, NULL), 0);
    for (int operation = 0; operation < 3000; operation++) {
        uint32_t value = 1 + (uint32_t)draw_below(random, value_max);
        uint32_t index = model.count ? (uint32_t)draw_below(random, model.count) : 0;
        uint64_t choice = draw_below(random, 8);
        if (model.count == 0 || (choice < 4 && model.count < capacity)) {
            model.things[model.count].value = value;
            model.things[model.count++].slot = rp_window_add(&window, value);
        } else if (choice < 7) {
            rp_window_remove(&window, model.things[index].slot);
            forget(&model, index);
        } else {
            rp_window_change(&window, model.things[index].slot, value);
            model.things[index].value = value;
        }
        if (operation % 16 == 0 && !is_equal(&window, &model))
            fail_msg("capacity %u values 0 to %u: operation %d", capacity, value_max, operation);
    }
    for (int i = 0; i < 100; i++)
        check_search(&window, &model, 1 + (uint32_t)draw_below(random, value_max + 1));
    if (model.count > 0) { /* control: a model that differs in one value is noticed */
        model.things[0].value++;
        assert_false(is_equal(&window, &model));
    }
    rp_window_clear(&window);
    assert_int_equal(rp_window_floor(&window, value_max), RP_WINDOW_NONE);
    assert_int_equal(rp_window_ceiling(&window, 1), RP_WINDOW_NONE);
    rp_window_close(&window);
}

static void window_orders_as_a_list_does(void **state)
{
    (void)state;
    uint64_t random = test_seed("window_orders_as_a_list_does");
    const uint32_t capacities[] = {1, 2, 3, 15, 16, 17, 33, 64, 100, 255, THINGS_MAX};
    for (size_t i = 0; i < RP_ARRAY_COUNT(capacities); i++)
        for (uint32_t value_max = 1; value_max <= RP_WINDOW_VALUE_MAX; value_max *= 20)
            for (int older_is_greater = 0; older_is_greater < 2; older_is_greater++)
                run_against_model(capacities[i], older_is_greater, value_max, &random);
}

static void greatest_values_fit(void **state)
{
    (void)state;
    struct rp_window window;
    assert_int_equal(rp_window_open(&window, RP_WINDOW_MAX, true, NULL), 0);
    uint16_t newest = RP_WINDOW_NONE;
    for (uint32_t i = 0; i < RP_WINDOW_MAX; i++)
        newest = rp_window_add(&window, RP_WINDOW_VALUE_MAX);
    assert_int_equal(rp_window_floor(&window, RP_WINDOW_VALUE_MAX - 1), RP_WINDOW_NONE);
    assert_int_equal(rp_window_floor(&window, RP_WINDOW_VALUE_MAX), rp_window_oldest(&window));
    assert_int_equal(rp_window_ceiling(&window, RP_WINDOW_VALUE_MAX), newest);
    rp_window_close(&window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_orders_as_a_list_does),
        cmocka_unit_test(greatest_values_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
