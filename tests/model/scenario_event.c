/* SPDX-License-Identifier: Apache-2.0 */
/* An event (shm/wait.c): who sleeps is woken, also when another sleeper was killed. */
#include "model.h"
#include "scenarios.h"
#include "shm/wait.h"

static struct rp_event *event;
static struct rp_a64 *condition;
static uint32_t *data; /* the word of the condition */

static void begin_event(void)
{
    event = model_memory(sizeof *event);
    condition = model_memory(sizeof *condition);
    data = model_memory(sizeof *data);
}

static void run_waiter(void)
{
    while (rp_a64_load_acquire(condition) == 0) {
        uint32_t ticket = rp_event_prepare(event);
        if (rp_a64_load_acquire(condition) != 0)
            rp_event_cancel(event);
        else
            rp_event_sleep(event, ticket, 100000000);
    }
    MODEL_REQUIRE(*data == 42);
}

static void run_signaller(void)
{
    *data = 42;
    rp_a64_store_release(condition, 1);
    rp_event_signal(event);
}

const struct model_scenario model_event = {
    .name = "event",
    .begin = begin_event,
    .threads = {{.name = "signaller", .run = run_signaller},
                {.name = "first", .run = run_waiter, .killable = true},
                {.name = "second", .run = run_waiter}},
    .kills = 1,
};
