/* SPDX-License-Identifier: Apache-2.0 */
/* A real flow over small files: whatever works in it, in whatever number, over whatever disk, the
 * batches are those of the plan, byte for byte; what must fail fails in its place, by name. */
#include "flow_kit.h"

#include <dirent.h>
#include <sys/wait.h>
#include <fcntl.h>

static const struct kit_source two_sources[] = {{"words", 8, 2, 300}, {"code", 4, 4, 150}};

static struct rp_plan_config small_plan(void)
{
    return (struct rp_plan_config){.seed = 5,
                                   .num_epochs = 1,
                                   .seq_len = 256,
                                   .shuffle = RP_SHUFFLE_DOCUMENT,
                                   .packing = RP_PACKING_LOOKAHEAD,
                                   .window = 16,
                                   .max_docs_per_row = 64,
                                   .lanes = 1};
}

static struct rp_flow_options small_flow(const struct rp_io_method *method)
{
    return (struct rp_flow_options){.method = method,
                                    .readers = 1,
                                    .packers = 1,
                                    .io_depth = 8,
                                    .token_limit = KIT_VOCABULARY,
                                    .world = 1,
                                    .rank_count = 1,
                                    .rows = 4,
                                    .global_batch_rows = 4,
                                    .prefetch_bytes = 1 << 20,
                                    .batch_slots = 4};
}

static bool processes_work(void)
{
#if defined(__SANITIZE_THREAD__)
    return false; /* it does not go through a fork with threads */
#else
    return true;
#endif
}

static void run_to_end(struct stream *s)
{
    struct rp_error error = {0};
    if (stream_run(s, UINT64_MAX, &error) != RP_FLOW_ENDED)
        fail_msg("%s", error.message);
}

/* Micro-batches of a run that begins at base_row and ends with whole steps. */
static uint64_t batches_of(const struct stream *s)
{
    const struct rp_flow_options *o = &s->options;
    uint64_t rows = s->kit->row_count - s->base_row, step = o->global_batch_rows;
    uint64_t steps = o->drop_last ? rows / step : (rows + step - 1) / step;
    return steps * (step / (o->rows * o->world));
}

static void check_all_came(const struct stream *s)
{
    for (uint32_t r = 0; r < s->options.rank_count; r++) {
        assert_int_equal(s->views[r].next, batches_of(s));
        assert_int_equal(s->views[r].status, RP_RING_END);
        assert_int_equal(s->views[r].end, batches_of(s));
    }
}

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
    o.direct = draw(seed, 2);
    o.verify_blocks = draw(seed, 2);
    o.drop_last = draw(seed, 2);
    o.io_depth = 1 + draw(seed, 9);
    o.world = 1 + draw(seed, 3);
    o.rank_count = 1 + draw(seed, o.world);
    o.rank_first = draw(seed, o.world - o.rank_count + 1);
    o.rows = 1 + draw(seed, 6);
    o.global_batch_rows = (uint64_t)o.rows * o.world * (1 + draw(seed, 3));
    o.batch_slots = 2u << draw(seed, 3);
    return o;
}

static void print_case(uint64_t seed, const struct rp_flow_options *o)
{
    printf("seed %llu: %s, %u readers, %u packers%s%s%s, ranks %u+%u of %u, %u rows, step %u\n",
           (unsigned long long)seed, o->method->name, o->readers, o->packers,
           o->packer_processes ? " (processes)" : "", o->direct ? ", direct" : "",
           o->verify_blocks ? ", verified" : "", o->rank_first, o->rank_count, o->world, o->rows,
           (unsigned)o->global_batch_rows);
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
            assert_true(kit.rows[0].expected.count > RP_TICKET_PIECES_MAX);
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
            config.fill = packing == RP_PACKING_LOOKAHEAD ? RP_FILL_SPLIT : RP_FILL_PAD;
            config.lanes = lanes;
            config.seq_len = 40; /* documents are longer: they are split */
            config.max_docs_per_row = 5;
            struct kit kit;
            kit_open(&kit, two_sources, 2, &config);
            struct rp_flow_options options = small_flow(&rp_io_method_pread);
            options.world = options.rank_count = 2;
            options.global_batch_rows = 24;
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

/* A run that begins at the very end, as after a resume from there: it has nothing, and says so. */
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
    options.world = options.rank_count = 3;
    options.rows = 2;
    options.global_batch_rows = 12;
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
    options.rows = 2;
    options.global_batch_rows = 2;
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

/* While held, what was published and what is packed stays as it is, however the trainers go on. */
static void a_hold_keeps_what_a_checkpoint_copies(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.packers = 2;
    struct stream s;
    struct rp_error error = {0};
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 29);
    stream_start(&s);
    assert_true(stream_run(&s, 5, &error) >= 0);
    struct rp_ring *ring = &s.rings[0];
    uint64_t first = ring->release, last = ring->tail, ticket_first, ticket_last;
    rp_flow_hold(s.flow, first);
    rp_flow_tickets(s.flow, &ticket_first, &ticket_last);
    const struct rp_arena *arena = rp_flow_arena(s.flow);
    uint8_t *memory = malloc(arena->segment.bytes), *slots = malloc(ring->data.bytes);
    bool ready[64] = {false};
    for (uint64_t t = ticket_first; t < ticket_last; t++)
        ready[t & 63] = rp_a64_load_acquire(&rp_arena_ticket(arena, t)->state) >=
                        rp_ticket_word(t, RP_TICKET_READY);
    memcpy(memory, arena->segment.data, arena->segment.bytes);
    memcpy(slots, ring->data.data, ring->data.bytes);
    for (int turn = 0; turn < 200; turn++)
        assert_true(stream_turn(&s, &error) >= 0);
    for (uint64_t k = first; k < last; k++) {
        const uint8_t *slot = ring->data.data + RP_RING_SLOTS_OFFSET +
                              (k & (ring->geometry.slots - 1)) * ring->geometry.slot_bytes;
        assert_memory_equal(slot, slots + (slot - ring->data.data), ring->geometry.slot_bytes);
    }
    for (uint64_t t = ticket_first; t < ticket_last; t++) {
        const uint8_t *data = rp_arena_data(arena, t);
        if (ready[t & 63])
            assert_memory_equal(data, memory + (data - arena->segment.data),
                                arena->slot_data_bytes);
    }
    rp_flow_release_hold(s.flow);
    run_to_end(&s);
    check_all_came(&s);
    free(memory);
    free(slots);
    stream_close(&s);
    kit_close(&kit);
}

/* ---- failures -------------------------------------------------------------------------------- */

static unsigned count_entries(const char *path)
{
    unsigned count = 0;
    DIR *directory = opendir(path);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static int refuse_open(void **self, const struct rp_io_options *options, struct rp_error *error)
{
    static struct rp_a32 opened; /* the second reader is the one that fails */
    *self = NULL;
    if (rp_a32_add_relaxed(&opened, 1) % 2 == 0)
        return rp_io_method_pread.open(self, options, error);
    return rp_fail(error, -ENOMEM, "buy more", "no memory for this reader");
}

static void a_failed_start_leaves_nothing(void **state)
{
    (void)state;
    struct rp_io_method method = rp_io_method_pread;
    method.open = refuse_open;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    unsigned fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    for (int processes = 0; processes <= processes_work(); processes++) {
        struct rp_flow_options options = small_flow(&method);
        struct rp_error error = {0};
        struct stream s;
        options.readers = options.packers = 3;
        options.packer_processes = processes;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(rp_flow_start(s.flow, s.plan, s.scout, 0, 0, s.rings, &error),
                             -ENOMEM);
            assert_string_equal(error.message, "no memory for this reader");
            assert_string_equal(error.hint, "buy more");
            assert_int_equal(count_entries("/proc/self/task"), threads);
        }
        stream_close(&s);
        assert_int_equal(count_entries("/proc/self/fd"), fds);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
    kit_close(&kit);
}

/* Batches come until the one whose tokens cannot be had, and then the reason. */
static void check_failure(struct stream *s, int expected, uint64_t batches, const char *words)
{
    struct rp_error error = {0};
    int code = stream_run(s, UINT64_MAX, &error);
    assert_int_equal(code, expected);
    trainer_takes(s, 0);
    assert_int_equal(s->batches, batches);
    assert_says(&error, words);
}

/* In the order of the file every batch has its own part of it. */
static void open_ordered(struct kit *kit, const struct kit_source *source)
{
    struct rp_plan_config config = small_plan();
    config.shuffle = RP_SHUFFLE_NONE;
    config.packing = RP_PACKING_CONCAT;
    config.window = 0;
    kit_open(kit, source, 1, &config);
}

/* The micro-batch of 4 rows with the byte. */
static uint64_t batch_of_byte(uint64_t byte, unsigned width)
{
    return byte / width / 256 / 4;
}

static void a_bad_disk_is_named_in_its_place(void **state)
{
    (void)state;
    struct kit kit;
    open_ordered(&kit, two_sources);
    for (uint64_t at = 100; at < 8000; at += 2100) {
        struct rp_flow_options options = small_flow(&io_fake_method);
        struct io_fake_script script = {
            .seed = at, .reorder = true, .bad_start = at, .bad_end = at + 1, .bad_error = EIO};
        struct stream s;
        options.readers = 3;
        io_fake_set(&script);
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, at);
        stream_start(&s);
        check_failure(&s, -EIO, batch_of_byte(at, 2), "words.bin|cannot read|offset");
        stream_close(&s);
    }
    kit_close(&kit);
}

static void a_file_that_changed_is_refused(void **state)
{
    (void)state;
    static const struct kit_source source = {"fleeting", 8, 2, 300};
    kit_write(&source, 0, 60, 8);
    struct kit kit;
    open_ordered(&kit, &source);
    assert_int_equal(truncate("fleeting.bin", 1000), 0);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    check_failure(&s, -RP_E_CHANGED, 0, "fleeting.bin|bytes|1000");
    stream_close(&s);
    kit_close(&kit);
}

/* The times of the file are put back, as a failing disk would leave them. */
static void flip_byte(const char *path, long at)
{
    struct stat was;
    assert_int_equal(stat(path, &was), 0);
    FILE *file = fopen(path, "r+b");
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
    const struct timespec times[] = {was.st_atim, was.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void a_flipped_bit_is_found_by_its_block(void **state)
{
    (void)state;
    static const struct kit_source source = {"sealed", 8, 2, 300};
    struct rp_error error;
    kit_write(&source, 0, 60, 8);
    if (rp_index_build("sealed", NULL, NULL, NULL, NULL, &error) != 0)
        fail_msg("%s", error.message);
    struct kit kit;
    open_ordered(&kit, &source);
    assert_non_null(rp_corpus_shard(kit.corpus, 0)->block_hashes);
    for (long at = 9000; at < 17000; at += 7001) {
        char words[64];
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        struct stream s;
        flip_byte("sealed.bin", at);
        snprintf(words, sizeof words, "sealed.bin|block %ld|differs", at / 4096);
        options.verify_blocks = true;
        options.readers = 2;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        stream_start(&s);
        /* the first batch that has any part of the block */
        check_failure(&s, -RP_E_CORRUPT, batch_of_byte((uint64_t)at / 4096 * 4096, 2), words);
        stream_close(&s);
        flip_byte("sealed.bin", at);
    }
    kit_close(&kit);
}

static void a_token_above_the_limit_is_named(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    /* the largest token of the stream is one too many; the batch with it is the first that fails */
    uint64_t largest = 0, batch = 0;
    struct rp_fragment place = {0};
    for (uint64_t row = 0; row < kit.row_count; row++)
        for (uint32_t f = 0; f < kit.rows[row].expected.count; f++)
            for (uint64_t i = 0; i < kit.rows[row].expected.fragments[f].length; i++) {
                struct rp_fragment fragment = kit.rows[row].expected.fragments[f];
                uint64_t token = kit_token(NULL, &fragment, i);
                if (token <= largest)
                    continue;
                largest = token;
                batch = row / 4;
                place = fragment;
                place.offset += i;
            }
    char words[160];
    snprintf(words, sizeof words, "source %s, document %d, token %d|below %d|found %d",
             two_sources[place.source].name, (int)place.document, (int)place.offset, (int)largest,
             (int)largest);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.token_limit = largest;
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    check_failure(&s, -RP_E_VOCABULARY, batch, words);
    stream_close(&s);
    kit_close(&kit);
}

/* ---- contents -------------------------------------------------------------------------------- */

/* Rows [0, rows) as a checkpoint keeps them: some whole, some fragment by fragment. */
static struct rp_contents *make_contents(const struct kit *kit, uint64_t rows, uint32_t width)
{
    struct rp_contents *contents = rp_contents_new();
    for (uint64_t row = 0; row < rows; row++) {
        const struct expected_row *r = &kit->rows[row].expected;
        uint8_t tokens[256 * 8];
        uint32_t at = 0, from = 0;
        for (uint32_t f = 0; f < r->count; f++) {
            for (uint32_t i = 0; i < r->fragments[f].length; i++, at++) {
                uint64_t token = kit_token(NULL, &r->fragments[f], i);
                memcpy(tokens + at * width, &token, width);
            }
            if (row % 2 && f + 1 < r->count)
                continue;
            assert_int_equal(
                rp_contents_add(contents, row, from, at - from, width, tokens + from * width), 0);
            from = at;
        }
    }
    return contents;
}

static void contents_need_no_file(void **state)
{
    (void)state;
    static const struct kit_source source = {"gone", 8, 2, 300};
    for (uint32_t width = 2; width <= 4; width += 2) {
        kit_write(&source, 0, 60, 8);
        struct rp_plan_config config = small_plan();
        struct kit kit;
        kit_open(&kit, &source, 1, &config);
        struct rp_contents *contents = make_contents(&kit, 20, width);
        assert_int_equal(unlink("gone.bin"), 0);
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        options.contents = contents;
        options.packers = 2;
        struct stream s;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, width);
        stream_start(&s);
        check_failure(&s, -ENOENT, 5, "gone.bin");
        stream_close(&s);
        rp_contents_free(contents);
        kit_close(&kit);
    }
}

static void contents_and_files_together(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    struct rp_contents *contents = make_contents(&kit, 11, 4);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.contents = contents;
    options.world = options.rank_count = 2; /* another shape than it was saved with */
    options.rows = 3;
    options.global_batch_rows = 6;
    options.verify_blocks = true;
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I64, 2, 5);
    stream_start(&s);
    run_to_end(&s);
    check_all_came(&s);
    stream_close(&s);
    rp_contents_free(contents);
    kit_close(&kit);
}

static int enter(void **state)
{
    int code = scratch_enter(state);
    struct rp_error error;
    for (uint32_t i = 0; code == 0 && i < 2; i++)
        kit_write(&two_sources[i], i, i ? 90 : 60, i + 1);
    kit_write(&(struct kit_source){"crumbs", 8, 2, 6000}, 0, 5, 3);
    return code < 0 ? code : rp_index_build("words", NULL, NULL, NULL, NULL, &error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_of_working),
        cmocka_unit_test(rows_over_several_tickets),
        cmocka_unit_test(every_packing_and_lanes),
        cmocka_unit_test(resume_at_the_end),
        cmocka_unit_test(stop_and_start_elsewhere),
        cmocka_unit_test(killed_packers_are_not_seen),
        cmocka_unit_test(a_hold_keeps_what_a_checkpoint_copies),
        cmocka_unit_test(a_failed_start_leaves_nothing),
        cmocka_unit_test(a_bad_disk_is_named_in_its_place),
        cmocka_unit_test(a_file_that_changed_is_refused),
        cmocka_unit_test(a_flipped_bit_is_found_by_its_block),
        cmocka_unit_test(a_token_above_the_limit_is_named),
        cmocka_unit_test(contents_need_no_file),
        cmocka_unit_test(contents_and_files_together),
    };
    return cmocka_run_group_tests(tests, enter, scratch_leave);
}
