/* SPDX-License-Identifier: Apache-2.0 */
/* The prefetch ring as memory: its parts do not overlap, words of one lap are not the next lap's,
 * state tokens are kept for as long as they are promised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "flow/ticket.h"

static void open_arena(struct rp_arena *arena)
{
    struct rp_error error;
    const struct rp_arena_sizes sizes = {.ring_count = 3,
                                         .slot_count = 8,
                                         .data_bytes = 8192,
                                         .state_count = 16,
                                         .state_bytes = 100};
    if (rp_arena_create(arena, false, &sizes, &error) != 0)
        fail_msg("%s", error.message);
}

static void words_ascend(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < 100; t++) {
        assert_true(rp_ticket_word(t, RP_TICKET_PLANNED) < rp_ticket_word(t, RP_TICKET_READY));
        assert_true(rp_ticket_word(t, RP_TICKET_READY) < rp_ticket_word(t, RP_TICKET_PACKED));
        assert_true(rp_ticket_word(t, RP_TICKET_PACKED) < rp_ticket_word(t + 1, RP_TICKET_PLANNED));
    }
    assert_true(rp_ticket_word(0, RP_TICKET_PLANNED) > 0); /* 0 is the word of no ticket */
}

/* Every part is filled to its last byte with its own mark; all marks are still there. */
static void parts_do_not_overlap(void **state)
{
    (void)state;
    struct rp_arena arena;
    open_arena(&arena);
    struct part {
        uint8_t *memory;
        size_t bytes;
    } parts[2 + 8 + 1 + 16];
    size_t count = 0;
    parts[count++] = (struct part){(uint8_t *)arena.words, sizeof *arena.words};
    parts[count++] = (struct part){(uint8_t *)arena.free_until, 3 * sizeof *arena.free_until};
    for (uint64_t t = 0; t < 8; t++) {
        assert_int_equal((uintptr_t)rp_arena_ticket(&arena, t) % 128, 0);
        parts[count++] = (struct part){(uint8_t *)rp_arena_ticket(&arena, t),
                                       sizeof(struct rp_ticket)};
    }
    assert_int_equal((uintptr_t)arena.data % 4096, 0);
    parts[count++] = (struct part){arena.data, 8192};
    for (uint64_t k = 0; k < 16; k++)
        parts[count++] = (struct part){(uint8_t *)rp_arena_state(&arena, k),
                                       sizeof(struct rp_state_slot) + arena.state_bytes};
    for (size_t i = 0; i < count; i++) {
        assert_true(parts[i].memory >= arena.segment.data);
        assert_true(parts[i].memory + parts[i].bytes <= arena.segment.data + arena.segment.bytes);
        memset(parts[i].memory, (int)i + 1, parts[i].bytes);
    }
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < parts[i].bytes; b++)
            if (parts[i].memory[b] != i + 1)
                fail_msg("byte %zu of part %zu belongs to part %d", b, i, parts[i].memory[b] - 1);
    rp_arena_close(&arena);
}

static void slots_go_round(void **state)
{
    (void)state;
    struct rp_arena arena;
    open_arena(&arena);
    assert_ptr_equal(rp_arena_ticket(&arena, 3), rp_arena_ticket(&arena, 11));
    assert_ptr_not_equal(rp_arena_ticket(&arena, 3), rp_arena_ticket(&arena, 4));
    rp_a64_store_relaxed(&rp_arena_ticket(&arena, 3)->state, rp_ticket_word(3, RP_TICKET_PACKED));
    rp_a32_store_relaxed(&arena.words->stop, RP_ARENA_STOPS);
    assert_true(rp_arena_stopping(&arena));
    rp_arena_reset(&arena);
    assert_false(rp_arena_stopping(&arena));
    assert_int_equal(rp_a64_load_relaxed(&rp_arena_ticket(&arena, 3)->state), 0);
    rp_arena_close(&arena);
    rp_arena_close(&arena);
}

static void a_state_is_found_under_its_own_position(void **state)
{
    (void)state;
    struct rp_arena arena;
    open_arena(&arena);
    for (uint64_t k = 0; k < 40; k++)
        assert_null(rp_arena_state_at(&arena, k).token);
    struct rp_state_slot *slot = rp_arena_state(&arena, 21);
    slot->bytes = 7;
    slot->next_row = 1234;
    memcpy(slot + 1, "twenty", 7);
    rp_a64_store_release(&slot->position, 22);
    rp_arena_reset(&arena); /* a new start of the flow keeps them */
    struct rp_row_state found = rp_arena_state_at(&arena, 21);
    assert_non_null(found.token);
    assert_int_equal(found.bytes, 7);
    assert_int_equal(found.row, 1234);
    assert_string_equal(found.token, "twenty");
    assert_null(rp_arena_state_at(&arena, 5).token);
    assert_null(rp_arena_state_at(&arena, 37).token);
    rp_arena_close(&arena);
}

/* A block read that failed is not retired, but later tickets are packed from its memory. */
static void tokens_of_a_failed_block_read_are_not_there(void **state)
{
    (void)state;
    struct rp_arena arena;
    open_arena(&arena);
    struct rp_ticket *block_read = rp_arena_ticket(&arena, 11);
    struct rp_transfer piece = {.loaded_by = 11};
    struct rp_error error;
    (void)rp_fail(&error, -RP_E_CORRUPT, NULL, "rot");
    rp_a64_store_relaxed(&block_read->state, rp_ticket_word(11, RP_TICKET_PLANNED));
    assert_false(rp_arena_has_tokens(&arena, 9, &piece));
    rp_a64_store_relaxed(&block_read->state, rp_ticket_word(11, RP_TICKET_READY));
    assert_true(rp_arena_has_tokens(&arena, 9, &piece));
    rp_ticket_fail(block_read, -RP_E_CORRUPT, &error);
    assert_false(rp_arena_has_tokens(&arena, 9, &piece));
    piece.loaded_by = 3; /* retired, so it was good; the slot is the other one's now */
    assert_true(rp_arena_has_tokens(&arena, 9, &piece));
    rp_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_ascend),
        cmocka_unit_test(parts_do_not_overlap),
        cmocka_unit_test(slots_go_round),
        cmocka_unit_test(a_state_is_found_under_its_own_position),
        cmocka_unit_test(tokens_of_a_failed_block_read_are_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
