/* SPDX-License-Identifier: Apache-2.0 */
/* A section that is filled while the file is written: the file equals the one from finished memory,
 * no byte is written before it is final and hashed, a section that ends early saves no file, and
 * the disk gets its first bytes early, in few writes. */
#include "checkpoint_sample.h"

#include <pthread.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "checkpoint/format.h"
#include "storage_fakes.h"

#define WRITE_BYTES 8192u
#define TOKENS 60000u
#define FILE_BYTES_MAX (16u << 20)

static struct {
    struct rp_content_record record;
    uint16_t tokens[TOKENS];
} made, contents __attribute__((aligned(4096)));

/* A thread that fills the section in small steps. */
struct maker {
    struct rp_growing_section *growing;
    unsigned seed;
    size_t stop_at;      /* ends the section after that number of bytes */
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
        if (spoils) { /* the bytes added below are hashed first; the writer sees them only then */
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

/* The sample, but with these contents: fed, or of `piece` when there is no growing. */
static int save_piece(struct rp_checkpoint_dir *dir, struct rp_checkpoint_piece piece,
                      struct rp_growing_section *growing, struct rp_error *error)
{
    struct sample sample;
    sample_make(&sample, 10);
    sample.info.contents_end_row = 11;
    sample.pieces[2] = piece;
    sample.parts[2].piece_count = 1;
    sample.parts[2].growing = growing;
    return rp_checkpoint_save(dir, &sample.info, sample.parts, 3, NULL, error);
}

static int save(struct rp_checkpoint_dir *dir, struct rp_growing_section *growing,
                struct rp_error *error)
{
    return save_piece(dir, (struct rp_checkpoint_piece){&made, sizeof made}, growing, error);
}

static struct rp_checkpoint_dir *open_buffered(const char *path, struct rp_storage *storage,
                                               size_t buffer_bytes)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    if (sample_open_with(&dir, path, 3, NULL, storage, buffer_bytes, &error) < 0)
        fail_msg("%s", error.message);
    return dir;
}

static struct rp_checkpoint_dir *open_dir(const char *path, struct rp_storage *storage)
{
    make_contents();
    return open_buffered(path, storage, WRITE_BYTES);
}

/* The first checkpoint of a directory, byte for byte. */
static uint8_t *read_file(const char *directory, size_t *bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint-000000000001.rpc", directory);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *data = malloc(FILE_BYTES_MAX);
    assert_non_null(data);
    *bytes = fread(data, 1, FILE_BYTES_MAX, file);
    assert_true(*bytes < FILE_BYTES_MAX);
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

/* The beginning of the contents: head, state and config have their pages before them. */
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

/* ---- large contents that grow on the writer's demand ------------------------------------ */

#define LARGE_BYTES ((13u << 20) + 1000)
#define LARGE_WHOLE (LARGE_BYTES / RP_CHECKPOINT_PAGE_BYTES * RP_CHECKPOINT_PAGE_BYTES)
#define LARGEST_WRITE (4u << 20) /* a longer one is no faster */
#define FIRST_WRITE (512u << 10)

/* No thread makes them: the bytes that the writer waits for, and `more`, are made on its demand. So
 * the state at each write is known, and no result depends on time. */
static struct {
    struct rp_growing_section *growing;
    uint64_t made, more;
    struct {
        uint64_t offset, bytes, made;
    } writes[64];
    unsigned count;
} large;

int64_t __real_rp_growing_section_wait(struct rp_growing_section *growing, uint64_t wanted);
int64_t __wrap_rp_growing_section_wait(struct rp_growing_section *growing, uint64_t wanted);

int64_t __wrap_rp_growing_section_wait(struct rp_growing_section *growing, uint64_t wanted)
{
    uint64_t now = rp_min_u64(wanted + large.more, LARGE_BYTES);
    if (growing == large.growing && now > large.made) {
        rp_growing_section_add(growing, now - large.made);
        large.made = now;
    }
    return __real_rp_growing_section_wait(growing, wanted);
}

static ssize_t recorded_write(struct rp_storage *storage, int fd, const void *data, size_t bytes,
                              uint64_t offset)
{
    assert_true(large.count < RP_ARRAY_COUNT(large.writes));
    large.writes[large.count].offset = offset;
    large.writes[large.count].bytes = bytes;
    large.writes[large.count++].made = large.made;
    ssize_t put = rp_storage_system.write(storage, fd, data, bytes, offset);
    assert_int_equal(put, bytes); /* or else the rest would look like a write of its own */
    return put;
}

/* The pages before the contents, the contents, and the head. */
static void check_writes(void)
{
    assert_true(large.count >= 4);
    assert_int_equal(large.writes[0].offset, RP_CHECKPOINT_HEAD_BYTES);
    assert_int_equal(large.writes[0].bytes, CONTENTS_OFFSET - RP_CHECKPOINT_HEAD_BYTES);
    assert_int_equal(large.writes[0].made, 0);
    assert_in_range(large.writes[1].bytes, FIRST_WRITE, LARGEST_WRITE - 1);
    uint64_t done = 0;
    for (unsigned i = 1; i + 1 < large.count; i++) {
        uint64_t bytes = large.writes[i].bytes;
        assert_int_equal(large.writes[i].offset, CONTENTS_OFFSET + done);
        assert_true(bytes <= LARGEST_WRITE + large.more);
        assert_true(rp_min_u64(done + bytes, LARGE_BYTES) <= large.writes[i].made);
        if (done + bytes < LARGE_WHOLE) /* the last ones bring the rest */
            assert_true(bytes >= rp_min_u64(done, LARGEST_WRITE));
        done += bytes;
    }
    assert_true(done >= LARGE_BYTES);
    assert_int_equal(large.writes[large.count - 1].offset, 0);
}

static uint8_t *save_large(const void *data, uint64_t more, size_t *bytes)
{
    struct rp_error error;
    struct rp_storage storage = fast_storage();
    bool grows = more != UINT64_MAX;
    struct rp_checkpoint_dir *dir = open_buffered("large", &storage, 16u << 20);
    memset(&large, 0, sizeof large);
    large.more = more;
    large.growing = grows ? rp_growing_section_open(data, LARGE_BYTES) : NULL;
    storage.write = grows ? recorded_write : storage.write; /* without the writes of opening */
    if (save_piece(dir, (struct rp_checkpoint_piece){data, LARGE_BYTES}, large.growing, &error) < 0)
        fail_msg("%s", error.message);
    rp_checkpoint_dir_close(dir);
    rp_growing_section_close(large.growing);
    large.growing = NULL;
    uint8_t *file = read_file("large", bytes);
    remove_directory("large");
    return file;
}

static void test_the_disk_begins_early_and_with_few_writes(void **state)
{
    (void)state;
    static const uint64_t more[] = {0, 1000, 5000, 100000};
    static uint8_t data[LARGE_BYTES] __attribute__((aligned(4096)));
    for (size_t i = 0; i < LARGE_BYTES; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    const struct rp_content_record record = {
        .row = 10, .count = (LARGE_BYTES - sizeof record) / 2, .width = 2};
    memcpy(data, &record, sizeof record);
    size_t plain_bytes, bytes;
    uint8_t *plain = save_large(data, UINT64_MAX, &plain_bytes);
    for (size_t i = 0; i < RP_ARRAY_COUNT(more); i++) {
        uint8_t *file = save_large(data, more[i], &bytes);
        check_writes();
        assert_int_equal(bytes, plain_bytes);
        assert_memory_equal(file, plain, bytes);
        free(file);
    }
    free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_file_is_that_of_finished_memory),
        cmocka_unit_test(test_nothing_is_written_before_it_is_there),
        cmocka_unit_test(test_what_does_not_come_whole_is_not_saved),
        cmocka_unit_test(test_what_changes_after_it_was_brought_is_found_out),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_the_disk_begins_early_and_with_few_writes),
    };
    return cmocka_run_group_tests_name("checkpoint_growing", tests, sample_enter_memory,
                                       sample_leave);
}
