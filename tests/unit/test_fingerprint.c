/* SPDX-License-Identifier: Apache-2.0 */
/* Fingerprints: the same after a move, another after any change; a source's shards found by
 * document. */
#include "corpus_files.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/file.h"
#include "corpus/fingerprint.h"

#define GOLDEN_SAMPLED "ac1be0b2d73e40c475c2daf2a4440f30"
#define GOLDEN_FULL "4b8e5946ec5798a283cdbbb5e732dc6c"
#define TOKENS (96 * 4096 / 2 + 5) /* more blocks than are sampled */

static uint16_t tokens[TOKENS];

static struct rp_fingerprint fingerprint_of(const char *path)
{
    struct rp_corpus *corpus;
    struct rp_error error;
    assert_int_equal(open_one(&corpus, path, RP_FORMAT_RAW, RP_TOKEN_U16, 3, &error), 0);
    struct rp_fingerprint fingerprint = rp_corpus_fingerprint(corpus);
    rp_corpus_close(corpus);
    return fingerprint;
}

static void fill(void)
{
    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i * 7919 % 1000);
}

static struct rp_fingerprint indexed(const char *path)
{
    struct rp_error error;
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, 3);
    put_file(path, tokens, sizeof tokens);
    assert_int_equal(
        rp_sidecar_build(path, &(struct rp_sidecar_build_options){.hints = &hints}, &error), 0);
    return fingerprint_of(path);
}

static void test_survives_a_move(void **state)
{
    (void)state;
    fill();
    struct rp_fingerprint a = indexed("a.bin");
    assert_int_not_equal(a.full.low, 0);
    assert_int_equal(mkdir("elsewhere", 0700), 0);
    assert_int_equal(
        rename("a.bin", "elsewhere/b.bin") | rename("a.bin.rpi", "elsewhere/b.bin.rpi"), 0);
    struct timespec old[2] = {{1, 0}, {1, 0}};
    assert_int_equal(utimensat(AT_FDCWD, "elsewhere/b.bin", old, 0), 0);
    struct rp_fingerprint b = fingerprint_of("elsewhere/b.bin");
    assert_true(rp_hash128_equal(a.sampled, b.sampled));
    assert_true(rp_hash128_equal(a.full, b.full));
    assert_int_equal(unlink("elsewhere/b.bin.rpi"), 0);
    b = fingerprint_of("elsewhere/b.bin");
    assert_true(rp_hash128_equal(a.sampled, b.sampled));
    assert_int_equal(b.full.low | b.full.high, 0);
}

static void test_full_changes_with_any_byte(void **state)
{
    (void)state;
    fill();
    struct rp_fingerprint good = indexed("a.bin");
    unsigned sampled_missed = 0;
    for (size_t changed = 0; changed < TOKENS; changed += 1531) {
        tokens[changed] ^= 512; /* no document boundary moves */
        struct rp_fingerprint other = indexed("a.bin");
        assert_false(rp_hash128_equal(other.full, good.full));
        sampled_missed += rp_hash128_equal(other.sampled, good.sampled);
        tokens[changed] ^= 512;
    }
    /* The reason for two kinds: the sample does not see a change between its blocks. */
    assert_true(sampled_missed > 0);
    tokens[0] ^= 512; /* but the first and the last block are always in it */
    assert_false(rp_hash128_equal(indexed("a.bin").sampled, good.sampled));
    tokens[0] ^= 512, tokens[TOKENS - 1] ^= 512;
    assert_false(rp_hash128_equal(indexed("a.bin").sampled, good.sampled));
    tokens[TOKENS - 1] ^= 512;
    assert_true(rp_hash128_equal(indexed("a.bin").full, good.full)); /* the control */
}

static void test_boundaries_are_part_of_it(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    struct rp_hash128 seen[3];
    put_file("t.bin", "\1\0\2\0\3\0\4\0", 8);
    for (int64_t eos = 2; eos <= 4; eos++) {
        assert_int_equal(open_one(&corpus, "t.bin", RP_FORMAT_RAW, RP_TOKEN_U16, eos, &error), 0);
        seen[eos - 2] = rp_corpus_fingerprint(corpus).sampled;
        rp_corpus_close(corpus);
    }
    assert_false(rp_hash128_equal(seen[0], seen[1]) || rp_hash128_equal(seen[1], seen[2]));
    assert_int_equal(open_one(&corpus, "t.bin", RP_FORMAT_RAW, RP_TOKEN_I16, 2, &error), 0);
    assert_false(rp_hash128_equal(rp_corpus_fingerprint(corpus).sampled, seen[0]));
    rp_corpus_close(corpus);
}

/* The value itself: a change of the rule must be a decision, since every state token carries it. */
static void test_golden(void **state)
{
    (void)state;
    char hex[RP_HASH_HEX_BYTES];
    fill();
    struct rp_fingerprint fingerprint = indexed("golden.bin");
    assert_string_equal(rp_hash128_hex(fingerprint.sampled, hex), GOLDEN_SAMPLED);
    assert_string_equal(rp_hash128_hex(fingerprint.full, hex), GOLDEN_FULL);
}

/* Shards of very different sizes: every document is found in the right one, in the right order. */
static void test_documents_over_shards(void **state)
{
    (void)state;
    enum { SHARDS = 40 };
    static const int32_t ones[64] = {[0 ... 63] = 1};
    static char names[SHARDS][16];
    const char *shards[SHARDS];
    struct rp_corpus *corpus;
    struct rp_error error;
    unsigned counts[SHARDS];
    for (unsigned i = 0; i < SHARDS; i++) {
        int32_t lengths[64];
        counts[i] = i == 7 ? 64 : 1 + i % 3;
        for (unsigned d = 0; d < 64; d++)
            lengths[d] = ones[d] + (int32_t)(i * 2);
        snprintf(names[i], sizeof names[i], "many%02u", i);
        shards[i] = names[i];
        put_megatron(names[i], 8, 2, lengths, counts[i]);
    }
    struct rp_source_spec sources[] = {
        {.name = "x", .weight = 1, .shards = shards, .shard_count = 3, .eos = -1},
        {.name = "y", .weight = 1, .shards = shards, .shard_count = SHARDS, .eos = -1},
    };
    struct rp_corpus_spec spec = {.sources = sources, .source_count = 2};
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), 0);
    const struct rp_source *source = rp_corpus_source(corpus, 1);
    uint64_t document = 0;
    for (uint32_t i = 0; i < SHARDS; i++)
        for (unsigned d = 0; d < counts[i]; d++, document++) {
            struct rp_extent extent;
            assert_int_equal(rp_source_length(source, document), 1 + 2 * i);
            assert_int_equal(rp_source_extent(source, document, &extent, &error), 0);
            assert_int_equal(extent.shard, 3 + i);
            assert_int_equal(extent.byte_offset, d * 2 * (1 + 2 * i));
            assert_int_equal(rp_corpus_shard(corpus, extent.shard)->source, 1);
        }
    assert_int_equal(document, rp_source_documents(source));
    char text[128];
    rp_corpus_fingerprint_text(corpus, text, sizeof text);
    assert_non_null(strstr(text, "sampled (43 of 43 shards"));
    rp_corpus_close(corpus);

    const char *swapped[] = {shards[2], shards[1], shards[0]};
    struct rp_hash128 seen[2];
    for (int i = 0; i < 2; i++) {
        sources[0].shards = i ? swapped : shards;
        spec.source_count = 1;
        assert_int_equal(rp_corpus_open(&corpus, &spec, &error), 0);
        seen[i] = rp_corpus_fingerprint(corpus).sampled;
        rp_corpus_close(corpus);
    }
    assert_false(
        rp_hash128_equal(seen[0], seen[1])); /* the order of shards is part of the stream */
}

/* The sample of a large index, written from its description: 1024 blocks, spread evenly. */
static struct rp_hash128 sample_of(const uint8_t *index, uint64_t bytes)
{
    struct rp_hasher hasher;
    uint64_t last = (bytes - 1) / 4096;
    rp_hasher_begin(&hasher);
    for (uint64_t i = 0; i < 1024; i++) {
        uint64_t offset = i * last / 1023 * 4096;
        rp_hasher_add(&hasher, index + offset, (size_t)rp_min_u64(4096, bytes - offset));
    }
    return rp_hasher_finish(&hasher);
}

/* Beyond 64 MiB an index is sampled: its ends and its size always count. */
static void test_sample_of_a_large_index(void **state)
{
    (void)state;
    const uint64_t bytes = RP_INDEX_HASH_WHOLE_MAX + 12345;
    uint8_t *index = calloc(1, bytes);
    assert_non_null(index);
    struct rp_hash128 good = sample_of(index, bytes);
    assert_false(rp_hash128_equal(sample_of(index, bytes - 1), good));
    const uint64_t seen[] = {0, 4095, bytes - 1};
    for (size_t i = 0; i < 3; i++) {
        index[seen[i]] ^= 1;
        assert_false(rp_hash128_equal(sample_of(index, bytes), good));
        index[seen[i]] ^= 1;
    }
    index[4096] ^= 1; /* between two samples */
    assert_true(rp_hash128_equal(sample_of(index, bytes), good));
    struct rp_error error;
    struct rp_hash128 read = {0, 0};
    int fd = memfd_create("index", MFD_CLOEXEC);
    assert_int_equal(rp_file_write(fd, "index", index, bytes, &error), 0);
    assert_int_equal(rp_idx_sample(fd, "index", bytes, &read, &error), 0);
    assert_true(rp_hash128_equal(read, good));
    assert_int_equal(ftruncate(fd, (off_t)bytes - 1), 0);
    assert_int_equal(rp_idx_sample(fd, "index", bytes, &read, &error), -RP_E_CHANGED);
    close(fd);
    free(index);
}

static void test_a_change_while_running(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    put_file("run.bin", "\1\0\2\0\3\0\4\0", 8);
    assert_int_equal(open_one(&corpus, "run.bin", RP_FORMAT_RAW, RP_TOKEN_U16, 2, &error), 0);
    const struct rp_shard *shard = rp_corpus_shard(corpus, 0);
    struct rp_stamp known = shard->stamp;
    int fd = open("run.bin", O_RDWR);
    struct timespec kept[2] = {
        {0, UTIME_OMIT},
        {(time_t)(known.mtime_ns / 1000000000u), (long)(known.mtime_ns % 1000000000u)}};
    usleep(20000); /* longer than the clock of a file system stands still */
    assert_int_equal(rp_shard_check(shard, &known, fd, &error), 0);
    assert_int_equal(link("run.bin", "linked.bin"), 0); /* another name is no other content */
    assert_int_equal(rp_shard_check(shard, &known, fd, &error), 0);
    usleep(20000);
    assert_int_equal(pwrite(fd, "\7", 1, 0), 1);
    assert_int_equal(futimens(fd, kept), 0); /* the modification time can be set back */
    assert_int_equal(rp_shard_check(shard, &known, fd, &error), -RP_E_CHANGED);
    assert_says(&error, "run.bin|change time");
    struct timespec old[2] = {{1, 0}, {1, 0}};
    assert_int_equal(futimens(fd, old), 0);
    assert_int_equal(rp_shard_check(shard, &known, fd, &error), -RP_E_CHANGED);
    assert_says(&error, "run.bin|modification time");
    assert_int_equal(ftruncate(fd, 6), 0);
    assert_int_equal(rp_shard_check(shard, &known, fd, &error), -RP_E_CHANGED);
    assert_says(&error, "expected 8|found 6");
    close(fd);
    rp_corpus_close(corpus);
}

/* ---- samples whose first blocks are cached ------------------------------------ */

#define INDEX_SAMPLES 1024u

enum refusal { REFUSES_EAGAIN, REFUSES_EOPNOTSUPP, REFUSES_PART, REFUSAL_COUNT };

/* The page cache as a test wants it: it has the first `held` sampled blocks, and refuses one. It
 * has the blocks of all later queries, so a second query would be answered as if it were right. */
static struct {
    bool is_ours; /* or else it is the system's */
    enum refusal refusal;
    uint64_t blocks;
    uint32_t samples, held, asked, advised;
} cache;

static uint64_t sampled_offset(uint32_t i)
{
    uint64_t last = cache.blocks - 1;
    return (cache.blocks <= cache.samples ? i : i * last / (cache.samples - 1)) * 4096;
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    static ssize_t (*next)(int fd, const struct iovec *parts, int count, off_t offset, int flags);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "preadv2");
    if (!cache.is_ours)
        return next(fd, parts, count, offset, flags);
    assert_int_equal(flags, RWF_NOWAIT);
    assert_int_equal(count, 1);
    assert_int_equal(offset, sampled_offset(cache.asked));
    if (cache.asked++ != cache.held)
        return pread(fd, parts->iov_base, parts->iov_len, offset);
    memset(parts->iov_base, 0xee, parts->iov_len);
    if (cache.refusal == REFUSES_PART)
        return (ssize_t)parts->iov_len - 1;
    errno = cache.refusal == REFUSES_EAGAIN ? EAGAIN : EOPNOTSUPP;
    return -1;
}

int posix_fadvise(int fd, off_t offset, off_t bytes, int advice)
{
    static int (*next)(int fd, off_t offset, off_t bytes, int advice);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "posix_fadvise");
    if (!cache.is_ours)
        return next(fd, offset, bytes, advice);
    assert_int_equal(cache.asked, cache.held + 1); /* only after it refused one */
    assert_int_equal(offset, sampled_offset(cache.held + cache.advised++));
    assert_int_equal(bytes, 4096);
    assert_int_equal(advice, POSIX_FADV_WILLNEED);
    return 0;
}

static void hold(uint64_t bytes, uint32_t samples_max, uint32_t held, enum refusal refusal)
{
    uint64_t blocks = (bytes + 4095) / 4096;
    uint32_t samples = blocks < samples_max ? (uint32_t)blocks : samples_max;
    memset(&cache, 0, sizeof cache);
    cache.is_ours = true;
    cache.refusal = refusal;
    cache.blocks = blocks;
    cache.samples = samples;
    cache.held = held < samples ? held : samples;
}

static int let_go(void **state) /* also of a test that failed */
{
    (void)state;
    cache.is_ours = false;
    return 0;
}

/* No query comes after the first refusal, and the rest is requested at once. */
static void check_cache(void)
{
    assert_int_equal(cache.asked, cache.held + (cache.held < cache.samples));
    assert_int_equal(cache.advised, cache.samples - cache.held);
}

static const uint32_t held_counts[] = {0, 1, 2, 40, 62, 63, 64, 700, 1022, 1023, 1024};

static uint8_t *make_file(uint64_t bytes, int *fd)
{
    struct rp_error error;
    uint8_t *data = malloc(bytes);
    assert_non_null(data);
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 31 + i / 4096);
    *fd = memfd_create("sampled", MFD_CLOEXEC);
    assert_int_equal(rp_file_write(*fd, "sampled", data, bytes, &error), 0);
    return data;
}

static void test_sample_of_an_index_of_which_a_part_is_cached(void **state)
{
    (void)state;
    const uint64_t bytes = RP_INDEX_HASH_WHOLE_MAX + 12345;
    int fd;
    uint8_t *index = make_file(bytes, &fd);
    struct rp_hash128 good = sample_of(index, bytes), read;
    struct rp_error error;
    for (unsigned refusal = 0; refusal < REFUSAL_COUNT; refusal++)
        for (size_t i = 0; i < RP_ARRAY_COUNT(held_counts); i++) {
            hold(bytes, INDEX_SAMPLES, held_counts[i], refusal);
            assert_int_equal(rp_idx_sample(fd, "index", bytes, &read, &error), 0);
            check_cache();
            assert_true(rp_hash128_equal(read, good));
        }
    close(fd);
    free(index);
}

static void check_token_sample(const uint8_t *data, uint64_t bytes, const uint64_t *sample)
{
    for (uint32_t i = 0; i < cache.samples; i++) {
        uint64_t offset = sampled_offset(i), left = bytes - offset;
        assert_int_equal(sample[i], rp_hash64(data + offset, left < 4096 ? left : 4096));
    }
}

static void test_sample_of_tokens_of_which_a_part_is_cached(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {100, 5 * 4096 + 7, 64 * 4096, 900 * 4096 + 5};
    uint64_t sample[RP_SAMPLE_BLOCKS];
    struct rp_error error;
    for (size_t s = 0; s < RP_ARRAY_COUNT(sizes); s++) {
        int fd;
        uint8_t *data = make_file(sizes[s], &fd);
        for (unsigned refusal = 0; refusal < REFUSAL_COUNT; refusal++)
            for (size_t i = 0; i < RP_ARRAY_COUNT(held_counts); i++) {
                hold(sizes[s], RP_SAMPLE_BLOCKS, held_counts[i], refusal);
                assert_int_equal(rp_sample_read(fd, "tokens", sizes[s], sample, &error), 0);
                check_cache();
                check_token_sample(data, sizes[s], sample);
            }
        close(fd);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survives_a_move),
        cmocka_unit_test(test_full_changes_with_any_byte),
        cmocka_unit_test(test_boundaries_are_part_of_it),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_documents_over_shards),
        cmocka_unit_test(test_sample_of_a_large_index),
        cmocka_unit_test(test_a_change_while_running),
        cmocka_unit_test_teardown(test_sample_of_an_index_of_which_a_part_is_cached, let_go),
        cmocka_unit_test_teardown(test_sample_of_tokens_of_which_a_part_is_cached, let_go),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
