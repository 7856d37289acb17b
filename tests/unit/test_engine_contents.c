/* SPDX-License-Identifier: Apache-2.0 */
/* The contents in a save of a whole engine: the tokens of untaken rows, two bytes each if every
 * token fits into two, however wide the batches are. */
#include "engine_kit.h"

#include "checkpoint/checkpoint.h"

static const struct kit_source wide = {"tomes", 4, 4, 1500}; /* the same but for the width */

static uint64_t expected_token(uint64_t row, uint32_t at)
{
    const struct expected_row *expected = &kit.rows[row].expected;
    assert_true(row < kit.row_count);
    for (uint32_t f = 0; f < expected->count; f++) {
        if (at < expected->fragments[f].length)
            return kit_token(NULL, &expected->fragments[f], at);
        at -= expected->fragments[f].length;
    }
    fail_msg("row %d has no token %d more", (int)row, (int)at);
    return 0;
}

/* How many records there are, each of `width` bytes a token. */
static unsigned check_records(const char *path, uint32_t width)
{
    struct rp_checkpoint *checkpoint;
    struct rp_content_record record;
    struct rp_error error;
    const void *tokens;
    size_t bytes, cursor = 0;
    unsigned count = 0;
    assert_int_equal(rp_checkpoint_open(&checkpoint, path, &error), 0);
    const void *contents = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes);
    uint64_t row = rp_checkpoint_info(checkpoint)->next_row;
    while (contents && rp_content_next(contents, bytes, &cursor, &record, &tokens) == 1) {
        assert_int_equal(record.width, width);
        assert_true(record.row >= row);
        row = record.row;
        for (uint32_t i = 0; i < record.count; i++) {
            uint64_t token = 0;
            memcpy(&token, (const uint8_t *)tokens + (size_t)i * width, width);
            assert_int_equal(token, expected_token(record.row, record.offset + i));
        }
        count++;
    }
    if (count)
        assert_int_equal(rp_checkpoint_info(checkpoint)->contents_end_row, row + 1);
    rp_checkpoint_close(checkpoint);
    return count;
}

/* Does the process have private memory that the children it forks do not get? */
static bool withholds_memory(pid_t pid)
{
    char path[64], *line = NULL;
    size_t bytes = 0;
    bool is_private = false, does = false;
    snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (getline(&line, &bytes, file) > 0)
        if (strncmp(line, "VmFlags:", 8) == 0)
            does = does || (is_private && strstr(line, " dc"));
        else if (strchr(line, '-') && strchr("0123456789abcdef", line[0]))
            is_private = strstr(line, " rw-p ") != NULL;
    free(line);
    fclose(file);
    return does;
}

/* `more` is about the tokens; a few batches are taken first. */
static void check_save(const char *const *more, uint32_t width)
{
    const char *options[16] = {"checkpoint_dir", "checkpoints"};
    struct rp_error error;
    unsigned records = 0;
    for (size_t i = 0; more[i]; i++)
        options[2 + i] = more[i];
    forget_checkpoints();
    struct engine engine = engine_start(options);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    for (uint64_t k = 0; records < 4; k += 4) { /* until the rings were full; each save is new */
        take_by_turns(clients, k, k + 4);
        char *path;
        if (rp_run_checkpoint(run_dir, NULL, &path, &error) != 0)
            fail_msg("%s", error.message);
        records = check_records(path, width);
        rp_text_free(path);
    }
    assert_true(withholds_memory(engine.pid)); /* the next save's target */
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rp_client_detach(clients[rank]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static void narrow_files_are_kept_narrow(void **state)
{
    (void)state;
    static const char *const types[] = {"u16", "i32", "i64"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++)
        check_save((const char *const[]){"token_dtype", types[i], NULL}, 2);
}

static void wide_files_are_kept_as_the_vocabulary_says(void **state)
{
    (void)state;
    kit_write(&wide, 0, 60, 4);
    check_save((const char *const[]){"token_dtype", "i64", NULL}, 4);
    check_save((const char *const[]){"vocab_size", "65537", NULL}, 4);
    check_save((const char *const[]){"vocab_size", "65536", NULL}, 2);
}

static char *save_path(void)
{
    struct rp_error error;
    char *path;
    if (rp_run_checkpoint(run_dir, NULL, &path, &error) != 0)
        fail_msg("%s", error.message);
    return path;
}

static void damage_state(const char *path)
{
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &byte, 1, 8192), 1); /* the first byte of the state token */
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 8192), 1);
    close(fd);
}

/* A second save of one state copies no contents, so it has none if it has to write all the same,
 * because the first checkpoint has been damaged since. The same once the engine has resumed. */
static void a_state_that_is_saved_is_not_copied_again(void **state)
{
    (void)state;
    forget_checkpoints();
    kit_write(&tomes, 0, 60, 4);
    struct engine engine = engine_start(with_checkpoints);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    char *first = NULL;
    for (uint64_t k = 0; !first || check_records(first, 2) == 0; k += 4) { /* rings were empty */
        rp_text_free(first);
        take_by_turns(clients, k, k + 4);
        rp_sleep_ns(20000000);
        first = save_path();
    }
    char *again = save_path();
    assert_string_equal(again, first);
    damage_state(first);
    char *second = save_path(), *same = save_path();
    assert_string_not_equal(second, first);
    assert_string_equal(same, second);
    assert_int_equal(check_records(second, 2), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rp_client_detach(clients[rank]);
    engine_end(&engine, SIGKILL);
    engine = engine_start(with_checkpoints);
    damage_state(second);
    char *third = save_path();
    assert_string_not_equal(third, second);
    assert_int_equal(check_records(third, 2), 0);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    char *all[] = {first, again, second, same, third};
    for (size_t i = 0; i < RP_ARRAY_COUNT(all); i++)
        rp_text_free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(narrow_files_are_kept_narrow, end_newest),
        cmocka_unit_test_teardown(wide_files_are_kept_as_the_vocabulary_says, end_newest),
        cmocka_unit_test_teardown(a_state_that_is_saved_is_not_copied_again, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
