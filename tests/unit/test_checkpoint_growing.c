/* SPDX-License-Identifier: Apache-2.0 */
/* A section that is filled while the file is written: the file equals that of a save of finished
 * memory, no byte is written before it is final and hashed, and a section that ends early saves
 * nothing. */
#include "checkpoint_sample.h"

#include <pthread.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "checkpoint/dir.h"
#include "checkpoint/format.h"
#include "storage_fakes.h"

#define WRITE_BYTES 8192u
#define TOKENS 60000u

static struct {
    struct rp_content_record record;
    uint16_t tokens[TOKENS];
} made, contents __attribute__((aligned(4096)));

/* A thread that fills the section in small steps. */
struct maker {
    struct rp_growing_section *growing;
    unsigned seed;
    size_t stop_at;      /* ends the section after so many bytes */
    size_t spoil;        /* changes this byte after it was added; SIZE_MAX: none */
    struct rp_a64 there; /* bytes added so far */
    pthread_t thread;
};
static struct maker maker;

static void *make(void *argument)
{
    struct maker *m = argument;
    for (size_t done = 0; done < m->stop_at;) {
        size_t bytes = 1 + (size_t)rand_r(&m->seed) % 20000;
        bytes = bytes < m->stop_at - done ? bytes : m->stop_at - done;
        memcpy((uint8_t *)&contents + done, (const uint8_t *)&made + done, bytes);
        rp_a64_store_release(&m->there, done + bytes); /* before the writer can know */
        bool spoils = m->spoil >= done && m->spoil < done + bytes;
        if (spoils) { /* what is added below is hashed first; the writer sees it only then */
            rp_growing_section_add(m->growing, m->spoil - done);
            bytes -= m->spoil - done;
            done = m->spoil;
        }
        rp_growing_section_add(m->growing, bytes);
        if (spoils)
            ((uint8_t *)&contents)[m->spoil] ^= 1;
        done += bytes;
        if (rand_r(&m->seed) % 4 == 0)
            rp_sleep_ns(50000);
    }
    rp_growing_section_end(m->growing);
    return NULL;
}

static void start_maker(unsigned seed, size_t stop_at, size_t spoil)
{
    memset(&contents, 0xee, sizeof contents);
    maker = (struct maker){.seed = seed, .stop_at = stop_at, .spoil = spoil};
    maker.growing = rp_growing_section_open(&contents, sizeof contents);
    assert_non_null(maker.growing);
    assert_int_equal(pthread_create(&maker.thread, NULL, make, &maker), 0);
}

static void end_maker(void)
{
    pthread_join(maker.thread, NULL);
    rp_growing_section_close(maker.growing);
}

static void make_contents(void)
{
    made.record = (struct rp_content_record){.row = 10, .count = TOKENS, .width = 2};
    for (unsigned i = 0; i < TOKENS; i++)
        made.tokens[i] = (uint16_t)(i * 2654435761u >> 11);
}

/* The sample, but with these contents: fed, or of `made` when there is no growing. */
static int save(struct rp_checkpoint_dir *dir, struct rp_growing_section *growing,
                struct rp_error *error)
{
    struct sample sample;
    sample_make(&sample, 10);
    sample.info.contents_end_row = 11;
    sample.pieces[2] = (struct rp_checkpoint_piece){&made, sizeof made};
    sample.parts[2].piece_count = 1;
    sample.parts[2].growing = growing;
    return rp_checkpoint_save(dir, &sample.info, sample.parts, 3, NULL, error);
}

static struct rp_checkpoint_dir *open_dir(const char *path, struct rp_storage *storage)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    make_contents();
    if (rp_checkpoint_dir_open_with(&dir, path, 3, NULL, storage, WRITE_BYTES, &error) < 0)
        fail_msg("%s", error.message);
    return dir;
}

/* The first checkpoint of a directory, byte for byte. */
static uint8_t *read_file(const char *directory, size_t *bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint-000000000001.rpc", directory);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *data = malloc(1 << 20);
    *bytes = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

static void test_the_file_is_that_of_finished_memory(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_storage storage = fast_storage();
    struct rp_checkpoint_dir *dir = open_dir("plain", &storage);
    assert_int_equal(save(dir, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    size_t bytes, fed_bytes;
    uint8_t *plain = read_file("plain", &bytes);
    for (unsigned seed = 1; seed <= 50; seed++) {
        dir = open_dir("fed", &storage);
        start_maker(seed, sizeof contents, SIZE_MAX);
        assert_int_equal(save(dir, maker.growing, &error), 0);
        end_maker();
        rp_checkpoint_dir_close(dir);
        uint8_t *fed = read_file("fed", &fed_bytes);
        assert_int_equal(fed_bytes, bytes);
        assert_memory_equal(fed, plain, bytes);
        free(fed);
        remove_directory("fed");
    }
    free(plain);
}

/* Where the contents begin: head, state and config have their pages before them. */
#define CONTENTS_OFFSET (RP_CHECKPOINT_HEAD_BYTES + 2 * RP_CHECKPOINT_PAGE_BYTES)

static uint64_t head_written_at, other_writes;

static ssize_t careful_write(struct rp_storage *storage, int fd, const void *data, size_t bytes,
                             uint64_t offset)
{
    uint64_t end = offset + bytes, there = rp_a64_load_acquire(&maker.there);
    uint64_t contents_end = CONTENTS_OFFSET + sizeof contents;
    if (end > CONTENTS_OFFSET)
        assert_true((end < contents_end ? end : contents_end) - CONTENTS_OFFSET <= there);
    if (offset == 0)
        head_written_at = other_writes;
    else
        other_writes++;
    return rp_storage_system.write(storage, fd, data, bytes, offset);
}

static void test_nothing_is_written_before_it_is_there(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_storage storage = fast_storage();
    struct rp_checkpoint_dir *dir = open_dir("careful", &storage);
    storage.write = careful_write;
    for (unsigned seed = 1; seed <= 50; seed++) {
        head_written_at = other_writes = 0;
        start_maker(seed, sizeof contents, SIZE_MAX);
        assert_int_equal(save(dir, maker.growing, &error), 0);
        end_maker();
        assert_true(other_writes >= 2);
        assert_int_equal(head_written_at, other_writes); /* the head last: it knows all hashes */
    }
    rp_checkpoint_dir_close(dir);
}

static void test_what_does_not_come_whole_is_not_saved(void **state)
{
    (void)state;
    static const size_t stops[] = {0, 1, 4096, 8192, 50000, sizeof contents - 1};
    struct rp_error error;
    struct faulty faulty;
    faulty_init(&faulty);
    struct rp_checkpoint_dir *dir = open_dir("short", &faulty.storage);
    for (size_t i = 0; i < RP_ARRAY_COUNT(stops); i++) {
        faulty_arm(&faulty, FAULT_CODE, 0, UINT32_MAX, false);
        start_maker((unsigned)i + 1, stops[i], SIZE_MAX);
        assert_int_equal(save(dir, maker.growing, &error), -RP_E_STOPPED);
        end_maker();
        assert_int_equal(faulty.creates, 1); /* it would not come at a second attempt either */
        assert_int_equal(count_names("short", "checkpoint-"), 0);
    }
    assert_int_equal(save(dir, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
}

static void test_what_changes_after_it_was_brought_is_found_out(void **state)
{
    (void)state;
    static const size_t places[] = {0, 24, 8192, 100000, sizeof contents - 1};
    struct rp_error error;
    struct rp_storage storage = fast_storage();
    struct rp_checkpoint_dir *dir = open_dir("spoilt", &storage);
    for (size_t i = 0; i < RP_ARRAY_COUNT(places); i++) {
        start_maker((unsigned)i + 1, sizeof contents, places[i]);
        pthread_join(maker.thread, NULL);
        assert_int_equal(save(dir, maker.growing, &error), 0);
        assert_int_equal(rp_checkpoint_read_back_save(dir, &error), -RP_E_CORRUPT);
        rp_growing_section_close(maker.growing);
    }
    rp_checkpoint_dir_close(dir);
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    struct rp_error error;
    for (unsigned at = 0;; at++) {
        struct faulty faulty;
        faulty_init(&faulty);
        struct rp_checkpoint_dir *dir = open_dir("fault", &faulty.storage);
        faulty_arm(&faulty, FAULT_CODE, -EIO, at, false);
        start_maker(at, sizeof contents, SIZE_MAX);
        assert_int_equal(save(dir, maker.growing, &error), 0); /* by another attempt */
        end_maker();
        faulty.armed = false;
        rp_checkpoint_dir_close(dir);
        remove_directory("fault");
        if (faulty.hits == 0) {
            assert_true(at >= 10);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_file_is_that_of_finished_memory),
        cmocka_unit_test(test_nothing_is_written_before_it_is_there),
        cmocka_unit_test(test_what_does_not_come_whole_is_not_saved),
        cmocka_unit_test(test_what_changes_after_it_was_brought_is_found_out),
        cmocka_unit_test(test_every_call_fails_once),
    };
    return cmocka_run_group_tests_name("checkpoint_growing", tests, sample_enter_memory,
                                       sample_leave);
}
