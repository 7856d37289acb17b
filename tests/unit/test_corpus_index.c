/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a corpus: its layout, every damaged bit and every truncation, the bytes that an
 * append keeps, prefix roots, and the same answers as from the opened shards. */
#include "index_kit.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "../fakes/index_image.h"
#include "descriptor_zero.h"

static void test_it_answers_as_opened_shards_do(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_corpus *made, *opened;
    put_shards();
    struct rp_indexed built = make(SHARDS);
    assert_int_equal(built.outcome, RP_INDEXED_NEW);
    assert_int_equal(built.shards_read, SHARDS);
    assert_int_equal(open_corpus_with(&made, INDEX, &error), 0);
    assert_int_equal(open_corpus_with(&opened, NULL, &error), 0);
    assert_int_equal(compare(made, opened, &error), 0);
    struct rp_fingerprint with = rp_corpus_fingerprint(made), as = rp_corpus_fingerprint(opened);
    assert_true(rp_hash128_equal(with.sampled, as.sampled));
    rp_corpus_close(opened);
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_int_equal(
            rp_sidecar_build(paths[i], &(struct rp_sidecar_build_options){.hints = &hints}, &error),
            0);
    assert_int_equal(open_corpus_with(&opened, NULL, &error), 0);
    assert_int_equal(compare(made, opened, &error), 0);
    as = rp_corpus_fingerprint(opened);
    assert_true(rp_hash128_equal(with.sampled, as.sampled));
    assert_true(rp_hash128_equal(with.full, as.full));
    rp_corpus_close(opened);
    rp_corpus_close(made);
    for (uint32_t i = 0; i < SHARDS; i++) {
        char sidecar[32];
        snprintf(sidecar, sizeof sidecar, "%s.rpi", paths[i]);
        assert_int_equal(unlink(sidecar), 0);
    }
}

/* Sums over the shards, and the places of the parts, only from INDEX.md. */
static void test_layout(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    put_shards();
    unlink(INDEX);
    make(SHARDS);
    size_t count = get_file(INDEX, bytes, sizeof bytes);
    assert_memory_equal(bytes, "\x89RPI\r\n\x1a\n", 8);
    assert_int_equal(rp_load_u32(bytes + 8), 1);
    const uint8_t *slot = bytes + 128; /* generation 1's */
    assert_int_equal(rp_load_u64(slot), 1);
    uint64_t head_at = rp_load_u64(slot + 8), head_bytes = rp_load_u64(slot + 16);
    assert_int_equal(head_at + head_bytes, count);
    struct rp_hash128 root = rp_hash128(bytes + head_at, head_bytes);
    assert_memory_equal(slot + 32, &root, 16);
    const uint8_t *head = bytes + head_at, *source = head + 128, *segment = source + 128;
    assert_int_equal(rp_load_u32(head + 8), 1);
    assert_int_equal(rp_load_u32(head + 12), 1);
    assert_int_equal(rp_load_u32(head + 16), 0);
    assert_int_equal(rp_load_u64(head + 24), SHARDS);
    assert_int_equal(rp_load_u64(source + 8), 840); /* tokens */
    assert_int_equal(rp_load_u32(source + 32), SHARDS);
    uint64_t documents = rp_load_u64(source);
    const uint8_t *data = bytes + rp_load_u64(segment);
    assert_int_equal(rp_load_u64(segment), 256);
    assert_int_equal(rp_load_u32(segment + 52), 1); /* extents, no spans */
    assert_int_equal(rp_load_u64(data + 8), 22);    /* the beginning of the second document */
    assert_int_equal(rp_load_u32(data + 8 * documents), 11);
    uint64_t records = rp_align_up(12 * documents, 8);
    assert_int_equal(rp_load_u64(data + records + 320), 2 * token_counts[1]);
    uint64_t first = rp_load_u64(data + records + 3 * 320 + 8); /* documents of the first shard */
    assert_int_equal(first, rp_load_u64(data + records + 16));
    assert_memory_equal(segment + 80, source + 64, 32); /* the prefix is the whole source */
    size_t data_bytes = (size_t)(head - data) - 8;
    uint64_t page = rp_hash64(data, data_bytes); /* its only one, and short */
    assert_true(data_bytes < 4096);
    assert_memory_equal(data + data_bytes, &page, sizeof page);
    root = rp_hash128(&page, sizeof page);
    assert_memory_equal(segment + 64, &root, 16);
    assert_memory_equal(head + 128 + 256, "all", 4);
}

static int check_whole_index(struct rp_error *error)
{
    static const struct rp_progress silent;
    const struct rp_index_open_options options = {.path = INDEX};
    struct rp_index *index;
    int code = rp_index_open(&index, &options, error);
    if (code == 0)
        code = rp_index_check_all(index, &silent, error);
    rp_index_close(index);
    return code;
}

static int try_all(const struct rp_corpus *wanted, struct rp_error *error)
{
    struct rp_corpus *corpus;
    int code = open_corpus_with(&corpus, INDEX, error);
    if (code < 0)
        return code;
    code = compare(corpus, wanted, error);
    rp_corpus_close(corpus);
    /* padding of pages is in no document: the check of all finds its damage */
    return code < 0 ? code : check_whole_index(error);
}

static void test_every_bit_and_every_truncation(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_error error = {0};
    struct rp_corpus *wanted;
    put_shards();
    unlink(INDEX);
    make(SHARDS);
    assert_int_equal(open_corpus_with(&wanted, NULL, &error), 0);
    size_t count = get_file(INDEX, bytes, sizeof bytes);
    int fd = open(INDEX, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t at = 0; at < count; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            uint8_t flipped = (uint8_t)(bytes[at] ^ 1u << bit);
            if (bytes[at] == 0 && bit != at % 8)
                continue; /* one bit of each byte of padding is enough */
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
            if (try_all(wanted, &error) == 0)
                fail_msg("bit %u of byte %zu is not checked", bit, at);
            assert_int_equal(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
        }
    close(fd);
    for (size_t cut = 0; cut < count; cut++) {
        assert_int_equal(truncate(INDEX, (off_t)(count - 1 - cut)), 0);
        if (cut > 300 && cut % 64)
            continue;
        assert_true(try_all(wanted, &error) < 0);
        assert_says(&error, INDEX "|ringpack index -c");
    }
    put_file(INDEX, bytes, count);
    assert_int_equal(try_all(wanted, &error), 0); /* the control */
    rp_corpus_close(wanted);
}

static void test_append(void **state)
{
    (void)state;
    static uint8_t before[1 << 16], after[1 << 16];
    struct rp_error error = {0};
    struct rp_index *index;
    struct rp_corpus *made, *opened;
    put_shards();
    unlink(INDEX);
    struct rp_indexed first = make(1);
    struct rp_fingerprint before_prefix = prefix_of_source();
    size_t count = get_file(INDEX, before, sizeof before);
    FILE *file = fopen(INDEX, "ab"); /* the rest of a killed append */
    assert_int_equal(fwrite("garbage", 1, 7, file), 7);
    fclose(file);
    struct rp_indexed second = make(SHARDS);
    assert_int_equal(second.outcome, RP_INDEXED_APPENDED);
    assert_int_equal(second.shards_read, SHARDS - 1);
    assert_int_equal(make(SHARDS).outcome, RP_INDEXED_UNCHANGED);
    get_file(INDEX, after, sizeof after);
    memset(before + 64, 0, 64); /* the slot that was written */
    memset(after + 64, 0, 64);
    assert_memory_equal(before, after, count);
    const struct rp_index_open_options options = {.path = INDEX};
    assert_int_equal(rp_index_open(&index, &options, &error), 0);
    assert_int_equal(index->segment_count, 2);
    /* The prefix root of the old part is unchanged; the whole's is the source's. */
    assert_memory_equal(&index->segments[0].prefix, &before_prefix, sizeof before_prefix);
    struct rp_fingerprint whole_source = index->sources[0].fingerprint;
    assert_memory_equal(&index->segments[1].prefix, &whole_source, sizeof whole_source);
    assert_memory_not_equal(&whole_source, &before_prefix, sizeof before_prefix);
    rp_index_close(index);
    assert_int_equal(open_corpus_with(&made, INDEX, &error), 0);
    assert_int_equal(open_corpus_with(&opened, NULL, &error), 0);
    assert_int_equal(compare(made, opened, &error), 0);
    rp_corpus_close(made);
    rp_corpus_close(opened);
    /* The fingerprint is independent of the index's making; the root is not. */
    unlink(INDEX);
    struct rp_indexed whole = make(SHARDS);
    assert_true(rp_hash128_equal(whole.fingerprint.full, second.fingerprint.full));
    assert_false(rp_hash128_equal(whole.fingerprint.full, first.fingerprint.full));
}

/* The prefix of any segment shows growth, so each is compared, and not only the last one. */
static void test_every_prefix_root_is_compared(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    struct rp_error error = {0};
    put_shards();
    unlink(INDEX);
    for (uint32_t shards = 1; shards <= SHARDS; shards++)
        make(shards);
    size_t count = get_file(INDEX, bytes, sizeof bytes);
    assert_int_equal(check_whole_index(&error), 0);
    for (uint64_t g = 0; g < SHARDS; g++)
        for (uint64_t at = 80; at < 112; at++) { /* the prefix of a segment */
            uint8_t *entry = image_entry(image_head(bytes, SHARDS), 1 + g);
            entry[at] ^= 1;
            image_mend(bytes, count);
            put_file(INDEX, bytes, count);
            assert_int_equal(check_whole_index(&error), -RP_E_CORRUPT);
            assert_says(&error, INDEX "|prefix of a source|ringpack index -c");
            entry[at] ^= 1;
        }
}

/* A slot that is damaged is not passed over: the older head would be another corpus. */
static void test_a_torn_slot_is_refused_and_mended(void **state)
{
    (void)state;
    for (unsigned slot = 0; slot < 2; slot++) { /* generations 2's and 1's */
        struct rp_error error = {0};
        struct rp_corpus *corpus;
        put_shards();
        unlink(INDEX);
        make(1);
        make(SHARDS);
        int fd = open(INDEX, O_RDWR | O_CLOEXEC);
        assert_int_equal(pwrite(fd, "torn", 4, 64 * (1 + slot) + 8), 4);
        close(fd);
        assert_int_equal(open_corpus_with(&corpus, INDEX, &error), -RP_E_CORRUPT);
        assert_says(&error, INDEX "|slot|ringpack index -c");
        struct rp_indexed built = make(SHARDS);
        assert_int_equal(built.outcome, RP_INDEXED_REWRITTEN);
        assert_int_equal(built.shards_read, slot == 0 ? SHARDS - 1 : 0);
        assert_int_equal(open_corpus_with(&corpus, INDEX, &error), 0);
        rp_corpus_close(corpus);
        assert_int_equal(make(SHARDS).outcome, RP_INDEXED_UNCHANGED);
    }
}

static void test_documents_without_a_mask_cannot_be_dropped(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    struct rp_indexing *build;
    struct rp_indexed built;
    struct rp_corpus *corpus;
    put_shards();
    unlink(INDEX);
    source.drop_untrained = true;
    source.shard_count = SHARDS;
    assert_int_equal(open_build(&build, &source, &error), 0);
    assert_int_equal(build_steps(build, &built, &error), -RP_E_CONFIG);
    assert_says(&error, "source `all`|drop_untrained|index its shards with a mask");
    rp_indexing_close(build);
    make(SHARDS);
    const struct rp_corpus_spec spec = {.sources = &source, .source_count = 1, .index = INDEX};
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), -RP_E_CONFIG);
    assert_says(&error, "source `all`|drop_untrained|index its shards with a mask");
}

static int count_scratch(void)
{
    int count = 0;
    DIR *folder = opendir(INDEX ".work");
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        count += strstr(entry->d_name, ".rpi") != NULL;
    if (folder)
        closedir(folder);
    return count;
}

/* The files of a killed build are taken only for the same declaration. */
static void test_scratch_is_of_one_declaration(void **state)
{
    (void)state;
    static const struct rp_progress silent;
    struct rp_error error = {0};
    struct rp_indexing *build;
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}}; /* scratch is newer */
    put_shards();
    unlink(INDEX);
    assert_int_equal(utimensat(AT_FDCWD, paths[0], times, 0), 0);
    for (int run = 0; run < 3; run++) { /* the last one as the first */
        struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
        source.shard_count = 1;
        source.mask.name = run == 1 ? "none" : NULL;
        assert_int_equal(open_build(&build, &source, &error), 0);
        assert_int_equal(rp_indexing_scan(build, 0, &silent, &error), 0);
        rp_indexing_close(build); /* as a kill does, the scratch sidecars stay */
        assert_int_equal(count_scratch(), run == 0 ? 1 : 2);
    }
    assert_int_equal(make(SHARDS).shards_read, SHARDS - 1);
}

/* Two shards with masks, of which the names say the order: an index of both in the other order is
 * rewritten, and takes what the older one says of them. */
static int index_masked(const char *const shards[2], struct rp_error *error)
{
    static const char *const patterns[] = {"*.npy"};
    static const struct rp_index_patterns of = {patterns, 1};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    struct rp_indexing *build;
    struct rp_indexed built;
    source.name = "masked";
    source.shards = shards;
    source.shard_count = 2;
    const struct rp_indexing_options options = {
        .path = INDEX, .sources = &source, .patterns = &of, .source_count = 1};
    int code = rp_indexing_open(&build, &options, error);
    if (code == 0)
        code = build_steps(build, &built, error);
    rp_indexing_close(build);
    return code;
}

/* Hashes find damage, not forgery: numbers of an older index are compared before they are used. */
static void test_spans_of_an_older_index_that_lie_are_refused(void **state)
{
    (void)state;
    static const char *const shards[] = {"token_ids-0.npy", "token_ids-1.npy"};
    static const char *const masks[] = {"labels_mask-0.npy", "labels_mask-1.npy"};
    static const char *const turned[] = {"token_ids-1.npy", "token_ids-0.npy"};
    static uint8_t bytes[1 << 16];
    struct rp_error error = {0};
    for (size_t i = 0; i < 2; i++) {
        uint16_t tokens[40];
        uint8_t mask[40];
        for (size_t t = 0; t < 40; t++) {
            tokens[t] = t % 10 == 9 ? EOS : 20;
            mask[t] = t % 2;
        }
        put_file(shards[i], tokens, sizeof tokens);
        put_file(masks[i], mask, sizeof mask);
    }
    unlink(INDEX);
    assert_int_equal(index_masked(shards, &error), 0);
    size_t count = get_file(INDEX, bytes, sizeof bytes);
    uint8_t *entry = image_entry(image_head(bytes, 1), 1);
    struct rp_index_segment segment;
    rp_index_decode_segment(entry, &segment);
    assert_true(segment.shape.table.has_spans && segment.shape.table.documents == 8);
    uint8_t *ends = bytes + segment.offset + 12 * 8; /* after the places and lengths of documents */
    const uint64_t spans = rp_load_u64(ends + 8 * 8);
    assert_int_equal(spans, segment.shape.table.span_count);
    const struct {
        uint64_t number, lie;
    } lies[] = {{4, spans + 1}, {4, UINT64_MAX}, {8, spans + 1}, {8, 0}, {0, UINT64_MAX}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(lies); i++) {
        uint64_t truth = rp_load_u64(ends + 8 * lies[i].number);
        rp_store_u64(ends + 8 * lies[i].number, lies[i].lie);
        image_mend(bytes, count);
        put_file(INDEX, bytes, count);
        assert_int_equal(index_masked(turned, &error), -RP_E_CORRUPT);
        assert_says(&error, "spans|ringpack index -c");
        rp_store_u64(ends + 8 * lies[i].number, truth);
    }
    image_mend(bytes, count);
    put_file(INDEX, bytes, count);
    assert_int_equal(index_masked(turned, &error), 0); /* the control */
    for (size_t i = 0; i < 2; i++) {
        unlink(shards[i]);
        unlink(masks[i]);
    }
}

static void *open_in_thread(void *argument)
{
    struct rp_error error = {0};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    source.shard_count = 1;
    return open_build(argument, &source, &error) == 0 ? NULL : "the build was not opened";
}

static int count_open(const char *name)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char path[300], target[4096] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0)
            count += strstr(target, name) != NULL;
    }
    closedir(folder);
    return count;
}

/* A build that waits for another one must not continue in the folder that this one removes. */
static void test_a_folder_that_was_removed_is_made_again(void **state)
{
    (void)state;
    struct rp_indexing *build = NULL;
    pthread_t thread;
    void *problem;
    put_shards();
    assert_int_equal(mkdir(INDEX ".work", 0700), 0);
    int fd = open(INDEX ".work", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(pthread_create(&thread, NULL, open_in_thread, &build), 0);
    while (count_open(INDEX ".work") < 2)
        sched_yield();
    assert_int_equal(rmdir(INDEX ".work"), 0);
    close(fd);
    assert_int_equal(pthread_join(thread, &problem), 0);
    assert_null(problem);
    assert_int_equal(access(INDEX ".work", F_OK), 0);
    rp_indexing_close(build);
}

static void test_a_shard_that_changed(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_corpus *corpus;
    put_shards();
    unlink(INDEX);
    make(SHARDS);
    assert_int_equal(open_corpus_with(&corpus, INDEX, &error), 0);
    const struct rp_shard *shard = rp_corpus_shard(corpus, 1);
    struct rp_stamp known = shard->stamp;
    int fd = open(paths[1], O_RDWR | O_CLOEXEC);
    assert_int_equal(rp_shard_check(shard, &known, fd, &error), 0);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    assert_int_equal(futimens(fd, times), 0);
    known = shard->stamp;
    assert_int_equal(rp_shard_check(shard, &known, fd, &error), -RP_E_CHANGED);
    assert_says(&error, "b.bin|differs from the corpus index|modification time|ringpack index");
    close(fd);
    rp_corpus_close(corpus);
    struct rp_indexed built = make(SHARDS);
    assert_int_equal(built.outcome, RP_INDEXED_REWRITTEN);
    assert_int_equal(built.shards_read, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_answers_as_opened_shards_do),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_every_bit_and_every_truncation),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_every_prefix_root_is_compared),
        cmocka_unit_test(test_a_torn_slot_is_refused_and_mended),
        cmocka_unit_test(test_documents_without_a_mask_cannot_be_dropped),
        cmocka_unit_test(test_scratch_is_of_one_declaration),
        cmocka_unit_test(test_spans_of_an_older_index_that_lie_are_refused),
        cmocka_unit_test(test_a_folder_that_was_removed_is_made_again),
        cmocka_unit_test(test_a_shard_that_changed),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
