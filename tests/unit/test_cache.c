/* SPDX-License-Identifier: Apache-2.0 */
/* The block cache: it returns the kept bytes, also after damage to any byte of its files; it takes
 * no more room than it may; and it evicts by Belady's rule. */
#include "cache_kit.h"

/* ---- kept bytes ---------------------------------------------------------------------------- */

static const struct rp_cache_object two[] = {{"a", "\"1\"", 40 * CHUNK + 5000},
                                             {"b", "", 3 * PAGE}};

static void test_what_was_kept_is_there(void **state)
{
    (void)state;
    struct rp_cache *cache = open_cache(64 * CHUNK, two, 2);
    struct rp_entry *a = rp_entry_open(cache, 0), *b = rp_entry_open(cache, 1);
    assert_false(holds(a, "a", 0, PAGE));
    keep(cache, a, "a", 3 * PAGE, 2 * PAGE);
    keep(cache, a, "a", CHUNK - PAGE, 2 * PAGE); /* in two chunks */
    keep(cache, a, "a", 40 * CHUNK + PAGE, 904); /* the end of the object */
    keep(cache, b, "b", 0, 3 * PAGE);
    for (int again = 0; again < 2; again++) {
        assert_true(holds(a, "a", 3 * PAGE, 2 * PAGE));
        assert_true(holds(a, "a", CHUNK - PAGE, 2 * PAGE));
        assert_true(holds(a, "a", 40 * CHUNK + PAGE, 904));
        assert_true(holds(b, "b", 0, 3 * PAGE));
        struct rp_cache_held held = rp_entry_view(a, 3 * PAGE, CHUNK - 2 * PAGE);
        assert_int_equal(held.head, 2 * PAGE);
        assert_int_equal(held.tail, 2 * PAGE);
        held = rp_entry_view(a, 40 * CHUNK, 5000);
        assert_int_equal(held.head, 0);
        assert_int_equal(held.tail, 904);
        assert_int_equal(counts_of(cache).held_bytes, 8 * PAGE);
        rp_entry_close(a);
        rp_entry_close(b);
        rp_cache_close(cache);
        cache = open_cache(64 * CHUNK, two, 2); /* another engine, later */
        a = rp_entry_open(cache, 0);
        b = rp_entry_open(cache, 1);
    }
    rp_entry_close(a);
    rp_entry_close(b);
    rp_cache_close(cache);
}

static void test_another_identity_is_another_object(void **state)
{
    (void)state;
    static const struct rp_cache_object others[] = {
        {"a", "\"2\"", 40 * CHUNK + 5000}, {"a", "\"1\"", 40 * CHUNK}, {"a\"", "1\"", 41 * CHUNK}};
    struct rp_cache *cache = open_cache(64 * CHUNK, two, 1);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    keep(cache, kept, "a", 0, CHUNK);
    rp_entry_close(kept);
    rp_cache_close(cache);
    cache = open_cache(64 * CHUNK, others, 3);
    for (uint32_t i = 0; i < 3; i++) {
        kept = rp_entry_open(cache, i);
        assert_int_equal(rp_entry_view(kept, 0, PAGE).head, 0);
        rp_entry_close(kept);
    }
    rp_cache_close(cache);
}

static void path_of(const struct rp_cache_object *object, char path[128])
{
    char name[RP_ENTRY_NAME_BYTES];
    rp_entry_file_name(rp_entry_file_key(object), name);
    snprintf(path, 128, "%s/blocks/%s", directory, name);
}

static void overwrite(const char *path, const void *data, size_t bytes, off_t offset)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, data, bytes, offset), bytes);
    close(fd);
}

/* Each byte of a file is damaged, one after the other: pages, hashes, words, header. */
static void test_no_damaged_byte_is_given(void **state)
{
    (void)state;
    static const struct rp_cache_object small = {"a", "1", 3 * PAGE - 96};
    char path[128];
    path_of(&small, path);
    unsigned lost = 0, tried = 0;
    for (off_t at = 0;; at += at < 64 || (at >= 4000 && at < 4112) ? 1 : 97) {
        struct rp_cache *cache = open_cache(64 * CHUNK, &small, 1);
        struct rp_entry *kept = rp_entry_open(cache, 0);
        keep(cache, kept, "a", 0, 3 * PAGE - 96);
        assert_true(holds(kept, "a", 0, 3 * PAGE - 96));
        rp_entry_close(kept);
        rp_cache_close(cache);

        int fd = open(path, O_RDWR | O_CLOEXEC);
        uint8_t byte;
        bool is_inside = pread(fd, &byte, 1, at) == 1;
        byte ^= 4;
        assert_true(!is_inside || pwrite(fd, &byte, 1, at) == 1);
        close(fd);

        cache = open_cache(64 * CHUNK, &small, 1);
        kept = rp_entry_open(cache, 0);
        lost += !holds(kept, "a", 0, 3 * PAGE - 96); /* fails if it is another content */
        tried++;
        keep(cache, kept, "a", 0, 3 * PAGE - 96); /* while its thread checks the found files */
        assert_true(holds(kept, "a", 0, 3 * PAGE - 96));
        assert_int_equal(counts_of(cache).held_bytes, 3 * PAGE);
        rp_entry_close(kept);
        rp_cache_close(cache);
        if (!is_inside)
            break;
    }
    assert_true(lost > 100 && lost < tried);
}

/* Words that name pages which are not counted, or which the object does not have, while a damaged
 * page makes the cache's thread check its chunk. */
static void test_damaged_words_are_no_failure(void **state)
{
    (void)state;
    static const struct rp_cache_object small = {"a", "1", 3 * PAGE - 96};
    static const struct rp_entry_words all[] = {{0, UINT64_MAX},
                                                {UINT64_MAX, UINT64_MAX},
                                                {UINT64_MAX, 0},
                                                {1, 7},
                                                {~(uint64_t)6, ~(uint64_t)6}};
    char path[128];
    path_of(&small, path);
    for (size_t i = 0; i < RP_ARRAY_COUNT(all); i++) {
        struct rp_cache *cache = open_cache(64 * CHUNK, &small, 1);
        struct rp_entry *kept = rp_entry_open(cache, 0);
        keep(cache, kept, "a", 0, 3 * PAGE - 96);
        overwrite(path, "damage", 6, (off_t)rp_entry_data_offset(kept));
        overwrite(path, &all[i], sizeof all[i], 4096);
        assert_false(holds(kept, "a", 0, PAGE));
        rp_entry_close(kept);
        rp_cache_close(cache);
        cache = open_cache(64 * CHUNK, &small, 1); /* counts again */
        kept = rp_entry_open(cache, 0);
        keep(cache, kept, "a", 0, 3 * PAGE - 96);
        assert_true(holds(kept, "a", 0, 3 * PAGE - 96));
        assert_int_equal(counts_of(cache).held_bytes, 3 * PAGE);
        assert_int_equal(counts_of(cache).failures, 0);
        rp_entry_close(kept);
        rp_cache_close(cache);
    }
}

/* While it is open. After that it is kept again, and so is any other object. */
static void test_a_file_that_was_removed_or_cut_is_made_again(void **state)
{
    (void)state;
    char path[128];
    struct stat before, now;
    path_of(&two[0], path);
    for (int i = 0; i < 4; i++) {
        const bool is_cut = i & 1, is_doubted = i & 2;
        struct rp_cache *cache = open_cache(64 * CHUNK, two, 2);
        struct rp_entry *a = rp_entry_open(cache, 0), *b = rp_entry_open(cache, 1);
        keep(cache, a, "a", 0, 2 * PAGE);
        assert_int_equal(stat(path, &before), 0);
        assert_int_equal(is_cut ? truncate(path, 100) : unlink(path), 0);
        if (is_doubted)
            rp_entry_doubt(a, 0, PAGE);
        else
            keep(cache, a, "a", 4 * PAGE, PAGE);
        rp_cache_flush(cache);
        assert_int_equal(stat(path, &now), 0);
        assert_int_equal(now.st_size, before.st_size);
        assert_false(holds(a, "a", 0, PAGE));
        keep(cache, a, "a", 4 * PAGE, PAGE);
        keep(cache, b, "b", 0, PAGE);
        assert_true(holds(a, "a", 4 * PAGE, PAGE) && holds(b, "b", 0, PAGE));
        assert_int_equal(counts_of(cache).failures, 0);
        rp_entry_close(a);
        rp_entry_close(b);
        rp_cache_close(cache);
        cache = open_cache(64 * CHUNK, two, 2);
        a = rp_entry_open(cache, 0);
        assert_true(holds(a, "a", 4 * PAGE, PAGE)); /* in the file of that name */
        rp_entry_close(a);
        rp_cache_close(cache);
    }
}

static void make_old(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* An empty cache file that was last used an hour ago. */
static void test_only_files_of_other_runs_are_removed_when_empty(void **state)
{
    (void)state;
    static const struct rp_entry_words none = {0, 0};
    char path[128];
    path_of(&two[1], path);
    struct rp_cache *cache = open_cache(64 * CHUNK, two, 2);
    struct rp_entry *b = rp_entry_open(cache, 1);
    keep(cache, b, "b", 0, PAGE);
    rp_entry_close(b);
    rp_cache_close(cache);
    overwrite(path, &none, sizeof none, 4096);
    make_old(path);
    rp_cache_close(open_cache(64 * CHUNK, two, 2));
    assert_int_equal(access(path, F_OK), 0);
    rp_cache_close(open_cache(64 * CHUNK, two, 1));
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- room ------------------------------------------------------------------------------------ */

struct access {
    uint32_t chunk;
    uint64_t next; /* when it is used again; NEVER */
};

/* A word for each chunk: is it kept? By Belady's rule, from the whole sequence. */
static void oracle(bool *kept, uint32_t chunks, uint32_t room, struct access access,
                   const uint64_t *next)
{
    uint32_t held = 0, victim = UINT32_MAX;
    for (uint32_t c = 0; c < chunks; c++) {
        held += kept[c];
        if (kept[c] && (victim == UINT32_MAX || next[c] > next[victim]))
            victim = c;
    }
    if (kept[access.chunk])
        return;
    if (held == room && next[victim] <= access.next)
        return;
    if (held == room)
        kept[victim] = false;
    kept[access.chunk] = true;
}

static void test_what_is_evicted_is_what_is_needed_last(void **state)
{
    (void)state;
    enum { CHUNKS = 40, ACCESSES = 160 };
    static const struct rp_cache_object object = {"a", "1", CHUNKS * CHUNK};
    for (unsigned seed = 1; seed <= 3; seed++) {
        leave(NULL);
        assert_int_equal(enter(NULL), 0);
        srandom(seed);
        uint32_t order[ACCESSES], room = 32;
        bool kept_by_oracle[CHUNKS] = {false};
        struct rp_cache *cache = open_cache(room * CHUNK, &object, 1);
        struct rp_entry *kept = rp_entry_open(cache, 0);
        for (unsigned i = 0; i < ACCESSES; i++)
            order[i] = (uint32_t)random() % CHUNKS;
        for (unsigned i = 0; i < ACCESSES; i++) {
            for (uint32_t c = 0; c < CHUNKS; c++) {
                next_uses[c] = RP_CACHE_NEVER;
                for (unsigned j = ACCESSES - 1; j > i; j--)
                    next_uses[c] = order[j] == c ? j : next_uses[c];
            }
            const struct access access = {order[i], next_uses[order[i]]};
            oracle(kept_by_oracle, CHUNKS, room, access, next_uses);
            keep(cache, kept, "a", (uint64_t)order[i] * CHUNK, CHUNK);
            for (uint32_t c = 0; c < CHUNKS; c++)
                if ((rp_entry_view(kept, (uint64_t)c * CHUNK, CHUNK).head == CHUNK) !=
                    kept_by_oracle[c])
                    fail_msg("seed %u, access %u, chunk %u: not as by Belady's rule", seed, i, c);
            assert_true(counts_of(cache).held_bytes <= room * CHUNK);
            assert_true(bytes_on_disk() <= room * CHUNK + 64 * PAGE);
        }
        assert_true(counts_of(cache).evicted_bytes > 0);
        rp_entry_close(kept);
        rp_cache_close(cache);
    }
}

static void test_a_smaller_limit_holds_from_the_start(void **state)
{
    (void)state;
    struct rp_cache *cache = open_cache(64 * CHUNK, two, 1);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    for (uint32_t c = 0; c < 40; c++) {
        next_uses[c] = c + 1;
        keep(cache, kept, "a", (uint64_t)c * CHUNK, CHUNK);
    }
    rp_entry_close(kept);
    rp_cache_close(cache);
    cache = open_cache(32 * CHUNK, two, 1);
    kept = rp_entry_open(cache, 0);
    assert_int_equal(counts_of(cache).held_bytes, 32 * CHUNK);
    for (uint32_t c = 0; c < 40; c++)
        assert_int_equal(holds(kept, "a", (uint64_t)c * CHUNK, CHUNK), c < 32);
    rp_entry_close(kept);
    rp_cache_close(cache);
}

/* The chunks of another run have no known next use. Chunks without a use for an hour go first, even
 * before those never needed; the rest is needed at the usual distance, which is 100 here. */
static void test_files_of_other_runs_go_by_their_age(void **state)
{
    (void)state;
    static const struct rp_cache_object others[] = {{"old", "1", 2 * CHUNK},
                                                    {"new", "1", 2 * CHUNK}};
    static const struct rp_cache_object own = {"a", "1", 8 * CHUNK};
    char path[128];
    struct rp_cache *cache = open_cache(4 * CHUNK, others, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct rp_entry *kept = rp_entry_open(cache, i);
        keep(cache, kept, others[i].name, 0, CHUNK);
        keep(cache, kept, others[i].name, CHUNK, CHUNK);
        rp_entry_close(kept);
    }
    rp_cache_close(cache);
    path_of(&others[0], path);
    make_old(path);

    static const uint64_t distances[] = {1000, 99, 99, 99, 101};
    for (uint32_t c = 0; c < 5; c++)
        next_uses[c] = distances[c];
    cache = open_cache(4 * CHUNK, &own, 1);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    keep(cache, kept, "a", 0, CHUNK); /* in the place of the old one's */
    assert_true(holds(kept, "a", 0, CHUNK));
    keep(cache, kept, "a", CHUNK, CHUNK);
    assert_true(holds(kept, "a", 0, CHUNK) && holds(kept, "a", CHUNK, CHUNK));
    keep(cache, kept, "a", 2 * CHUNK, CHUNK); /* in the place of the one that is needed in 1000 */
    assert_false(holds(kept, "a", 0, CHUNK));
    keep(cache, kept, "a", 3 * CHUNK, CHUNK); /* in the place of the new one's */
    assert_true(holds(kept, "a", 3 * CHUNK, CHUNK));
    keep(cache, kept, "a", 4 * CHUNK, CHUNK); /* needed later than all that is there */
    assert_false(holds(kept, "a", 4 * CHUNK, CHUNK));
    rp_entry_close(kept);
    rp_cache_close(cache);
    cache = open_cache(4 * CHUNK, others, 2);
    struct rp_entry *old = rp_entry_open(cache, 0), *new = rp_entry_open(cache, 1);
    assert_int_equal(rp_entry_view(old, 0, CHUNK).head + rp_entry_view(old, CHUNK, CHUNK).head, 0);
    assert_int_equal(rp_entry_view(new, 0, CHUNK).head + rp_entry_view(new, CHUNK, CHUNK).head,
                     CHUNK);
    rp_entry_close(old);
    rp_entry_close(new);
    rp_cache_close(cache);
}

/* More chunks than are compared: those drawn must be among the ones that are needed late. */
static void test_a_large_stock_is_drawn_from(void **state)
{
    (void)state;
    enum { OBJECTS = 1400, KEPT = 1200 };
    static struct rp_cache_object objects[OBJECTS];
    static char names[OBJECTS][8];
    for (uint32_t i = 0; i < OBJECTS; i++) {
        snprintf(names[i], sizeof names[i], "%u", i);
        objects[i] = (struct rp_cache_object){names[i], "1", PAGE};
    }
    struct rp_cache *cache = open_cache(KEPT * PAGE, objects, OBJECTS);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        struct rp_entry *kept = rp_entry_open(cache, i);
        next_uses[0] = 0; /* object 0 is needed at once; all others are alike */
        keep(cache, kept, names[i], 0, PAGE);
        rp_entry_close(kept);
    }
    assert_true(counts_of(cache).held_bytes <= KEPT * PAGE);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    assert_true(holds(kept, names[0], 0, PAGE));
    rp_entry_close(kept);
    rp_cache_close(cache);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        CASE(test_what_was_kept_is_there),
        CASE(test_another_identity_is_another_object),
        CASE(test_no_damaged_byte_is_given),
        CASE(test_damaged_words_are_no_failure),
        CASE(test_a_file_that_was_removed_or_cut_is_made_again),
        CASE(test_only_files_of_other_runs_are_removed_when_empty),
        CASE(test_what_is_evicted_is_what_is_needed_last),
        CASE(test_a_smaller_limit_holds_from_the_start),
        CASE(test_files_of_other_runs_go_by_their_age),
        CASE(test_a_large_stock_is_drawn_from),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
