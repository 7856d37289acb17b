/* SPDX-License-Identifier: Apache-2.0 */
/* The position of a consumer that attaches: some cases by name, and all of a small world, two ranks
 * of two replicas and a few batches, against a specification in rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/bits.h"
#include "server/rejoin_decide.h"
#include "shm/layout.h"

#define BATCH 2u /* rows */
#define STEP 6u  /* no power of two: a step has any number of batches */
#define ANY RP_NEXT_ROW_ANY

static const char *const action_names[] = {"REFUSE", "KEEP", "REBUILD", "MOVE_RING", "MOVE_ALL"};

/* By the first row of batch 0. */
static struct rp_numbering numberings[STEP], by_three, renumbered;

static uint64_t base_of(const struct rp_rejoin_facts *f)
{
    return rp_numbering_base(f->numbering);
}

/* The first row of batch 0 after the decision. */
static uint64_t new_base(const struct rp_rejoin_facts *f, const struct rp_placement *p)
{
    return p->renumbers ? p->step_row % STEP : base_of(f);
}

static void open_numbering(struct rp_numbering *numbering, const struct rp_batch_stage *sizes,
                           uint64_t base_row)
{
    struct rp_error error;
    assert_int_equal(rp_numbering_open(numbering, sizes, 1, &error), 0);
    rp_numbering_begin(numbering, base_row);
}

static int open_numberings(void **state)
{
    static const struct rp_batch_stage sizes = {0, BATCH, STEP}, threes = {0, 3, STEP};
    (void)state;
    for (uint64_t base = 0; base < STEP; base++)
        open_numbering(&numberings[base], &sizes, base);
    open_numbering(&renumbered, &sizes, 0);
    open_numbering(&by_three, &threes, 4);
    return 0;
}

static int close_numberings(void **state)
{
    (void)state;
    for (uint64_t base = 0; base < STEP; base++)
        rp_numbering_close(&numberings[base]);
    rp_numbering_close(&renumbered);
    rp_numbering_close(&by_three);
    return 0;
}

static bool has_others(const struct rp_rejoin_facts *f)
{
    return f->others != RP_OTHERS_NONE;
}

static bool names_row(const struct rp_rejoin_facts *f)
{
    return f->requested_by == RP_BY_ROW;
}

/* ---- the specification ----------------------------------------------------------------------- */

/* The row that a consumer gets: its own, or its seat's. */
static uint64_t row_to_give(const struct rp_rejoin_facts *f)
{
    uint64_t position_row = base_of(f) + f->position * BATCH, row = f->row;
    uint64_t others_row = base_of(f) + f->lowest_attached * BATCH;
    if (row == ANY)
        return f->position_is_known ? position_row : f->start_row;
    if (names_row(f) || f->follows != RP_FOLLOWS_END || row < base_of(f))
        return row;
    while ((row - base_of(f)) % (has_others(f) ? BATCH : STEP)) /* padding fills the last one */
        row++;
    if (!has_others(f))
        return row;
    if (position_row >= row && position_row < row + STEP)
        return position_row;
    return others_row >= row && others_row < row + STEP ? others_row : row;
}

/* The first row of a step, as the consumer counts; ANY if it does not say. */
static uint64_t step_to_count_from(const struct rp_rejoin_facts *f, uint64_t row)
{
    if (names_row(f))
        return f->step_row <= row && (row - f->step_row) % BATCH == 0 ? f->step_row : ANY;
    return f->follows == RP_FOLLOWS_ROW && !f->has_consumed ? row : ANY;
}

static struct rp_placement specified(const struct rp_rejoin_facts *f)
{
    uint64_t row = row_to_give(f), step = step_to_count_from(f, row);
    uint64_t tail_row = base_of(f) + f->tail * BATCH;
    uint64_t release_row = base_of(f) + f->release * BATCH;
    uint64_t other_row = f->lowest_other == UINT64_MAX ? row : base_of(f) + f->lowest_other * BATCH;
    bool fits = row >= base_of(f) && (row - base_of(f)) % BATCH == 0;
    bool same_steps = has_others(f) || step == ANY || step % STEP == base_of(f) % STEP;
    bool lowest_is_there = rp_min_u64(row, other_row) >= release_row &&
                           rp_min_u64(row, other_row) <= tail_row;
    bool in_ring = fits && same_steps && f->stream != RP_STREAM_OTHER && lowest_is_there &&
                   (row <= tail_row || f->others == RP_OTHERS_IN_RING);
    struct rp_placement p = {.row = row};
    if (f->has_failed && !(in_ring && !f->memory_may_be_read))
        p.refusal = RP_REFUSAL_FAILED;
    else if (in_ring)
        p.action = f->memory_may_be_read ? RP_PLACEMENT_REBUILD : RP_PLACEMENT_KEEP;
    else if (has_others(f) && f->stream == RP_STREAM_OTHER)
        p.refusal = RP_REFUSAL_OTHER_STREAM;
    else if (has_others(f) && !fits)
        p.refusal = RP_REFUSAL_NOT_NUMBERED;
    else if (has_others(f))
        p.action = row > tail_row && f->others != RP_OTHERS_IN_RING ? RP_PLACEMENT_MOVE_RING
                                                                    : RP_PLACEMENT_REBUILD;
    else
        p.action = RP_PLACEMENT_MOVE_ALL;
    if (p.action == RP_PLACEMENT_MOVE_ALL) {
        p.begins_stream = f->stream == RP_STREAM_OTHER;
        p.forgets_contents = f->stream != RP_STREAM_OURS;
        if (!fits || !same_steps)
            p.step_row = step == ANY ? row : step, p.renumbers = true;
    }
    return p;
}

/* ---- judging --------------------------------------------------------------------------------- */

static void fail_with(const struct rp_rejoin_facts *f, const struct rp_placement *p,
                      const char *what)
{
    fail_msg(
        "%s: %s, refusal %d, row %lld, base %lld, batch %lld; facts: base %lld, start %lld, "
        "failed %d, had %d, others %d, release %lld, tail %lld, other %lld, known %d, read %d, "
        "position %lld, asks by %d, row %lld, step row %lld, follows %d, stream %d",
        what, action_names[p->action], p->refusal, (long long)p->row, (long long)new_base(f, p),
        (long long)p->batch, (long long)base_of(f), (long long)f->start_row, f->has_failed,
        f->has_consumed, f->others, (long long)f->release, (long long)f->tail,
        (long long)f->lowest_other, f->position_is_known, f->memory_may_be_read,
        (long long)f->position, f->requested_by, (long long)f->row, (long long)f->step_row,
        f->follows, f->stream);
}

/* Requirements beyond the specification: a consumer gets its row, and no attached one loses a
 * batch. */
static const char *what_is_broken(const struct rp_rejoin_facts *f, const struct rp_placement *p)
{
    if (p->action == RP_PLACEMENT_REFUSE)
        return p->refusal == RP_REFUSAL_NONE ? "refused without a reason" : NULL;
    if (p->refusal != RP_REFUSAL_NONE)
        return "a reason to refuse, and not refused";
    if (new_base(f, p) + p->batch * BATCH != p->row)
        return "another row than that of the batch";
    if (f->row != ANY && f->follows != RP_FOLLOWS_END && p->row != f->row)
        return "another row than was asked for";
    if (has_others(f) && (p->action == RP_PLACEMENT_MOVE_ALL || p->renumbers))
        return "all are moved though others are attached";
    if (f->others == RP_OTHERS_IN_RING && p->action == RP_PLACEMENT_MOVE_RING)
        return "the ring of others is moved";
    if (p->action == RP_PLACEMENT_KEEP && f->memory_may_be_read)
        return "memory that may be read is given away";
    bool unread = rp_min_u64(p->batch, f->lowest_other) >= f->release;
    if (p->action == RP_PLACEMENT_KEEP && (!unread || p->begins_stream))
        return "the ring does not have the batch";
    if (f->has_failed && p->action != RP_PLACEMENT_KEEP)
        return "a failed engine makes rings";
    return NULL;
}

static void judge(const struct rp_rejoin_facts *f)
{
    struct rp_placement p = rp_rejoin_decide(f), wanted = specified(f);
    const char *broken = what_is_broken(f, &p);
    if (broken)
        fail_with(f, &p, broken);
    bool same_base = p.renumbers == wanted.renumbers && new_base(f, &p) == new_base(f, &wanted);
    if (p.action != wanted.action || p.refusal != wanted.refusal || p.row != wanted.row ||
        !same_base || p.begins_stream != wanted.begins_stream ||
        p.forgets_contents != wanted.forgets_contents) {
        printf("[  wanted  ] %s, refusal %d, row %lld, base %lld\n", action_names[wanted.action],
               wanted.refusal, (long long)wanted.row, (long long)new_base(f, &wanted));
        fail_with(f, &p, "not as specified");
    }
}

/* ---- all of a small world -------------------------------------------------------------------- */

/* All requests of a consumer. */
static uint64_t ask_everything(struct rp_rejoin_facts f)
{
    uint64_t asked = 0;
    f.row = f.step_row = ANY;
    judge(&f);
    for (f.row = 0; f.row < 15; f.row++)
        for (int stream = RP_STREAM_OURS; stream <= RP_STREAM_UNKNOWN; stream++)
            for (int follows = RP_FOLLOWS_NO_TOKEN; follows <= RP_FOLLOWS_DAMAGE; follows++) {
                if (follows == RP_FOLLOWS_NO_TOKEN && stream != RP_STREAM_OURS)
                    continue;
                f.stream = (enum rp_stream_of)stream;
                f.follows = (enum rp_token_follows)follows;
                f.requested_by = RP_BY_ROW;
                for (f.step_row = 0; f.step_row < 7; f.step_row++, asked++)
                    judge(&f);
                f.step_row = ANY;
                judge(&f);
                f.requested_by = RP_BY_TOKEN;
                uint64_t places = follows == RP_FOLLOWS_NO_TOKEN                ? 0
                                  : follows == RP_FOLLOWS_END && has_others(&f) ? 6
                                                                                : 1;
                for (uint64_t place = 0; place < places; place++) {
                    f.lowest_attached = has_others(&f) ? place : UINT64_MAX;
                    judge(&f);
                }
                asked += 1 + places;
            }
    return asked;
}

/* Two ranks of two replicas. bits: further facts, and 16 times the number of `others`. */
static uint64_t visit(uint64_t tail, uint64_t position, uint64_t other, unsigned bits)
{
    struct rp_rejoin_facts f = {.trial = &renumbered,
                                .tail = tail,
                                .position = position,
                                .lowest_other = other,
                                .release = rp_min_u64(position, other),
                                .position_is_known = bits & 1,
                                .memory_may_be_read = bits & 2,
                                .has_failed = bits & 4,
                                .has_consumed = bits & 8,
                                .others = (enum rp_others)(bits / 16)};
    uint64_t asked = 0;
    f.lowest_attached = has_others(&f) ? 0 : UINT64_MAX;
    if (f.release > tail || (f.others == RP_OTHERS_IN_RING && other == UINT64_MAX))
        return 0;
    for (uint64_t base = 0; base < 6; base += base ? 1 : 4) {
        f.numbering = &numberings[base];
        for (f.start_row = 0; f.start_row < 6; f.start_row += 3)
            asked += ask_everything(f);
    }
    return asked;
}

static void every_small_world_is_as_specified(void **state)
{
    (void)state;
    uint64_t asked = 0;
    for (uint64_t tail = 0; tail <= 4; tail++)
        for (uint64_t position = 0; position <= 4; position++)
            for (uint64_t other = 0; other <= 5; other++) /* 5: there is no other replica */
                for (unsigned bits = 0; bits < 48; bits++)
                    asked += visit(tail, position, other == 5 ? UINT64_MAX : other, bits);
    printf("[   asked  ] %llu times\n", (unsigned long long)asked);
    assert_true(asked > 1000000);
}

/* ---- by name --------------------------------------------------------------------------------- */

/* A ring that has batches 2 and 3 of a run whose rows begin at 4; no consumer is attached. */
static const struct rp_rejoin_facts middle = {.numbering = &numberings[4],
                                              .trial = &renumbered,
                                              .start_row = 4,
                                              .has_consumed = true,
                                              .lowest_attached = UINT64_MAX,
                                              .release = 2,
                                              .tail = 4,
                                              .lowest_other = UINT64_MAX,
                                              .position_is_known = true,
                                              .position = 2,
                                              .row = ANY,
                                              .step_row = ANY};

/* If there are other consumers, the lowest is at batch 0 unless the facts have another one. */
static void check(const char *what, struct rp_rejoin_facts facts, enum rp_placement_action action,
                  enum rp_refusal refusal, uint64_t row, uint64_t base_row)
{
    if (has_others(&facts) && facts.lowest_attached == UINT64_MAX)
        facts.lowest_attached = 0;
    struct rp_placement p = rp_rejoin_decide(&facts);
    if (p.action != action || p.refusal != refusal || p.row != row ||
        new_base(&facts, &p) != base_row)
        fail_with(&facts, &p, what);
    judge(&facts);
}

#define WITH(...)                                                                                  \
    (f = middle, (void)(__VA_ARGS__), f) /* middle, but for some assignments to fields of f */

static void ends_by_name(void **state)
{
    (void)state;
    struct rp_rejoin_facts f;
    enum rp_refusal none = RP_REFUSAL_NONE;
    check("a token of the end, in the padding, beside others",
          WITH(f.row = 9, f.requested_by = RP_BY_TOKEN, f.follows = RP_FOLLOWS_END,
               f.position = f.release = 3, f.others = RP_OTHERS_ELSEWHERE),
          RP_PLACEMENT_KEEP, none, 10, 4);
    check("a token of the end, after others that are finished",
          WITH(f.row = 13, f.requested_by = RP_BY_TOKEN, f.follows = RP_FOLLOWS_END, f.tail = 6,
               f.lowest_attached = 6, f.others = RP_OTHERS_ELSEWHERE),
          RP_PLACEMENT_KEEP, none, 16, 4);
    check("a token of the end, alone, is finished",
          WITH(f.row = 9, f.requested_by = RP_BY_TOKEN, f.follows = RP_FOLLOWS_END,
               f.position = f.release = 3),
          RP_PLACEMENT_KEEP, none, 10, 4);
    check("the same with steps that it had not",
          WITH(f.row = 21, f.requested_by = RP_BY_TOKEN, f.follows = RP_FOLLOWS_END,
               f.has_consumed = false),
          RP_PLACEMENT_MOVE_ALL, none, 22, 4);
}

static void cases_by_name(void **state)
{
    (void)state;
    struct rp_rejoin_facts f;
    enum rp_refusal none = RP_REFUSAL_NONE;
    check("it says nothing", middle, RP_PLACEMENT_KEEP, none, 8, 4);
    check("its predecessor may live", WITH(f.memory_may_be_read = true), RP_PLACEMENT_REBUILD, none,
          8, 4);
    check("nothing is known, nothing is said", WITH(f.position_is_known = false),
          RP_PLACEMENT_MOVE_ALL, none, 4, 4);
    check("the same beside others",
          WITH(f.position_is_known = false, f.others = RP_OTHERS_ELSEWHERE), RP_PLACEMENT_REBUILD,
          none, 4, 4);
    check("its next batch is the ring's", WITH(f.row = 12, f.requested_by = RP_BY_ROW),
          RP_PLACEMENT_KEEP, none, 12, 4);
    check("far ahead, alone", WITH(f.row = 20, f.requested_by = RP_BY_ROW), RP_PLACEMENT_MOVE_ALL,
          none, 20, 4);
    check("far ahead, beside others",
          WITH(f.row = 20, f.requested_by = RP_BY_ROW, f.others = RP_OTHERS_ELSEWHERE),
          RP_PLACEMENT_MOVE_RING, none, 20, 4);
    check("ahead of a replica that reads",
          WITH(f.row = 20, f.requested_by = RP_BY_ROW, f.others = RP_OTHERS_IN_RING,
               f.lowest_other = 2),
          RP_PLACEMENT_KEEP, none, 20, 4);
    check("between two batches, beside others",
          WITH(f.row = 9, f.requested_by = RP_BY_ROW, f.others = RP_OTHERS_ELSEWHERE),
          RP_PLACEMENT_REFUSE, RP_REFUSAL_NOT_NUMBERED, 9, 4);
    check("between two batches, alone: a new numbering",
          WITH(f.row = 9, f.requested_by = RP_BY_ROW), RP_PLACEMENT_MOVE_ALL, none, 9, 3);
    check("its steps begin elsewhere", WITH(f.row = 8, f.step_row = 6, f.requested_by = RP_BY_ROW),
          RP_PLACEMENT_MOVE_ALL, none, 8, 0);
    check("a step row that cannot be one",
          WITH(f.row = 8, f.step_row = 5, f.requested_by = RP_BY_ROW), RP_PLACEMENT_KEEP, none, 8,
          4);
    check("the first token begins a step",
          WITH(f.row = 6, f.has_consumed = false, f.requested_by = RP_BY_TOKEN,
               f.follows = RP_FOLLOWS_ROW),
          RP_PLACEMENT_MOVE_ALL, none, 6, 0);
    check("a later one does not",
          WITH(f.row = 6, f.requested_by = RP_BY_TOKEN, f.follows = RP_FOLLOWS_ROW),
          RP_PLACEMENT_MOVE_ALL, none, 6, 4);
    check("another stream, beside others",
          WITH(f.row = 8, f.requested_by = RP_BY_TOKEN, f.follows = RP_FOLLOWS_ROW,
               f.stream = RP_STREAM_OTHER, f.others = RP_OTHERS_ELSEWHERE),
          RP_PLACEMENT_REFUSE, RP_REFUSAL_OTHER_STREAM, 8, 4);
    check("another stream, alone",
          WITH(f.row = 8, f.requested_by = RP_BY_TOKEN, f.follows = RP_FOLLOWS_ROW,
               f.stream = RP_STREAM_OTHER),
          RP_PLACEMENT_MOVE_ALL, none, 8, 4);
    check("a failed engine gives what there is", WITH(f.has_failed = true), RP_PLACEMENT_KEEP, none,
          8, 4);
    check("and nothing else", WITH(f.has_failed = true, f.row = 20, f.requested_by = RP_BY_ROW),
          RP_PLACEMENT_REFUSE, RP_REFUSAL_FAILED, 20, 4);
    check("a seat ahead of its ring, alone, which says nothing",
          WITH(f.position = 6, f.lowest_other = 2), RP_PLACEMENT_MOVE_ALL, none, 16, 4);
}

static void a_step_row_beside_a_token_is_not_looked_at(void **state)
{
    (void)state;
    struct rp_rejoin_facts f;
    check("a token, and a row at which no step begins",
          WITH(f.row = 8, f.step_row = 6, f.requested_by = RP_BY_TOKEN, f.follows = RP_FOLLOWS_ROW),
          RP_PLACEMENT_KEEP, RP_REFUSAL_NONE, 8, 4);
}

/* Rows of a batch of two are even or odd, whether a base row is added or subtracted. With three: */
static void rows_are_counted_from_the_base_row(void **state)
{
    (void)state;
    struct rp_rejoin_facts f = middle;
    struct rp_numbering scratch;
    open_numbering(&scratch, by_three.stages, 0);
    f.numbering = &by_three;
    f.trial = &scratch;
    f.release = f.position = 1;
    f.requested_by = RP_BY_ROW;
    f.row = 7; /* batch 1, from base row 4 */
    f.step_row = 4;
    struct rp_placement p = rp_rejoin_decide(&f);
    assert_int_equal(p.action, RP_PLACEMENT_KEEP);
    assert_int_equal(p.batch, 1);
    f.step_row = 1; /* a step began between two of ours */
    p = rp_rejoin_decide(&f);
    assert_int_equal(p.action, RP_PLACEMENT_MOVE_ALL);
    assert_true(p.renumbers);
    assert_int_equal(p.step_row, 1);
    f.row = 8;
    f.others = RP_OTHERS_ELSEWHERE;
    f.lowest_attached = 0;
    p = rp_rejoin_decide(&f);
    assert_int_equal(p.refusal, RP_REFUSAL_NOT_NUMBERED);
    rp_numbering_close(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_row_beside_a_token_is_not_looked_at),
        cmocka_unit_test(rows_are_counted_from_the_base_row),
        cmocka_unit_test(cases_by_name),
        cmocka_unit_test(ends_by_name),
        cmocka_unit_test(every_small_world_is_as_specified),
    };
    return cmocka_run_group_tests(tests, open_numberings, close_numberings);
}
