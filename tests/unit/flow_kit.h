/* SPDX-License-Identifier: Apache-2.0 */
/* flow_kit.h — a real flow over small generated files, drained by the test through ring views; each
 * batch is compared with one made straight from the plan and the tokens that are in the files. */
#ifndef RP_TESTS_FLOW_KIT_H
#define RP_TESTS_FLOW_KIT_H

#include "batch_expected.h"
#include "corpus_files.h"

#include <errno.h>
#include <signal.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include "../fakes/io_fake.h"
#include "base/mem.h"
#include "flow/contents.h"
#include "flow/flow.h"

#define KIT __attribute__((unused)) static
#define KIT_RINGS_MAX 4u
#define KIT_STATE_MAX (64u << 10)
#define KIT_VOCABULARY 50000u

/* ---- the corpus and its plan ----------------------------------------------------------------- */

struct kit_source {
    const char *name;
    uint8_t code; /* the Megatron dtype's */
    unsigned width;
    uint64_t documents;
};

struct kit_row {
    struct expected_row expected;
    void *state; /* token before this row */
    size_t state_bytes;
};

struct kit {
    struct rp_corpus *corpus;
    struct rp_plan_config plan_config;
    struct rp_plan_source plan_sources[2];
    uint32_t sources;
    struct kit_row *rows; /* [row_count + 1]: the last one is the end, with its state */
    uint64_t row_count;
};

KIT uint64_t kit_token(const void *context, const struct rp_fragment *fragment, uint64_t i)
{
    (void)context;
    uint64_t seed = fragment->document * 1000003 + fragment->source * 77 + fragment->offset + i;
    return io_fake_random(&seed) % KIT_VOCABULARY;
}
static struct expected_tokens kit_tokens = {.token = kit_token};
/* The lengths of documents that the plan gets. */
static uint64_t (*kit_length)(const void *source, uint64_t document) = rp_source_length;

KIT void kit_write(const struct kit_source *source, uint32_t number, uint32_t length_max,
                   uint64_t seed)
{
    char path[64];
    FILE *bin, *idx;
    snprintf(path, sizeof path, "%s.bin", source->name);
    unlink(path);
    assert_non_null(bin = fopen(path, "wb"));
    snprintf(path, sizeof path, "%s.idx", source->name);
    assert_non_null(idx = fopen(path, "wb"));
    int32_t *lengths = rp_calloc(source->documents, sizeof *lengths);
    int64_t *places = rp_calloc(source->documents, sizeof *places);
    int64_t *first = rp_calloc(source->documents + 1, sizeof *first);
    int64_t at = 0;
    for (uint64_t d = 0; d < source->documents; d++) {
        lengths[d] = (int32_t)(io_fake_random(&seed) % (length_max + 1)); /* some are empty */
        places[d] = at;
        first[d + 1] = (int64_t)d + 1;
        at += lengths[d] * (int64_t)source->width;
        struct rp_fragment whole = {.document = d, .source = number};
        for (int32_t i = 0; i < lengths[d]; i++) {
            uint64_t token = kit_token(NULL, &whole, (uint64_t)i);
            assert_int_equal(fwrite(&token, source->width, 1, bin), 1);
        }
    }
    uint64_t head[] = {1, source->documents, source->documents + 1};
    fwrite("MMIDIDX\0\0", 9, 1, idx);
    fwrite(&head[0], 8, 1, idx);
    fwrite(&source->code, 1, 1, idx);
    fwrite(&head[1], 8, 2, idx);
    fwrite(lengths, sizeof *lengths, source->documents, idx);
    fwrite(places, sizeof *places, source->documents, idx);
    fwrite(first, sizeof *first, source->documents + 1, idx);
    free(lengths);
    free(places);
    free(first);
    assert_int_equal(fclose(bin) | fclose(idx), 0);
}

KIT struct rp_plan *kit_plan(const struct kit *kit)
{
    struct rp_error error;
    struct rp_plan *plan;
    if (rp_plan_open(&plan, &kit->plan_config, kit->plan_sources, kit->sources, &error) != 0)
        fail_msg("%s", error.message);
    return plan;
}

/* Write down every row of the stream, and the state before it. */
KIT void kit_walk(struct kit *kit)
{
    struct rp_plan *plan = kit_plan(kit);
    struct rp_row row;
    struct rp_error error;
    kit->rows = rp_calloc(100000, sizeof *kit->rows);
    for (int code = 1; code > 0;) {
        struct kit_row *made = &kit->rows[kit->row_count];
        made->state = malloc(KIT_STATE_MAX);
        assert_true(rp_plan_state_bytes_max(plan) <= KIT_STATE_MAX);
        made->state_bytes = rp_plan_save(plan, made->state);
        made->state = realloc(made->state, made->state_bytes); /* the largest is 100 times that */
        code = rp_plan_next(plan, &row, &error);
        assert_true(code >= 0 && kit->row_count < 99999);
        if (code == 0)
            break;
        struct rp_fragment *fragments = rp_calloc(row.count, sizeof *fragments);
        memcpy(fragments, row.fragments, row.count * sizeof *fragments);
        made->expected = (struct expected_row){row.row,     row.count, fragments,
                                               row.planned, row.align, row.skipped};
        kit->row_count++;
    }
    rp_plan_close(plan);
}

/* The files must have been written; config has seq_len and the other choices. */
KIT void kit_open(struct kit *kit, const struct kit_source *sources, uint32_t count,
                  const struct rp_plan_config *config)
{
    struct rp_error error;
    struct rp_source_spec specs[2] = {{0}};
    const char *paths[2];
    *kit = (struct kit){.plan_config = *config, .sources = count};
    for (uint32_t s = 0; s < count; s++) {
        paths[s] = sources[s].name;
        specs[s] = (struct rp_source_spec){.name = sources[s].name,
                                           .weight = s + 1,
                                           .shards = &paths[s],
                                           .shard_count = 1,
                                           .eos = RP_EOS_NONE};
    }
    struct rp_corpus_spec spec = {.sources = specs, .source_count = count};
    if (rp_corpus_open(&kit->corpus, &spec, &error) != 0)
        fail_msg("%s", error.message);
    for (uint32_t s = 0; s < count; s++) {
        const struct rp_source *source = rp_corpus_source(kit->corpus, s);
        kit->plan_sources[s] = (struct rp_plan_source){.documents = rp_source_documents(source),
                                                       .weight = s + 1,
                                                       .lengths = source,
                                                       .length = kit_length};
    }
    kit_walk(kit);
}

KIT void kit_close(struct kit *kit)
{
    for (uint64_t i = 0; i <= kit->row_count; i++) {
        free((void *)(uintptr_t)kit->rows[i].expected.fragments);
        free(kit->rows[i].state);
    }
    free(kit->rows);
    rp_corpus_close(kit->corpus);
}

/* ---- the flow and its trainers --------------------------------------------------------------- */

struct stream {
    const struct kit *kit;
    struct rp_flow_options options;
    struct rp_flow *flow;
    struct rp_plan *plan;
    struct rp_ring rings[KIT_RINGS_MAX];
    struct rp_ring_view views[KIT_RINGS_MAX];
    uint64_t base_row, step_rows;
    struct rp_batch_stage sizes;
    struct rp_numbering numbering;
    int wake_fd;
    uint64_t seed;                   /* for the trainers' whims */
    uint64_t batches, steps_unknown; /* steps_unknown: of the batches, those without sums */
    uint8_t *expected;
};

KIT void stream_attach(struct stream *s, uint32_t r, uint64_t batch)
{
    struct rp_error error;
    if (rp_ring_attach_trainer(&s->rings[r], 0, batch, &error) != 0 ||
        rp_ring_view_open(&s->views[r], dup(s->rings[r].data.fd),
                          dup(s->rings[r].seats[0].control.fd), batch, &error) != 0)
        fail_msg("%s", error.message);
}

KIT void stream_make_ring(struct stream *s, uint32_t r, uint64_t batch,
                          const struct rp_geometry *shape)
{
    struct rp_geometry g = *shape;
    struct rp_error error;
    g.rank = s->options.rank_first + r;
    g.base_row = s->base_row;
    if (rp_ring_create(&s->rings[r], &g, 1, (struct rp_ring_identity){{1, 2}, 9}, batch, &error) !=
        0)
        fail_msg("%s", error.message);
    stream_attach(s, r, batch);
}

KIT uint32_t kit_label_mode(const struct rp_flow_options *options, uint64_t seed)
{
    return options->form.label_across_cuts ? RP_LABELS_ACROSS_CUTS : (uint32_t)(seed % 2);
}

KIT void stream_open(struct stream *s, const struct kit *kit, const struct rp_flow_options *options,
                     uint32_t token_dtype, uint64_t base_row, uint64_t seed)
{
    struct rp_error error;
    *s = (struct stream){.kit = kit, .options = *options, .base_row = base_row, .seed = seed};
    s->plan = kit_plan(kit);
    uint64_t batch_rows = (uint64_t)options->batch_size * options->dp_world_size;
    s->step_rows = options->step_batches * batch_rows;
    s->sizes = (struct rp_batch_stage){0, batch_rows, s->step_rows};
    if (rp_numbering_open(&s->numbering, &s->sizes, 1, &error) != 0)
        fail_msg("%s", error.message);
    /* batch 0 at base_row, also if it is more than a step after row 0 */
    s->numbering.parts[0].row = base_row;
    s->options.corpus = kit->corpus;
    s->options.seq_len = kit->plan_config.seq_len;
    s->options.state_bytes = rp_plan_state_bytes_max(s->plan);
    s->options.pad_id = 1;
    struct rp_geometry shape = {.rows = options->batch_size,
                                .seq_len = kit->plan_config.seq_len,
                                .max_docs_per_row = kit->plan_config.max_docs_per_row,
                                .world = options->dp_world_size,
                                .micro_batches = (uint32_t)options->step_batches,
                                .slots = options->batch_slots,
                                .label_mode = kit_label_mode(options, seed),
                                .pad_id = 1,
                                .state_bytes = s->options.state_bytes};
    assert_true(rp_geometry_layout(&shape, (1u << RP_SECTION_COUNT) - 1, token_dtype) > 0);
    s->expected = malloc(shape.slot_bytes);
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (rp_flow_open(&s->flow, &s->options, s->wake_fd, &error) != 0)
        fail_msg("%s", error.message);
    for (uint32_t r = 0; r < options->rank_count; r++)
        stream_make_ring(s, r, 0, &shape);
}

KIT uint64_t stream_lowest_tail(const struct stream *s)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t r = 0; r < s->options.rank_count; r++)
        lowest = s->rings[r].tail < lowest ? s->rings[r].tail : lowest;
    return lowest;
}

KIT void stream_start(struct stream *s)
{
    struct rp_error error;
    uint64_t batch = stream_lowest_tail(s);
    uint64_t row = s->base_row + batch * s->options.batch_size * s->options.dp_world_size;
    const struct kit_row *at = &s->kit->rows[row < s->kit->row_count ? row : s->kit->row_count];
    const struct rp_flow_begin begin = {batch, s->plan, &s->numbering, s->rings, NULL};
    if (rp_plan_load(s->plan, at->state, at->state_bytes, false, &error) != 0 ||
        rp_flow_start(s->flow, &begin, &error) != 0)
        fail_msg("%s", error.message);
}

KIT void stream_close(struct stream *s)
{
    rp_flow_close(s->flow);
    for (uint32_t r = 0; r < s->options.rank_count; r++) {
        rp_ring_view_close(&s->views[r]);
        rp_ring_close(&s->rings[r]);
    }
    rp_plan_close(s->plan);
    close(s->wake_fd);
    rp_numbering_close(&s->numbering);
    free(s->expected);
}

/* ---- draining -------------------------------------------------------------------------------- */

/* The sums of the step, over the rows of all ranks; if they are known. */
KIT void check_step(struct stream *s, const struct rp_slot_header *header)
{
    uint64_t rows = 0, tokens = 0, labels = 0;
    uint64_t first = s->base_row + header->batch / s->options.step_batches * s->step_rows;
    s->steps_unknown += !(header->known & RP_KNOWN_STEP);
    if (!(header->known & RP_KNOWN_STEP)) {
        assert_int_equal(header->step_rows + header->step_tokens + header->step_tokens_loss, 0);
        return;
    }
    for (uint64_t row = first; row < first + s->step_rows && row < s->kit->row_count; row++) {
        const struct expected_row *own = &s->kit->rows[row].expected;
        if (own->is_skipped)
            continue;
        rows += own->count > 0;
        for (uint32_t i = 0; i < own->count; i++) {
            tokens += own->fragments[i].length;
            labels += expected_labels(&own->fragments[i], &kit_tokens);
        }
    }
    assert_int_equal(header->step_rows, rows);
    assert_int_equal(header->step_tokens, tokens);
    assert_int_equal(header->step_tokens_loss, labels);
}

KIT void check_batch(struct stream *s, uint32_t r, const uint8_t *slot,
                     const struct rp_slot_header *header)
{
    const struct rp_geometry *g = &s->rings[r].geometry;
    const struct kit *kit = s->kit;
    uint64_t step = (uint64_t)g->rows * g->world;
    uint64_t first = s->base_row + header->batch * step + g->rank * g->rows;
    uint64_t next = s->base_row + (header->batch + 1) * step;
    next = next < kit->row_count ? next : kit->row_count;
    struct expected_row rows[64];
    struct rp_slot_header sums;
    char what[160];
    for (uint32_t i = 0; i < g->rows; i++)
        rows[i] = first + i < kit->row_count
                      ? kit->rows[first + i].expected
                      : (struct expected_row){.row = first + i, .planned = first + i};
    expect_batch(g, rows, &kit_tokens, s->expected, &sums);
    if (!sections_equal(g, s->expected, slot, 0, what, sizeof what))
        fail_msg("batch %d of rank %u (row %d): %s", (int)header->batch, g->rank, (int)first, what);
    assert_int_equal(header->first_row, first);
    assert_int_equal(header->next_row, next);
    assert_int_equal(header->tokens_real, sums.tokens_real);
    assert_int_equal(header->tokens_loss, sums.tokens_loss);
    assert_int_equal(header->segments, sums.segments);
    assert_int_equal(header->max_seqlen, sums.max_seqlen);
    assert_int_equal(header->state_bytes, kit->rows[next].state_bytes);
    assert_memory_equal(slot + header->state_offset, kit->rows[next].state, header->state_bytes);
    check_step(s, header);
    s->batches++;
}

/* Take all there is; give back some of it, in the mood of the moment. */
KIT bool trainer_takes(struct stream *s, uint32_t r)
{
    struct rp_ring_view *view = &s->views[r];
    struct rp_slot_header header;
    struct rp_error error;
    const uint8_t *slot;
    bool took = false;
    int code;
    while ((code = rp_ring_view_take(view, &slot, &header, &error)) == RP_RING_TAKEN) {
        check_batch(s, r, slot, &header);
        took = true;
    }
    assert_true(code >= 0);
    uint64_t held = view->next - view->release;
    rp_ring_view_release(view, view->release + io_fake_random(&s->seed) % (held + 1));
    return took;
}

KIT void replace_dead_packers(struct stream *s)
{
    struct rp_error error;
    for (uint32_t i = 0; s->options.packer_processes && i < s->options.packers; i++)
        if (rp_flow_replace_packer(s->flow, i, &error) != 0)
            fail_msg("%s", error.message);
}

KIT void kill_a_packer(struct stream *s)
{
    uint32_t packer = (uint32_t)(io_fake_random(&s->seed) % s->options.packers);
    syscall(SYS_pidfd_send_signal, rp_flow_packer_pidfd(s->flow, packer), SIGKILL, NULL, 0);
}

/* One turn of the engine's loop and of every trainer. Returns as rp_flow_deliver. */
KIT int stream_turn(struct stream *s, struct rp_error *error)
{
    int code = rp_flow_deliver(s->flow, error);
    if (code == RP_FLOW_RESTART) {
        rp_flow_stop(s->flow);
        stream_start(s);
    }
    bool took = false;
    for (uint32_t r = 0; r < s->options.rank_count; r++)
        took |= trainer_takes(s, r);
    if (code == RP_FLOW_IDLE && !took) {
        struct pollfd wake = {.fd = s->wake_fd, .events = POLLIN};
        uint64_t count;
        if (rp_flow_park(s->flow))
            poll(&wake, 1, 5);
        rp_flow_unpark(s->flow);
        ssize_t got = read(s->wake_fd, &count, sizeof count);
        (void)got;
    }
    replace_dead_packers(s);
    return code;
}

/* To the end, or until that number of batches was taken. Returns the last code of a turn. */
KIT int stream_run(struct stream *s, uint64_t batches, struct rp_error *error)
{
    uint64_t had = s->batches;
    int code = RP_FLOW_WORKED;
    while (code >= 0 && code != RP_FLOW_ENDED && s->batches - had < batches)
        code = stream_turn(s, error);
    for (uint32_t r = 0; code == RP_FLOW_ENDED && r < s->options.rank_count; r++)
        trainer_takes(s, r);
    return code;
}

/* ---- common parts of most tests
 * --------------------------------------------------------------------- */

KIT const struct kit_source two_sources[] = {{"words", 8, 2, 300}, {"code", 4, 4, 150}};

KIT struct rp_plan_config small_plan(void)
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

KIT struct rp_flow_options small_flow(const struct rp_io_method *method)
{
    return (struct rp_flow_options){.method = method,
                                    .readers = 1,
                                    .packers = 1,
                                    .io_depth = 8,
                                    .token_limit = KIT_VOCABULARY,
                                    .dp_world_size = 1,
                                    .rank_count = 1,
                                    .batch_size = 4,
                                    .step_batches = 1,
                                    .prefetch_bytes = 1 << 20,
                                    .batch_slots = 4};
}

KIT bool processes_work(void)
{
#if defined(__SANITIZE_THREAD__)
    return false; /* it does not go through a fork with threads */
#else
    return true;
#endif
}

KIT void run_to_end(struct stream *s)
{
    struct rp_error error = {0};
    if (stream_run(s, UINT64_MAX, &error) != RP_FLOW_ENDED)
        fail_msg("%s", error.message);
}

/* Micro-batches of a run that begins at base_row and ends with whole steps. */
KIT uint64_t batches_of(const struct stream *s)
{
    const struct rp_flow_options *o = &s->options;
    uint64_t rows = s->kit->row_count - s->base_row, step = s->step_rows;
    uint64_t steps = o->drop_last ? rows / step : (rows + step - 1) / step;
    return steps * (step / (o->batch_size * o->dp_world_size));
}

KIT void check_all_came(const struct stream *s)
{
    for (uint32_t r = 0; r < s->options.rank_count; r++) {
        assert_int_equal(s->views[r].next, batches_of(s));
        assert_int_equal(s->views[r].status, RP_RING_END);
        assert_int_equal(s->views[r].end, batches_of(s));
    }
}

KIT int kit_enter(void **state)
{
    int code = scratch_enter(state);
    struct rp_error error;
    for (uint32_t i = 0; code == 0 && i < 2; i++)
        kit_write(&two_sources[i], i, i ? 90 : 60, i + 1);
    kit_write(&(struct kit_source){"crumbs", 8, 2, 6000}, 0, 5, 3);
    kit_write(&(struct kit_source){"pages", 8, 2, 3000}, 0, 200, 4);
    if (code == 0)
        code = rp_sidecar_build("words", NULL, &error);
    if (code == 0)
        code = rp_sidecar_build("crumbs", NULL, &error);
    return code;
}

#endif
