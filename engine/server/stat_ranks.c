/* SPDX-License-Identifier: Apache-2.0 */
/* stat_ranks.c — what `ringpack stat` says of each seat. */
#include <ctype.h>

#include "base/clock.h"
#include "server/cause.h"
#include "server/seats.h"
#include "server/stat_parts.h"

/* A consumer may write any time into its control page. */
static uint64_t ns_since(uint64_t begin_ns)
{
    uint64_t now = rp_now_ns();
    return begin_ns && begin_ns < now ? now - begin_ns : 0;
}

/* `holds`: others wait for room, because this seat's consumer has not released its batches, or has
 * not attached. */
static json_t *seat_object(const struct rp_engine *engine, const struct rp_seat *seat)
{
    const struct rp_ring *ring = seat->ring;
    const struct rp_connection *connection = rp_seat_connection(&engine->peers, seat);
    bool holds = rp_seat_fills_ring(seat) && rp_delivery_consumer_waits(&engine->delivery);
    return json_pack("{s:I, s:I, s:b, s:i, s:o, s:I, s:I, s:I, s:b, s:b}", "rank",
                     (json_int_t)ring->geometry.rank, "replica", (json_int_t)seat->replica,
                     "attached", rp_seat_is_attached(seat), "pid", connection ? connection->pid : 0,
                     "attach_batch",
                     connection ? json_integer((json_int_t)connection->first_batch) : json_null(),
                     "tail", (json_int_t)ring->tail, "release", (json_int_t)rp_seat_position(seat),
                     "slots", (json_int_t)ring->geometry.slots, "quarantined",
                     ring->quarantined >> seat->replica & 1, "holds", holds);
}

static json_t *state_word(const struct rp_seat *seat)
{
    char word[RP_SEAT_NAME_BYTES];
    const char *name = rp_seat_state_name(seat->seat_state);
    size_t i = 0;
    for (; name[i] && i + 1 < sizeof word; i++)
        word[i] = (char)tolower((unsigned char)name[i]);
    word[i] = '\0';
    return json_string(word);
}

static void add_waits(json_t *object, const struct rp_seat *seat)
{
    struct rp_waits waits = rp_seat_waits(seat);
    json_t *histogram = json_array();
    for (uint32_t i = 0; i < RP_WAIT_BUCKETS; i++)
        json_array_append_new(histogram, json_integer((json_int_t)waits.counts[i]));
    json_t *own = json_pack(
        "{s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "waits", (json_int_t)rp_waits_count(&waits),
        "wait_seconds", rp_stat_seconds(waits.total_ns), "wait_p50_seconds",
        rp_stat_seconds(rp_waits_percentile_ns(&waits, 50)), "wait_p99_seconds",
        rp_stat_seconds(rp_waits_percentile_ns(&waits, 99)), "wait_max_seconds",
        rp_stat_seconds(waits.longest_ns), "waiting_seconds",
        rp_stat_seconds(ns_since(rp_seat_waits_since_ns(seat))), "wait_histogram", histogram);
    (void)json_object_update(object, own);
    json_decref(own);
}

static json_t *seconds_by_cause(const uint64_t ns[RP_CAUSES])
{
    json_t *seconds = json_object();
    for (enum rp_cause cause = RP_CAUSE_NONE + 1; cause < RP_CAUSES; cause++)
        json_object_set_new(seconds, rp_cause_name(cause), json_real(rp_stat_seconds(ns[cause])));
    return seconds;
}

/* Why it waits now, and why it did. */
static void add_causes(json_t *object, const struct rp_delivery *delivery,
                       const struct rp_seat *seat)
{
    struct rp_seat_cause now = rp_seat_cause(delivery, seat);
    json_object_set_new(object, "cause", json_string(rp_cause_name(now.cause)));
    json_object_set_new(object, "cause_rank",
                        now.holder ? json_integer(now.holder->ring->geometry.rank) : json_null());
    json_object_set_new(object, "cause_replica",
                        now.holder ? json_integer(now.holder->replica) : json_null());
    json_object_set_new(object, "cause_seconds", seconds_by_cause(seat->cause_ns));
}

json_t *rp_stat_ranks(const struct rp_engine *engine)
{
    uint64_t furthest = 0;
    json_t *array = json_array();
    for (uint32_t s = 0; s < engine->delivery.seat_count; s++)
        furthest = rp_max_u64(furthest, rp_seat_position(&engine->delivery.seats[s]));
    for (uint32_t s = 0; s < engine->delivery.seat_count; s++) {
        const struct rp_seat *seat = &engine->delivery.seats[s];
        uint64_t behind = furthest - rp_seat_position(seat);
        uint64_t behind_rows = behind * engine->config->batch_size;
        json_t *object = seat_object(engine, seat);
        json_object_set_new(object, "state", state_word(seat));
        json_object_set_new(object, "behind_rows", json_integer((json_int_t)behind_rows));
        add_waits(object, seat);
        add_causes(object, &engine->delivery, seat);
        json_array_append_new(array, object);
    }
    return array;
}

void rp_stat_add_wait_history(json_t *object, const struct rp_watching *watching)
{
    const struct rp_wait_history *history = &watching->wait_history;
    json_t *periods = json_array();
    for (uint32_t i = 0; i < history->count; i++)
        json_array_append_new(periods, seconds_by_cause(history->waited_ns[i]));
    json_object_set_new(object, "wait_history_seconds",
                        json_real(rp_stat_seconds(history->period_ns)));
    json_object_set_new(object, "wait_history", periods);
}
