/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a plan of version 2 besides its rows: the blocks that it will use, the places of
 * documents, ledgers, and the contract of a token. */
#include "v2_kit.h"

#include "base/bits.h"
#include "plan/blocks.h"
#include "plan/forecast.h"
#include "plan/ledger.h"
#include "plan/trace.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool is_in_reach(const struct rp_plan *plan, uint32_t source, uint64_t first, uint64_t last,
                        uint64_t document)
{
    struct rp_plan_block block;
    for (uint64_t at = first; at < last; at++)
        if (rp_plan_block_at(plan, 0, source, at, &block) &&
            document - block.first_document < block.documents)
            return true;
    return false;
}

/* Documents are read from the forecast blocks, except those that wait in pool and FIFO. */
static void documents_come_from_the_blocks_that_were_told(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct stream stream;
        struct rp_error error = {0};
        struct rp_row row;
        make(&stream, kind % 2 ? RP_SHUFFLE_BLOCK : RP_SHUFFLE_NONE, 700);
        for (uint32_t s = 0; s < SOURCES; s++) {
            stream.sources[s].passes = kind > 1 ? 2 : 1;
            stream.sources[s].view.counts = kind > 1 ? view_counts : NULL;
        }
        struct rp_plan *plan = open_stream(&stream);
        struct rp_plan_blocks blocks = rp_plan_blocks(plan);
        uint64_t seen[SOURCES][700] = {{0}}, near = 0, all = 0;
        assert_int_equal(blocks.lanes, 1);
        assert_int_equal(blocks.sources, SOURCES);
        for (;;) {
            uint64_t first[SOURCES], last[SOURCES];
            for (uint32_t s = 0; s < SOURCES; s++) {
                first[s] = rp_plan_block_window(plan, 0, s);
                last[s] = rp_plan_block_position(plan, 0, s) + 2 * blocks.window;
                first[s] -= rp_min_u64(first[s], 2 * blocks.window); /* waiting pieces */
            }
            int code = rp_plan_next(plan, &row, &error);
            check(code, &error);
            if (code == 0)
                break;
            for (uint32_t i = 0; i < row.count; i++) {
                const struct rp_fragment *f = &row.fragments[i];
                if (f->offset > 0 || seen[f->source][f->document]++ > 9)
                    continue;
                all++;
                near += first[f->source] == 0 || /* it has not joined: it has no forecast */
                        is_in_reach(plan, f->source, first[f->source], last[f->source],
                                    f->document);
            }
        }
        assert_true(all > 3 * 700);
        if (near * 10 < all * 9)
            fail_msg("kind %d: only %d of %d documents are near", kind, (int)near, (int)all);
        rp_plan_close(plan);
    }
}

static void rounds_of_blocks_are_whole(void **state)
{
    (void)state;
    struct stream stream;
    struct rp_forecast *forecast;
    struct rp_error error = {0};
    const uint64_t tokens[SOURCES] = {7000, 7000};
    make(&stream, RP_SHUFFLE_BLOCK, 700);
    struct rp_plan *plan = open_stream(&stream);
    check(rp_forecast_open(&forecast, plan, tokens, &error), &error);
    uint64_t in_round = (700 + 7) / 8;
    struct rp_plan_block block;
    for (uint64_t round = 0; round < 3; round++) {
        uint8_t seen[88] = {0};
        for (uint64_t i = 0; i < in_round; i++) {
            assert_true(rp_plan_block_at(plan, 0, 1, round * in_round + i, &block));
            assert_int_equal(block.epoch, round);
            assert_int_equal(block.later_epochs, 2 - round);
            assert_int_equal(seen[block.number]++, 0);
            struct rp_plan_block same;
            assert_true(rp_forecast_block_at(forecast, 0, 1, round * in_round + i, &same));
            assert_int_equal(same.number, block.number);
            assert_int_equal(same.epoch, block.epoch);
            assert_int_equal(same.first_document, block.first_document);
            if (round == 0)
                assert_int_equal(rp_forecast_distance(forecast, 1, block.number),
                                 rp_forecast_tokens(forecast, 1, i));
        }
    }
    assert_false(rp_plan_block_at(plan, 0, 1, 3 * in_round, &block));
    assert_false(rp_plan_block_at(plan, 0, 0, 0, &block)); /* it has not joined */
    assert_true(rp_forecast_distance(forecast, 0, 5) == RP_FORECAST_NEVER);
    assert_int_equal(rp_forecast_epoch(forecast, 1), 0);
    rp_forecast_close(forecast);
    rp_plan_close(plan);
}

/* ---- traces, ledgers ------------------------------------------------------------------------- */

/* Plan until the document is past in an epoch, and compare the epoch of each of its fragments with
 * the tokens of it that came before. */
static void follow(struct rp_plan *plan, uint64_t document, uint64_t epoch, uint64_t in_epoch,
                   bool is_dealt)
{
    struct rp_error error = {0};
    struct rp_draw first = {.document = document, .epoch = epoch, .source = 1}, last = first;
    struct rp_row row;
    uint64_t found = 0;
    int code = 1;
    last.pass = rp_plan_passes(plan, 1) - 1;
    check(rp_plan_find_draw(plan, &first, &error), &error);
    check(rp_plan_find_draw(plan, &last, &error), &error);
    assert_false(rp_plan_has_drawn(plan, &first));
    while (code == 1 && !rp_plan_is_past(plan, &last)) {
        code = rp_plan_next(plan, &row, &error);
        for (uint32_t f = 0; code == 1 && f < row.count; f++) {
            const struct rp_fragment *of = &row.fragments[f];
            if (of->source != 1 || of->document != document)
                continue;
            uint64_t known = rp_plan_epoch(plan, &row, f);
            if (!is_dealt && known != found / in_epoch)
                fail_msg("document %d, token %d: epoch %d", (int)document, (int)found, (int)known);
            assert_true(known != epoch || rp_plan_has_drawn(plan, &first));
            found += of->length;
        }
    }
    check(code, &error);
    assert_true(found == (epoch + 1) * in_epoch || (is_dealt && found > epoch * in_epoch));
}

static void documents_are_found_where_they_are(void **state)
{
    (void)state;
    const uint64_t documents[] = {0, 3, 77, 199};
    for (int kind = 0; kind < 9; kind++) {
        bool repeats = kind / 3 == 1, is_dealt = kind / 3 == 2;
        struct stream stream;
        make(&stream, (enum rp_shuffle)(kind % 3), 200);
        if (is_dealt)
            deal(&stream);
        stream.sources[1].passes = repeats ? 2 : 1;
        stream.sources[1].view.counts = repeats ? view_counts : NULL;
        for (uint32_t i = 0; i < RP_ARRAY_COUNT(documents); i++)
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                struct rp_plan *plan = open_stream(&stream);
                uint64_t length, times = repeats && documents[i] % 3 == 0 ? 2 : 1;
                view_lengths(&salts[1], &documents[i], 1, &length);
                follow(plan, documents[i], epoch, length * times, is_dealt);
                rp_plan_close(plan);
            }
    }
}

static void a_ledger_is_in_the_order_of_the_config(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES];
    struct stream stream;
    struct rp_error error = {0};
    struct rp_ledger_source sources[SOURCES], by_number[1];
    struct rp_plan_counts counts;
    make(&stream, RP_SHUFFLE_DOCUMENT, 60);
    struct rp_plan *plan = open_stream(&stream);
    check(rp_plan_seek(plan, 20, &error), &error);
    size_t bytes = save(plan, token);
    check(rp_plan_ledger(plan, token, bytes, sources, &error), &error);
    check(rp_state_ledger(token, bytes, by_number, 1, &error), &error);
    rp_plan_counts(plan, &counts);
    assert_int_equal(sources[0].tokens, 0);
    assert_int_equal(sources[0].weight, 0);
    assert_int_equal(sources[1].tokens, counts.emitted + counts.buffered);
    assert_int_equal(sources[1].of_epoch, 60);
    assert_memory_equal(&sources[1], &by_number[0], sizeof by_number[0]);
    check(rp_plan_seek(plan, 60, &error), &error);
    bytes = save(plan, token);
    check(rp_plan_ledger(plan, token, bytes, sources, &error), &error);
    rp_plan_counts(plan, &counts);
    assert_int_equal(sources[0].tokens + sources[1].tokens, counts.emitted + counts.buffered);
    assert_true(sources[1].tokens > sources[0].tokens && sources[0].tokens > 0);
    assert_int_equal(rp_state_ledger(token, bytes, by_number, 1, &error), -RP_E_MISMATCH);
    rp_plan_close(plan);
}

static void a_token_tells_its_part_of_the_contract(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES];
    struct stream stream;
    struct rp_error error = {0};
    struct rp_record_writer of_plan, of_token = {0};
    struct rp_record record;
    struct rp_field field, same;
    make(&stream, RP_SHUFFLE_BLOCK, 60);
    struct rp_plan *plan = open_stream(&stream);
    check(rp_plan_seek(plan, CHANGE_ROW + 1, &error), &error);
    size_t bytes = save(plan, token), fields = 0;
    struct rp_record contract = contract_of(plan, &of_plan);
    check(rp_state_contract(token, bytes, &of_token, &error), &error);
    check(rp_record_open(&record, of_token.text, of_token.bytes, &error), &error);
    for (size_t at = 0; rp_record_next(&record, &at, &field); fields++) {
        char name[RP_RECORD_NAME_MAX + 1] = "";
        memcpy(name, field.name, field.name_bytes);
        if (!rp_record_find(&contract, name, &same))
            fail_msg("%s is not in the contract", name);
        assert_int_equal(same.sign, field.sign);
        assert_int_equal(same.value_bytes, field.value_bytes);
        assert_memory_equal(same.value, field.value, field.value_bytes);
    }
    assert_true(fields >= 14);
    free(of_plan.text);
    free(of_token.text);
    rp_plan_close(plan);
}

/* The hash of a checkpoint keeps damage out, and no hash keeps a forger out. */
static void a_number_of_a_record_is_held_against_its_lines(void **state)
{
    (void)state;
    static const char *const forged[] = {"record[4294967295]", "record[0100000000]",
                                         "record[0003]"};
    static uint8_t token[TOKEN_BYTES];
    struct stream stream;
    struct rp_error error = {0};
    struct rp_record_writer writer;
    make(&stream, RP_SHUFFLE_BLOCK, 60);
    struct rp_plan *plan = open_stream(&stream);
    check(rp_plan_seek(plan, CHANGE_ROW + 1, &error), &error);
    size_t bytes = save(plan, token);
    (void)contract_of(plan, &writer);
    const char *lines = strstr(writer.text, "\nrecord["),
               *after = strstr(writer.text, "\nseed=") + 1;
    size_t head = (size_t)((lines ? lines + 1 : after) - writer.text);
    for (size_t i = 0; i < RP_ARRAY_COUNT(forged); i++) {
        char *text = NULL;
        struct rp_record contract;
        assert_true(
            asprintf(&text, "%.*s%s.from=70\n%s", (int)head, writer.text, forged[i], after) > 0);
        check(rp_record_open(&contract, text, strlen(text), &error), &error);
        const struct rp_plan_start start = {.contract = &contract};
        struct rp_plan *started = open_stream(&stream);
        assert_int_equal(rp_plan_start(started, token, bytes, &start, &error), -RP_E_CORRUPT);
        assert_non_null(strstr(error.message, "record number"));
        rp_plan_close(started);
        free(text);
    }
    free(writer.text);
    rp_plan_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_come_from_the_blocks_that_were_told),
        cmocka_unit_test(rounds_of_blocks_are_whole),
        cmocka_unit_test(documents_are_found_where_they_are),
        cmocka_unit_test(a_ledger_is_in_the_order_of_the_config),
        cmocka_unit_test(a_token_tells_its_part_of_the_contract),
        cmocka_unit_test(a_number_of_a_record_is_held_against_its_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
