/* SPDX-License-Identifier: Apache-2.0 */
/* Chained files: a cut file is continued and read up to the cut, every flipped bit is found, and
 * every entry that is removed, repeated or moved; appends of several processes are one chain; a
 * full disk costs only the entry. */
#include "checkpoint_sample.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/chain.h"

#define PATH "chain"
#define ENTRIES 4u

struct content {
    char text[8192];
    size_t bytes;
};

static void append(const char *members)
{
    struct rp_error error;
    assert_int_equal(rp_chain_append(PATH, members, false, &error), 0);
}

static void load(struct content *content)
{
    int fd = open(PATH, O_RDONLY);
    ssize_t got = read(fd, content->text, sizeof content->text);
    assert_true(got >= 0 && got < (ssize_t)sizeof content->text);
    content->bytes = (size_t)got;
    close(fd);
}

static void put(const void *text, size_t bytes)
{
    int fd = open(PATH, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
}

/* Some entries, one of them after the beginning of a line that was never finished. */
static void make(struct content *content)
{
    (void)unlink(PATH);
    append("\"event\":\"one\"");
    append("\"event\":\"two\",\"row\":7");
    load(content);
    memcpy(content->text + content->bytes, "{\"entry\":3,\"after", 17);
    put(content->text, content->bytes + 17);
    append("\"event\":\"three\"");
    append("\"event\":\"four\"");
    load(content);
}

struct found {
    size_t entries, broken, skipped, left;
};

static struct found look(const struct content *content)
{
    struct rp_chain_reader reader = {.text = content->text, .bytes = content->bytes};
    struct rp_chain_entry entry;
    struct found found = {0};
    while (rp_chain_next(&reader, &entry)) {
        found.entries++;
        found.broken += entry.link == RP_CHAIN_BROKEN;
        found.skipped += entry.link == RP_CHAIN_SKIPPED;
    }
    found.left = reader.bytes - reader.end;
    return found;
}

static bool is_whole(struct found found)
{
    return found.broken == 0 && found.left == 0;
}

static void it_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct content content;
    make(&content);
    struct found found = look(&content);
    assert_true(is_whole(found));
    assert_int_equal(found.entries, ENTRIES);
    assert_int_equal(found.skipped, 1);
    assert_non_null(strstr(content.text, "\"skipped\":18,"));
}

/* How many lines of the whole file end at or before `bytes`; the newline may be missing. */
static size_t entries_before(const struct content *whole, size_t bytes)
{
    struct rp_chain_reader reader = {.text = whole->text, .bytes = whole->bytes};
    struct rp_chain_entry entry;
    size_t count = 0;
    while (rp_chain_next(&reader, &entry))
        count += entry.offset + entry.bytes <= bytes;
    return count;
}

static void a_cut_anywhere_is_continued(void **state)
{
    (void)state;
    struct content whole, cut, grown;
    make(&whole);
    for (size_t bytes = 0; bytes <= whole.bytes; bytes++) {
        size_t expected = entries_before(&whole, bytes);
        memcpy(cut.text, whole.text, bytes);
        cut.bytes = bytes;
        struct found found = look(&cut);
        assert_int_equal(found.entries, expected);
        assert_int_equal(found.broken, 0);
        put(cut.text, bytes);
        append("\"event\":\"next\"");
        load(&grown);
        found = look(&grown);
        assert_true(is_whole(found));
        assert_int_equal(found.entries, expected + 1);
        assert_memory_equal(grown.text, whole.text, bytes); /* no entry is taken back */
    }
}

/* A power cut may leave other bytes than a beginning. */
static void any_bytes_are_continued(void **state)
{
    (void)state;
    static const char *const ends[] = {"\n", "\n\n\n", "{}\n", "x\ny\nz",
                                       "{\"entry\":3,\"after\":\""};
    struct content whole, grown;
    make(&whole);
    char zeros[4096] = {0};
    for (size_t i = 0; i <= RP_ARRAY_COUNT(ends); i++) {
        const char *end = i < RP_ARRAY_COUNT(ends) ? ends[i] : zeros;
        size_t bytes = i < RP_ARRAY_COUNT(ends) ? strlen(end) : sizeof zeros;
        memcpy(whole.text + whole.bytes, end, bytes);
        put(whole.text, whole.bytes + bytes);
        append("\"event\":\"next\"");
        load(&grown);
        struct found found = look(&grown);
        assert_true(is_whole(found) && found.entries == ENTRIES + 1 && found.skipped == 2);
    }
}

/* A file without an entry is continued where it can be the first write of a chain that was cut, and
 * any other file stays as it is. */
static void a_file_of_another_kind_is_left_alone(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
    } torn[] = {{"\n", 1},
                {"\0\0\0", 3},
                {"{", 1},
                {"{\"entry\":1,\"after\":\"0000", 24},
                {"\0\n{\"entry\":1", 12}},
      others[] = {{"seq_len: 8\n", 11}, {"{}\n", 3}, {"{\"entry\":2", 10}, {"\0\0\1", 3}, {"x", 1}};
    struct rp_error error;
    struct content content;
    for (size_t i = 0; i < RP_ARRAY_COUNT(torn); i++) {
        put(torn[i].text, torn[i].bytes);
        append("\"event\":\"first\"");
        load(&content);
        assert_true(is_whole(look(&content)) && look(&content).entries == 1);
        assert_memory_equal(content.text, torn[i].text, torn[i].bytes);
    }
    for (size_t i = 0; i < RP_ARRAY_COUNT(others); i++) {
        put(others[i].text, others[i].bytes);
        assert_int_equal(rp_chain_append(PATH, "\"a\":1", false, &error), -RP_E_FORMAT);
        load(&content);
        assert_int_equal(content.bytes, others[i].bytes);
        assert_memory_equal(content.text, others[i].text, others[i].bytes);
    }
}

/* More bytes of no entry than are read first. */
static void the_last_entry_is_found_far_back(void **state)
{
    (void)state;
    struct content whole;
    struct stat info;
    make(&whole);
    char *large = calloc(1, 300000);
    memcpy(large, whole.text, whole.bytes);
    put(large, 300000);
    append("\"event\":\"next\"");
    assert_int_equal(stat(PATH, &info), 0);
    large = realloc(large, (size_t)info.st_size);
    int fd = open(PATH, O_RDONLY);
    assert_int_equal(read(fd, large, (size_t)info.st_size), info.st_size);
    close(fd);
    struct rp_chain_reader reader = {.text = large, .bytes = (size_t)info.st_size};
    struct rp_chain_entry entry = {.number = 0};
    while (rp_chain_next(&reader, &entry))
        assert_int_not_equal(entry.link, RP_CHAIN_BROKEN);
    assert_int_equal(entry.number, ENTRIES + 1);
    free(large);
}

/* No more memory is taken than for 256 MiB, however long the file. */
static void no_entry_is_looked_for_further_back_than_its_limit(void **state)
{
    (void)state;
    struct rp_error error;
    put("", 0);
    assert_int_equal(truncate(PATH, 300 << 20), 0);
    assert_int_equal(rp_chain_append(PATH, "\"a\":1", false, &error), -RP_E_CORRUPT);
    assert_string_equal(error.message, PATH ": no entry in its last 268435456 bytes");
}

static void every_bit_that_flips_is_found(void **state)
{
    (void)state;
    struct content content;
    make(&content);
    for (size_t bit = 0; bit < content.bytes * 8; bit++) {
        char *byte = &content.text[bit / 8];
        *byte = (char)(*byte ^ 1 << bit % 8);
        assert_false(is_whole(look(&content)));
        *byte = (char)(*byte ^ 1 << bit % 8);
    }
}

/* Lines [0, 4) of the file in another order; -1 ends it. */
static void check_lines(const struct content *whole, const int *order, bool expected)
{
    struct rp_chain_reader reader = {.text = whole->text, .bytes = whole->bytes};
    struct rp_chain_entry entry;
    size_t begins[ENTRIES + 1] = {0}, count = 0;
    struct content other = {.bytes = 0};
    while (rp_chain_next(&reader, &entry))
        begins[++count] = reader.end;
    for (; *order >= 0; order++) {
        size_t bytes = begins[*order + 1] - begins[*order];
        memcpy(other.text + other.bytes, whole->text + begins[*order], bytes);
        other.bytes += bytes;
    }
    assert_int_equal(is_whole(look(&other)), expected);
}

static void entries_that_are_removed_or_moved_are_found(void **state)
{
    (void)state;
    struct content whole;
    make(&whole);
    check_lines(&whole, (int[]){0, 1, 2, 3, -1}, true);
    check_lines(&whole, (int[]){0, 1, 2, -1}, true); /* the end is not covered */
    check_lines(&whole, (int[]){1, 2, 3, -1}, false);
    check_lines(&whole, (int[]){0, 2, 3, -1}, false);
    check_lines(&whole, (int[]){0, 1, 3, -1}, false);
    check_lines(&whole, (int[]){0, 1, 1, 2, 3, -1}, false);
    check_lines(&whole, (int[]){0, 2, 1, 3, -1}, false);
}

static void processes_append_to_one_chain(void **state)
{
    (void)state;
    struct rp_error error;
    (void)unlink(PATH);
    for (int process = 0; process < 4; process++) {
        if (fork() != 0)
            continue;
        for (int i = 0; i < 25; i++)
            if (rp_chain_append(PATH, "\"event\":\"some\"", false, &error) < 0)
                _exit(1);
        _exit(0);
    }
    for (int process = 0; process < 4; process++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    static char text[100 * 512];
    int fd = open(PATH, O_RDONLY);
    ssize_t bytes = read(fd, text, sizeof text);
    close(fd);
    struct rp_chain_reader reader = {.text = text, .bytes = (size_t)bytes};
    struct rp_chain_entry entry = {.number = 0};
    while (rp_chain_next(&reader, &entry))
        assert_int_equal(entry.link, RP_CHAIN_LINKED);
    assert_int_equal(entry.number, 100);
    assert_int_equal(reader.end, bytes);
}

static bool forks_at_sync;
static pid_t heir;

/* As the C library's, with a moment for a fork by another thread of the process. */
int fdatasync(int fd)
{
    if (forks_at_sync)
        heir = fork();
    while (forks_at_sync && heir == 0)
        pause();
    return fsync(fd);
}

static void a_child_that_was_forked_meanwhile_holds_no_lock(void **state)
{
    (void)state;
    struct rp_error error;
    (void)unlink(PATH);
    forks_at_sync = true;
    assert_int_equal(rp_chain_append(PATH, "\"event\":\"one\"", true, &error), 0);
    forks_at_sync = false;
    int code = rp_chain_append(PATH, "\"event\":\"two\"", false, &error);
    kill(heir, SIGKILL);
    assert_int_equal(waitpid(heir, NULL, 0), heir);
    assert_int_equal(code, 0);
}

/* The file may grow by a few bytes only, so a part of the line is written. */
static void a_full_disk_costs_the_entry_only(void **state)
{
    (void)state;
    struct content before, after;
    struct rp_error error;
    struct rlimit was;
    make(&before);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    struct rlimit little = {before.bytes + 40, was.rlim_max};
    setrlimit(RLIMIT_FSIZE, &little);
    assert_int_equal(rp_chain_append(PATH, "\"event\":\"lost\"", false, &error), -ENOSPC);
    setrlimit(RLIMIT_FSIZE, &was);
    load(&after);
    assert_int_equal(after.bytes, before.bytes);
    append("\"event\":\"next\"");
    load(&after);
    assert_true(is_whole(look(&after)) && look(&after).entries == ENTRIES + 1);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    struct rp_error error;
    (void)unlink(PATH);
    assert_int_equal(symlink("elsewhere", PATH), 0);
    assert_int_equal(rp_chain_append(PATH, "\"a\":1", true, &error), -ELOOP);
    assert_int_equal(unlink(PATH) | mkdir(PATH, 0700), 0);
    assert_int_equal(rp_chain_append(PATH, "\"a\":1", true, &error), -EISDIR);
    assert_int_equal(rmdir(PATH) | mkfifo(PATH, 0600), 0);
    assert_int_equal(rp_chain_append(PATH, "\"a\":1", true, &error), -RP_E_FORMAT);
    assert_int_equal(unlink(PATH), 0);
    assert_int_equal(rp_chain_append("none/" PATH, "\"a\":1", true, &error), -ENOENT);
    char *large = malloc(RP_CHAIN_LINE_MAX + 1);
    memset(large, 'x', RP_CHAIN_LINE_MAX);
    large[RP_CHAIN_LINE_MAX] = 0;
    assert_int_equal(rp_chain_append(PATH, large, true, &error), -RP_E_USAGE);
    free(large);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_read_as_it_was_written),
        cmocka_unit_test(a_cut_anywhere_is_continued),
        cmocka_unit_test(any_bytes_are_continued),
        cmocka_unit_test(a_file_of_another_kind_is_left_alone),
        cmocka_unit_test(the_last_entry_is_found_far_back),
        cmocka_unit_test(no_entry_is_looked_for_further_back_than_its_limit),
        cmocka_unit_test(every_bit_that_flips_is_found),
        cmocka_unit_test(entries_that_are_removed_or_moved_are_found),
        cmocka_unit_test(processes_append_to_one_chain),
        cmocka_unit_test(a_child_that_was_forked_meanwhile_holds_no_lock),
        cmocka_unit_test(a_full_disk_costs_the_entry_only),
        cmocka_unit_test(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, sample_enter_memory, sample_leave);
}
