/* SPDX-License-Identifier: Apache-2.0 */
/* How each stretch of a token file is read follows the page cache and the memory. */
#include "corpus_files.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "flow/residency.h"
#include "patience.h"

/* ---- a page cache of a test's own ------------------------------------------------------------ */

#define STRETCHES 16u
#define FILE_BYTES ((uint64_t)STRETCHES * RP_STRETCH_BYTES)
#define FILES 2u /* most tests have only the first; all are alike */

static struct {
    uint64_t missing[STRETCHES];
    uint64_t available;
    uint32_t read_ahead[STRETCHES], settled[STRETCHES]; /* calls */
    int in_memory;                                      /* the descriptor of a file on tmpfs */
} fake;

static enum rp_page_cache_way fake_find_way(const struct rp_page_cache_file *file)
{
    return file->fd == fake.in_memory ? RP_PAGE_CACHE_WHOLE : RP_PAGE_CACHE_COUNTED;
}

static uint64_t fake_missing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file;
    assert_in_range(bytes, 1, RP_STRETCH_BYTES);
    return fake.missing[first / RP_STRETCH_BYTES];
}

static void fake_read_ahead(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file, (void)bytes;
    fake.read_ahead[first / RP_STRETCH_BYTES]++;
}

static void fake_settle(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file, (void)bytes;
    fake.settled[first / RP_STRETCH_BYTES]++;
    fake.missing[first / RP_STRETCH_BYTES] = 0;
}

static uint64_t fake_available(void)
{
    return fake.available;
}

static const struct rp_page_cache fake_page_cache = {fake_find_way, fake_missing, fake_read_ahead,
                                                     fake_settle, fake_available};

static void fake_forget(void)
{
    for (uint32_t i = 0; i < STRETCHES; i++)
        fake.missing[i] = RP_STRETCH_BYTES;
}

static struct rp_residency residency;
static struct rp_stretch *stretches;
static struct rp_a64 taken;

/* Memory with room for that number of stretches; the page cache holds none. */
static void open_without_file(uint64_t bytes, uint32_t room, bool may_buffer, bool may_direct)
{
    struct rp_error error;
    memset(&fake, 0, sizeof fake);
    fake.in_memory = -1;
    fake_forget();
    fake.available = (uint64_t)room * RP_STRETCH_BYTES * 4 / 3 + 4;
    const struct rp_residency_options options = {.page_cache = &fake_page_cache,
                                                 .corpus_bytes = bytes,
                                                 .may_buffer = may_buffer,
                                                 .may_direct = may_direct};
    assert_int_equal(rp_residency_open(&residency, &options, FILES, &taken, &error), 0);
}

static struct rp_stretch *add_file(uint32_t shard, uint64_t bytes)
{
    const struct rp_page_cache_file file = {
        .fd = (int)shard, .map = (const uint8_t *)&fake, .bytes = bytes};
    return rp_residency_add(&residency, shard, &file);
}

static void open_residency_of(uint64_t bytes, uint32_t room, bool may_buffer, bool may_direct)
{
    open_without_file(bytes, room, may_buffer, may_direct);
    assert_non_null(stretches = add_file(0, bytes));
    rp_a64_store_relaxed(&taken, 1u << 30);
}

static void open_residency(uint32_t room, bool may_buffer, bool may_direct)
{
    open_residency_of(FILE_BYTES, room, may_buffer, may_direct);
}

/* Memory has other room now, and the watcher checks it and every stretch. */
static void look(uint32_t room)
{
    fake.available = (uint64_t)room * RP_STRETCH_BYTES * 4 / 3 + 4;
    residency.room_ns = 0;
    rp_residency_poll(&residency);
}

static uint32_t count(enum rp_read_mode mode)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < STRETCHES; i++)
        found += rp_a32_load_relaxed(&stretches[i].mode) == (uint32_t)mode;
    return found;
}

static void want_all(void)
{
    rp_residency_want(stretches, 0, FILE_BYTES);
}

static void what_fits_is_read_in_and_mapped(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, true, true);
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    rp_residency_want(stretches, RP_STRETCH_BYTES - 1, RP_STRETCH_BYTES + 1);
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_MAPPED), 2);
    assert_int_equal(fake.read_ahead[0] + fake.read_ahead[1], 2);
    assert_int_equal(rp_residency_mode(stretches, 0, 2 * RP_STRETCH_BYTES), RP_READ_MAPPED);
    assert_int_equal(rp_residency_mode(stretches, 0, 2 * RP_STRETCH_BYTES + 1), RP_READ_BUFFERED);
    fake.missing[0] = RP_STRETCH_BYTES / 2; /* lost again */
    look(2 * STRETCHES);
    assert_int_equal(rp_residency_mode(stretches, 0, 1), RP_READ_BUFFERED);
    assert_int_equal(rp_residency_mode(stretches, RP_STRETCH_BYTES, RP_STRETCH_BYTES + 1),
                     RP_READ_MAPPED);
    rp_residency_close(&residency);
}

static void of_what_does_not_fit_a_part_is_kept(void **state)
{
    (void)state;
    open_residency(6, true, true);
    look(6);
    assert_int_equal(count(RP_READ_DIRECT), STRETCHES);
    for (int i = 0; i < 5; i++) {
        want_all();
        look(6);
    }
    assert_int_equal(count(RP_READ_MAPPED), 6);
    assert_int_equal(count(RP_READ_DIRECT), STRETCHES - 6);
    uint32_t reads = 0;
    for (uint32_t i = 0; i < STRETCHES; i++)
        reads += fake.read_ahead[i];
    assert_int_equal(reads, 6);
    rp_residency_close(&residency);
}

/* Memory gets short, and later there is enough of it. */
static void the_room_follows_memory_without_flapping(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, true, true);
    look(STRETCHES);
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    look(STRETCHES - 1); /* an eighth too small: that does not change anything */
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    look(4);
    assert_true(count(RP_READ_DIRECT) >= STRETCHES - 5);
    look(STRETCHES - 1);
    assert_true(count(RP_READ_DIRECT) >= STRETCHES - 5);
    look(STRETCHES);
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    rp_residency_close(&residency);
}

static void what_is_lost_at_once_is_not_read_in_for_ever(void **state)
{
    (void)state;
    open_residency(8, true, true);
    uint32_t reads = 0;
    for (int i = 0; i < 40; i++) {
        want_all();
        look(8);
        fake_forget(); /* another process takes the memory, unnoticed */
    }
    for (uint32_t i = 0; i < STRETCHES; i++)
        reads += fake.read_ahead[i];
    assert_in_range(reads, 8, 40 * 8 / 3);
    rp_residency_close(&residency);
}

static void direct_reads_do_not_fill_the_page_cache(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, false, true);
    fake.missing[3] = 0;
    for (int i = 0; i < 3; i++) {
        want_all();
        look(2 * STRETCHES);
    }
    assert_int_equal(count(RP_READ_DIRECT), STRETCHES - 1);
    assert_int_equal(rp_a32_load_relaxed(&stretches[3].mode), RP_READ_MAPPED);
    for (uint32_t i = 0; i < STRETCHES; i++)
        assert_int_equal(fake.read_ahead[i], 0);
    rp_residency_close(&residency);
}

/* Reads past the page cache are not allowed, and memory has no room for all of the file. */
static void buffered_reads_take_the_pages_of_what_is_mapped(void **state)
{
    (void)state;
    open_residency(6, true, false);
    fake.missing[3] = 0;
    for (int i = 0; i < 3; i++) {
        want_all();
        look(6);
        assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    }
    for (uint32_t i = 0; i < STRETCHES; i++)
        assert_int_equal(fake.read_ahead[i], 0);
    memset(fake.missing, 0, sizeof fake.missing); /* the page cache holds it all the same */
    look(6);
    look(6);
    assert_int_equal(count(RP_READ_MAPPED), STRETCHES);
    fake_forget();
    look(6);
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    fake.missing[3] = 0;
    look(6);
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    look(STRETCHES);
    assert_int_equal(count(RP_READ_MAPPED), 1);
    rp_residency_close(&residency);
}

/* No more is read in than in proportion to the reads. */
static void a_slow_trainer_does_not_fill_the_page_cache(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, true, true);
    rp_a64_store_relaxed(&taken, 0);
    residency.read_in = (64u << 20) - RP_STRETCH_BYTES;
    want_all();
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_MAPPED), 2);
    rp_a64_store_relaxed(&taken, RP_STRETCH_BYTES);
    want_all();
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_MAPPED), STRETCHES);
    rp_residency_close(&residency);
}

/* The last page of a file is longer than the rest of it. */
static void pages_beyond_the_end_are_not_missing(void **state)
{
    (void)state;
    for (uint64_t tail = 1; tail < RP_STRETCH_BYTES; tail += RP_STRETCH_BYTES / 3) {
        open_residency_of(FILE_BYTES - RP_STRETCH_BYTES + tail, STRETCHES, false, true);
        look(STRETCHES);
        assert_int_equal(count(RP_READ_DIRECT), STRETCHES);
        assert_int_equal(residency.held_bytes, 0);
        assert_int_equal(residency.claimed_bytes, 0);
        rp_residency_close(&residency);
        open_residency_of(FILE_BYTES - RP_STRETCH_BYTES + tail, STRETCHES, true, true);
        want_all();
        look(STRETCHES);
        assert_int_equal(count(RP_READ_MAPPED), STRETCHES);
        assert_int_equal(residency.read_in, FILE_BYTES - RP_STRETCH_BYTES + tail);
        assert_int_equal(residency.held_bytes, FILE_BYTES - RP_STRETCH_BYTES + tail);
        rp_residency_close(&residency);
    }
}

/* The second file is on tmpfs, and memory has room for only the first, or for less. */
static void open_beside_memory(uint32_t room, bool may_direct)
{
    open_without_file(FILES * FILE_BYTES, room, true, may_direct);
    fake.in_memory = 1;
    struct rp_stretch *in_memory = add_file(1, FILE_BYTES);
    assert_non_null(in_memory);
    assert_int_equal(rp_residency_mode(in_memory, 0, FILE_BYTES), RP_READ_MAPPED);
    assert_non_null(stretches = add_file(0, FILE_BYTES));
    rp_a64_store_relaxed(&taken, 1u << 30);
}

static void files_in_memory_take_no_room(void **state)
{
    (void)state;
    for (int may_direct = 0; may_direct < 2; may_direct++) {
        open_beside_memory(STRETCHES, may_direct);
        assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
        want_all();
        look(STRETCHES);
        look(STRETCHES);
        assert_int_equal(count(RP_READ_MAPPED), STRETCHES);
        assert_int_equal(residency.claimed_bytes, FILE_BYTES);
        rp_residency_close(&residency);
    }
    open_beside_memory(6, true);
    for (int i = 0; i < 5; i++) {
        want_all();
        look(6);
    }
    assert_int_equal(count(RP_READ_MAPPED), 6);
    rp_residency_close(&residency);
    open_beside_memory(6, false);
    look(6);
    look(6);
    assert_false(residency.holds_all); /* though all of the other file is in memory */
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    assert_int_equal(rp_residency_mode(residency.files[1].stretches, 0, 1), RP_READ_MAPPED);
    rp_residency_close(&residency);
}

/* Also one after the end of a pass, when its stretches are read in. */
static void a_change_ends_the_calm_at_once(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, true, true);
    look(2 * STRETCHES);
    look(2 * STRETCHES);
    assert_int_equal(residency.watcher_state, RP_WATCHER_CALM);
    rp_residency_want(stretches, 0, 1);
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_MAPPED), 1);
    assert_int_equal(residency.watcher_state, RP_WATCHER_CHANGING);
    rp_residency_close(&residency);
}

/* The watcher has found no file, and is calm; no read could wake it. */
static void start_a_calm_watcher(void)
{
    open_without_file(FILE_BYTES, 2 * STRETCHES, true, true);
    fake.missing[0] = 0;
    rp_residency_poll(&residency);
    assert_int_equal(residency.watcher_state, RP_WATCHER_CALM);
    residency.taken = rp_a64_load_relaxed(&taken);
    rp_residency_start(&residency);
    assert_non_null(stretches = add_file(0, FILE_BYTES));
}

static void wait_until_mapped(void)
{
    uint64_t begin = rp_now_ns();
    while (rp_residency_mode(stretches, 0, 1) != RP_READ_MAPPED &&
           rp_now_ns() - begin < PATIENCE_NS)
        rp_sleep_ns(1000000);
    assert_int_equal(rp_residency_mode(stretches, 0, 1), RP_READ_MAPPED);
}

static void a_document_of_a_new_file_wakes_the_watcher(void **state)
{
    (void)state;
    start_a_calm_watcher();
    rp_residency_announce(&residency);
    wait_until_mapped();
    rp_residency_stop(&residency);
    rp_residency_close(&residency);
}

/* It comes before the place that the watcher has reached, and no read comes afterwards. */
static void a_new_file_behind_the_watcher_is_looked_at(void **state)
{
    (void)state;
    open_without_file(FILES * FILE_BYTES, FILES * STRETCHES, true, true);
    assert_non_null(add_file(1, FILE_BYTES));
    look(FILES * STRETCHES);
    assert_int_equal(residency.watcher_state, RP_WATCHER_CALM);
    fake.missing[0] = 0;
    residency.at_file = 1;
    residency.at_stretch = 1;
    residency.taken = rp_a64_load_relaxed(&taken);
    assert_non_null(stretches = add_file(0, FILE_BYTES));
    rp_residency_announce(&residency);
    rp_residency_start(&residency);
    wait_until_mapped();
    rp_residency_stop(&residency);
    rp_residency_close(&residency);
}

/* A corpus that memory has no room for has only single-document reads, and the watcher stays calm.
 */
static void later_documents_leave_the_watcher_calm(void **state)
{
    (void)state;
    start_a_calm_watcher();
    rp_residency_stop(&residency);
    rp_residency_announce(&residency);
    assert_true(rp_a32_exchange_acquire(&residency.has_new_file, 0));
    rp_residency_announce(&residency);
    assert_false(rp_a32_load_relaxed(&residency.has_new_file));
    rp_residency_close(&residency);
}

/* ---- the kernel's ---------------------------------------------------------------------------- */

static void the_kernel_says_what_it_holds(void **state)
{
    (void)state;
    const struct rp_page_cache *kernel = &rp_page_cache_of_kernel;
    uint64_t bytes = 3u << 20;
    int fd = open("held", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    struct rp_page_cache_file file = {.fd = fd, .map = map, .bytes = bytes};
    file.way = kernel->find_way(&file);
    assert_int_not_equal(file.way, RP_PAGE_CACHE_SILENT);
    static const enum rp_page_cache_way ways[] = {RP_PAGE_CACHE_COUNTED, RP_PAGE_CACHE_LISTED,
                                                  RP_PAGE_CACHE_PROBED};
    for (uint32_t i = 0; i < 3 && file.way != RP_PAGE_CACHE_WHOLE; i++) {
        if (file.way > ways[i])
            continue; /* an older kernel */
        file.way = ways[i];
        kernel->read_ahead(&file, 0, bytes);
        kernel->settle(&file, 0, bytes);
        assert_int_equal(kernel->missing(&file, 0, bytes), 0);
    }
    struct rp_page_cache_file none = {.fd = -1};
    assert_int_equal(kernel->find_way(&none), RP_PAGE_CACHE_SILENT);
    assert_true(kernel->available() > 0);
    munmap(map, bytes);
    close(fd);
}

/* From and to the middle of a page. Only the call brings the pages. */
static void the_kernel_reads_ahead_any_range(void **state)
{
    (void)state;
    const struct rp_page_cache *kernel = &rp_page_cache_of_kernel;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = 64 * page;
    uint8_t *content = calloc(1, bytes);
    int fd = open("ahead", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, content, bytes), bytes);
    assert_int_equal(fsync(fd) | posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    struct rp_page_cache_file file = {.fd = fd, .map = map, .bytes = bytes};
    file.way = kernel->find_way(&file);
    if (file.way == RP_PAGE_CACHE_COUNTED || file.way == RP_PAGE_CACHE_LISTED) {
        assert_int_equal(kernel->missing(&file, 0, bytes), bytes);
        kernel->read_ahead(&file, 16 * page + 100, 2 * page);
        int64_t until = (int64_t)rp_now_ns() + PATIENCE_NS;
        while (kernel->missing(&file, 16 * page, 3 * page) > 0 && (int64_t)rp_now_ns() < until)
            usleep(1000);
        assert_int_equal(kernel->missing(&file, 16 * page, 3 * page), 0);
        assert_int_equal(kernel->missing(&file, 0, 16 * page), 16 * page);
    }
    munmap(map, bytes);
    close(fd);
    free(content);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_read_in_and_mapped),
        cmocka_unit_test(of_what_does_not_fit_a_part_is_kept),
        cmocka_unit_test(the_room_follows_memory_without_flapping),
        cmocka_unit_test(what_is_lost_at_once_is_not_read_in_for_ever),
        cmocka_unit_test(direct_reads_do_not_fill_the_page_cache),
        cmocka_unit_test(buffered_reads_take_the_pages_of_what_is_mapped),
        cmocka_unit_test(a_slow_trainer_does_not_fill_the_page_cache),
        cmocka_unit_test(pages_beyond_the_end_are_not_missing),
        cmocka_unit_test(files_in_memory_take_no_room),
        cmocka_unit_test(a_change_ends_the_calm_at_once),
        cmocka_unit_test(a_document_of_a_new_file_wakes_the_watcher),
        cmocka_unit_test(a_new_file_behind_the_watcher_is_looked_at),
        cmocka_unit_test(later_documents_leave_the_watcher_calm),
        cmocka_unit_test(the_kernel_says_what_it_holds),
        cmocka_unit_test(the_kernel_reads_ahead_any_range),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
