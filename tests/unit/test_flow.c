/* SPDX-License-Identifier: Apache-2.0 */
/* A real flow over small files: with any kind and number of workers, over any disk, the batches are
 * the plan's, byte for byte. */
#include "flow_kit.h"

/* ---- every way of working -------------------------------------------------------------------- */

static struct io_fake_script bad_disk(uint64_t seed)
{
    return (struct io_fake_script){
        .seed = seed, .cut = 300, .again = 200, .broken = 50, .lazy = 200, .reorder = true};
}

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    return (uint32_t)(io_fake_random(seed) % below);
}

static const struct rp_io_method *draw_method(uint64_t *seed)
{
    char why[256];
    struct rp_error error;
    const struct rp_io_method *method;
    switch (draw(seed, 3)) {
    case 0:
        return &io_fake_method;
    case 1:
        return &rp_io_method_pread;
    default: /* io_uring where it works */
        assert_int_equal(rp_io_choose(NULL, &method, why, sizeof why, &error), 0);
        return method;
    }
}

static struct rp_flow_options draw_flow(uint64_t *seed)
{
    struct rp_flow_options o = small_flow(draw_method(seed));
    o.readers = 1 + draw(seed, 3);
    o.packers = 1 + draw(seed, 3);
    o.packer_processes = processes_work() && draw(seed, 3) == 0;
    o.o_direct = draw(seed, 2);
    o.mapped = draw(seed, 3) == 0;
    o.verify_blocks = draw(seed, 2);
    o.drop_last = draw(seed, 2);
    o.io_depth = 1 + draw(seed, 9);
    o.dp_world_size = 1 + draw(seed, 3);
    o.rank_count = 1 + draw(seed, o.dp_world_size);
    o.rank_first = draw(seed, o.dp_world_size - o.rank_count + 1);
    o.batch_size = 1 + draw(seed, 6);
    o.step_batches = 1 + draw(seed, 3);
    o.batch_slots = 2u << draw(seed, 3);
    return o;
}

static void print_case(uint64_t seed, const struct rp_flow_options *o)
{
    printf("seed %llu: %s, %u readers, %u packers%s%s%s, ranks %u+%u of %u, %u rows, step %u\n",
           (unsigned long long)seed, o->method->name, o->readers, o->packers,
           o->packer_processes ? " (processes)" : "",
           o->mapped     ? ", mapped"
           : o->o_direct ? ", direct"
                         : "",
           o->verify_blocks ? ", verified" : "", o->rank_first, o->rank_count, o->dp_world_size,
           o->batch_size, (unsigned)(o->step_batches * o->batch_size * o->dp_world_size));
}

static void every_way_of_working(void **state)
{
    (void)state;
    static const uint32_t dtypes[] = {RP_DTYPE_U16, RP_DTYPE_I32, RP_DTYPE_I64};
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    for (uint64_t run = 0; run < 40; run++) {
        uint64_t seed = run * 7919 + 1;
        struct rp_flow_options options = draw_flow(&seed);
        struct io_fake_script script = bad_disk(run);
        struct stream s;
        print_case(run, &options);
        io_fake_set(&script);
        stream_open(&s, &kit, &options, dtypes[run % 3], run % 4 == 3 ? 5 : 0, run);
        stream_start(&s);
        run_to_end(&s);
        check_all_came(&s);
        stream_close(&s);
    }
    kit_close(&kit);
}

/* ---- shapes of streams ----------------------------------------------------------------------- */

/* Hundreds of fragments in a row: it takes more than one ticket, and reads that share blocks. */
static void rows_over_several_tickets(void **state)
{
    (void)state;
    static const struct kit_source crumbs[] = {{"crumbs", 8, 2, 6000}};
    for (int verified = 0; verified < 2; verified++)
        for (int shuffle = 0; shuffle < 3; shuffle++) {
            struct rp_plan_config config = small_plan();
            config.seq_len = config.max_docs_per_row = 2048;
            config.window = 64;
            config.shuffle = (enum rp_shuffle)shuffle;
            config.block_documents = 50;
            config.window_blocks = 3;
            struct kit kit;
            kit_open(&kit, crumbs, 1, &config);
            assert_true(kit.rows[0].expected.count > RP_TICKET_TRANSFERS_MAX);
            struct rp_flow_options options = small_flow(&rp_io_method_pread);
            options.packers = options.readers = 2;
            options.verify_blocks = verified;
            struct stream s;
            stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 3);
            stream_start(&s);
            run_to_end(&s);
            check_all_came(&s);
            stream_close(&s);
            kit_close(&kit);
        }
}

static void every_packing_and_lanes(void **state)
{
    (void)state;
    for (int packing = 0; packing < 3; packing++)
        for (uint32_t lanes = 1; lanes <= 3; lanes += 2) {
            struct rp_plan_config config = small_plan();
            config.packing = (enum rp_packing)packing;
            config.row_gap = packing == RP_PACKING_LOOKAHEAD ? RP_ROW_GAP_SPLIT : RP_ROW_GAP_PAD;
            config.lanes = lanes;
            config.seq_len = 40; /* documents are longer: they are split */
            config.max_docs_per_row = 5;
            struct kit kit;
            kit_open(&kit, two_sources, 2, &config);
            struct rp_flow_options options = small_flow(&rp_io_method_pread);
            options.dp_world_size = options.rank_count = 2;
            options.step_batches = 24 / (options.batch_size * options.dp_world_size);
            options.packers = 2;
            for (uint64_t base = 0; base < 30; base += 13)
                for (int drop = 0; drop < 2; drop++) {
                    struct stream s;
                    options.drop_last = drop;
                    stream_open(&s, &kit, &options, RP_DTYPE_I64, base, 9);
                    stream_start(&s);
                    run_to_end(&s);
                    check_all_came(&s);
                    stream_close(&s);
                }
            kit_close(&kit);
        }
}

/* A run that begins at the very end, as after a resume from there: it has no batch, and says so. */
static void resume_at_the_end(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    for (int drop = 0; drop < 2; drop++) {
        struct stream s;
        options.drop_last = drop;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, kit.row_count, 1);
        stream_start(&s);
        run_to_end(&s);
        assert_int_equal(s.batches, 0);
        check_all_came(&s);
        stream_close(&s);
    }
    kit_close(&kit);
}

/* ---- stop, start, kill ----------------------------------------------------------------------- */

/* One ring back to a batch it has had: its trainer came again, and says it is there. */
static void move_ring(struct stream *s, uint32_t r, uint64_t batch)
{
    struct rp_geometry shape = s->rings[r].geometry;
    rp_ring_view_close(&s->views[r]);
    rp_ring_close(&s->rings[r]);
    stream_make_ring(s, r, batch, &shape);
}

static void stop_and_start_elsewhere(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    struct rp_flow_options options = small_flow(&io_fake_method);
    struct io_fake_script script = bad_disk(17);
    options.dp_world_size = options.rank_count = 3;
    options.batch_size = 2;
    options.step_batches = 12 / (options.batch_size * options.dp_world_size);
    options.readers = options.packers = 2;
    options.packer_processes = processes_work();
    io_fake_set(&script);
    struct stream s;
    struct rp_error error = {0};
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 11);
    for (int turn = 0; turn < 25; turn++) {
        stream_start(&s);
        if (stream_run(&s, 1 + io_fake_random(&s.seed) % 9, &error) < 0)
            fail_msg("%s", error.message);
        rp_flow_stop(s.flow);
        rp_flow_stop(s.flow);
        uint32_t r = (uint32_t)(io_fake_random(&s.seed) % 3);
        uint64_t back = io_fake_random(&s.seed) % 4, next = s.views[r].next;
        if (turn % 2)
            move_ring(&s, r, next > back ? next - back : 0);
    }
    stream_start(&s);
    run_to_end(&s);
    check_all_came(&s);
    stream_close(&s);
    kit_close(&kit);
}

static void killed_packers_are_not_seen(void **state)
{
    (void)state;
    if (!processes_work())
        skip();
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.packers = 3;
    options.packer_processes = true;
    options.batch_size = 2;
    options.step_batches = 2 / (options.batch_size * options.dp_world_size);
    struct stream s;
    struct rp_error error = {0};
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 23);
    stream_start(&s);
    int code = RP_FLOW_WORKED;
    for (int turn = 0; code != RP_FLOW_ENDED; turn++) {
        if (turn % 3 == 0)
            kill_a_packer(&s);
        code = stream_turn(&s, &error);
        if (code < 0)
            fail_msg("%s", error.message);
    }
    trainer_takes(&s, 0);
    struct rp_flow_counts counts;
    rp_flow_counts(s.flow, &counts);
    printf("%d packers were killed and replaced\n", (int)counts.packers_replaced);
    assert_true(counts.packers_replaced > 3);
    check_all_came(&s);
    stream_close(&s);
    kit_close(&kit);
}

/* Tokens as they lay in the prefetch ring at some time. */
struct kept_piece {
    const uint8_t *tokens;
    uint8_t *copy;
    size_t bytes;
};

static size_t keep_tickets(struct stream *s, struct kept_piece *kept, size_t most)
{
    const struct rp_arena *arena = rp_flow_arena(s->flow);
    uint64_t first, last;
    size_t count = 0;
    rp_flow_tickets(s->flow, &first, &last);
    for (uint64_t t = first; t < last; t++) {
        const struct rp_ticket *ticket = rp_arena_ticket(arena, t);
        uint64_t word = rp_a64_load_acquire(&ticket->state);
        if (word != rp_ticket_word(t, RP_TICKET_READY) &&
            word != rp_ticket_word(t, RP_TICKET_PACKED))
            continue;
        for (uint32_t i = 0; i < ticket->transfer_count && count < most; i++) {
            const struct rp_transfer *piece = &ticket->transfers[i];
            if (!rp_arena_is_loaded(arena, piece->loaded_by))
                continue;
            struct kept_piece *k = &kept[count++];
            k->tokens = rp_flow_transfer_tokens(s->flow, piece);
            k->bytes = (size_t)piece->fragment.length * piece->width;
            k->copy = malloc(k->bytes);
            memcpy(k->copy, k->tokens, k->bytes);
        }
    }
    return count;
}

/* While held, published batches and read tickets stay as they are, however the trainers continue.
 */
static void a_hold_keeps_what_a_checkpoint_copies(void **state)
{
    (void)state;
    enum { KEPT_MAX = 10000 };
    struct kept_piece *kept = calloc(KEPT_MAX, sizeof *kept);
    for (int shuffle = RP_SHUFFLE_DOCUMENT; shuffle <= RP_SHUFFLE_BLOCK; shuffle++) {
        struct rp_plan_config config = small_plan();
        config.shuffle = (enum rp_shuffle)shuffle;
        config.block_documents = 16;
        config.window_blocks = 3;
        config.num_epochs = 4;
        struct kit kit;
        kit_open(&kit, two_sources, 2, &config);
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        options.packers = 2;
        options.prefetch_bytes = 1 << 16; /* so little that it goes round many times */
        struct stream s;
        struct rp_error error = {0};
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 29);
        stream_start(&s);
        assert_true(stream_run(&s, 5, &error) >= 0);
        struct rp_ring *ring = &s.rings[0];
        uint64_t first = ring->release, last = ring->tail;
        rp_flow_hold(s.flow, first);
        size_t count = keep_tickets(&s, kept, KEPT_MAX);
        uint8_t *slots = malloc(ring->data.bytes);
        for (uint64_t k = first; k < last; k++) {
            uint64_t at = (uint64_t)(rp_ring_slot(ring, k) - ring->data.data);
            memcpy(slots + at, ring->data.data + at, ring->geometry.slot_bytes);
        }
        for (int turn = 0; turn < 200; turn++)
            assert_true(stream_turn(&s, &error) >= 0);
        for (uint64_t k = first; k < last; k++) {
            const uint8_t *slot = ring->data.data + RP_RING_SLOTS_OFFSET +
                                  (k & (ring->geometry.slots - 1)) * ring->geometry.slot_bytes;
            assert_memory_equal(slot, slots + (slot - ring->data.data), ring->geometry.slot_bytes);
        }
        for (size_t i = 0; i < count; i++) {
            assert_memory_equal(kept[i].tokens, kept[i].copy, kept[i].bytes);
            free(kept[i].copy);
        }
        rp_flow_release_hold(s.flow);
        run_to_end(&s);
        check_all_came(&s);
        free(slots);
        stream_close(&s);
        kit_close(&kit);
    }
    free(kept);
}

/* ---- whole blocks ---------------------------------------------------------------------------- */

struct reading {
    uint64_t reads, bytes, file_bytes;
};

/* Run epochs of 3000 documents of 200 bytes in any order, and count the bytes read. */
static struct reading read_pages(enum rp_shuffle shuffle, uint64_t prefetch_bytes, uint32_t lanes,
                                 uint64_t epochs, bool for_a_quarter)
{
    static const struct kit_source pages[] = {{"pages", 8, 2, 3000}};
    struct rp_plan_config config = small_plan();
    config.shuffle = shuffle;
    config.block_documents = 100;
    config.window_blocks = 4;
    config.lanes = lanes;
    config.num_epochs = epochs;
    struct kit kit;
    struct stream s;
    struct rp_flow_counts counts;
    kit_open(&kit, pages, 1, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.prefetch_bytes = prefetch_bytes;
    options.packers = options.readers = 2;
    options.verify_blocks = true;
    if (for_a_quarter) {
        options.dp_world_size = 4;
        options.rank_count = 1;
        options.rank_first = 1;
        options.step_batches = 16 / (options.batch_size * options.dp_world_size);
    }
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 3);
    stream_start(&s);
    run_to_end(&s);
    check_all_came(&s);
    rp_flow_counts(s.flow, &counts);
    struct reading reading = {.reads = counts.reads,
                              .bytes = counts.read_bytes,
                              .file_bytes = rp_corpus_shard(kit.corpus, 0)->bytes};
    printf("shuffle %d, %llu KiB, %u lanes, %llu epochs: %llu reads of %llu KiB of %llu\n",
           (int)shuffle, (unsigned long long)prefetch_bytes >> 10, lanes,
           (unsigned long long)epochs, (unsigned long long)reading.reads,
           (unsigned long long)reading.bytes >> 10, (unsigned long long)reading.file_bytes >> 10);
    stream_close(&s);
    kit_close(&kit);
    return reading;
}

static void whole_blocks_are_read_as_one(void **state)
{
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++)
        for (int plain = 0; plain < 2; plain++) {
            enum rp_shuffle shuffle = plain ? RP_SHUFFLE_NONE : RP_SHUFFLE_BLOCK;
            struct reading reading = read_pages(shuffle, 1 << 20, lanes, 1, false);
            /* 30 blocks, and the early reads for the first rows of a lane */
            assert_in_range(reading.reads, 1, 30 + 200 * lanes);
            assert_in_range(reading.bytes, reading.file_bytes, 3 * reading.file_bytes);
        }
}

/* The plan is far ahead of the packers. With room for hardly more than two windows, it waits for
 * blocks rather than read their documents one by one; and a block that is still there from the last
 * epoch, but will not be for long, is read again. */
static void blocks_are_waited_for(void **state)
{
    (void)state;
    for (uint64_t prefetch_kib = 256; prefetch_kib <= 1024; prefetch_kib *= 2) {
        uint64_t bytes = prefetch_kib << 10;
        struct reading reading = read_pages(RP_SHUFFLE_BLOCK, bytes, 1, 4, false);
        assert_in_range(reading.reads, 4 * 30, 4 * 30 + 200);
    }
}

/* The control: where blocks do not fit, or are mostly for others, documents are read one by one. */
static void blocks_that_do_not_pay_are_not_read(void **state)
{
    (void)state;
    assert_true(read_pages(RP_SHUFFLE_BLOCK, 1 << 16, 1, 1, false).reads > 1000);
    assert_true(read_pages(RP_SHUFFLE_BLOCK, 1 << 20, 1, 1, true).reads > 300);
}

/* After a ring has moved back, dispatch writes over the states that were ahead as it comes by. */
static void states_of_an_earlier_start_are_not_read_while_they_go(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    config.num_epochs = 12;
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.prefetch_bytes = 1 << 16; /* so that few states are kept */
    struct stream s;
    struct rp_error error = {0};
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 3);
    uint64_t kept = rp_flow_arena(s.flow)->state_count;
    stream_start(&s);
    while (s.rings[0].tail < 2 * kept - 2) /* so far that dispatch does not reach it at once */
        assert_true(stream_turn(&s, &error) >= 0);
    rp_flow_stop(s.flow);
    uint64_t far = s.rings[0].tail;
    assert_non_null(rp_flow_state_at(s.flow, far).token);
    move_ring(&s, 0, 0);
    stream_start(&s);
    assert_null(rp_flow_state_at(s.flow, far).token);
    run_to_end(&s);
    stream_close(&s);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_of_working),
        cmocka_unit_test(rows_over_several_tickets),
        cmocka_unit_test(every_packing_and_lanes),
        cmocka_unit_test(resume_at_the_end),
        cmocka_unit_test(stop_and_start_elsewhere),
        cmocka_unit_test(states_of_an_earlier_start_are_not_read_while_they_go),
        cmocka_unit_test(killed_packers_are_not_seen),
        cmocka_unit_test(a_hold_keeps_what_a_checkpoint_copies),
        cmocka_unit_test(whole_blocks_are_read_as_one),
        cmocka_unit_test(blocks_are_waited_for),
        cmocka_unit_test(blocks_that_do_not_pay_are_not_read),
    };
    return cmocka_run_group_tests(tests, kit_enter, scratch_leave);
}
