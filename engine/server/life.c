/* SPDX-License-Identifier: Apache-2.0 */
#include "server/life.h"

#include "base/fail.h"

enum {
    O = RP_LIFE_STARTING,
    R = RP_LIFE_RUNNING,
    F = RP_LIFE_FAILED,
    S = RP_LIFE_STOPPING,
    G = RP_LIFE_STOPPING_FAILED,
    D = RP_LIFE_DONE,
    E = RP_LIFE_DONE_FAILED,
    X = RP_LIFE_STATES
};

/* clang-format off */
static const uint8_t next_states[RP_LIFE_EVENTS][RP_LIFE_STATES] = {
    /*                 O  R  F  S  G  D  E */
    [RP_LIFE_SERVE] = {R, X, X, X, X, X, X},
    [RP_LIFE_FAIL]  = {E, F, F, G, G, X, X},
    [RP_LIFE_STOP]  = {X, S, G, S, G, X, X},
    [RP_LIFE_END]   = {X, X, X, D, E, X, X},
};
/* clang-format on */

enum rp_life_state rp_life_next_state(enum rp_life_state state, enum rp_life_event event)
{
    RP_ASSERT(state < RP_LIFE_STATES && event < RP_LIFE_EVENTS);
    return (enum rp_life_state)next_states[event][state];
}

void rp_life_transition(struct rp_engine_life *life, enum rp_life_event event)
{
    enum rp_life_state next = rp_life_next_state(life->life_state, event);
    RP_ASSERT(next != RP_LIFE_STATES);
    life->life_state = next;
    RP_ASSERT(rp_life_has_failed(life) == (life->code < 0));
}

void rp_life_fail(struct rp_engine_life *life, int code)
{
    RP_ASSERT(code < 0);
    life->code = code;
    rp_life_transition(life, RP_LIFE_FAIL);
}
