/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of the ids: the fields of PREFIX.tokens.json go into the sidecar, byte by byte as
 * documented; shards of two tokenizers are refused. */
#include "corpus_files.h"

#include "corpus/index/index.h"

#define GPT2                                                                                       \
    "{\"tokenizer\": {\"name\": \"gpt2\", \"xxh3_128\": \"0123456789abcdef0011223344556677\"}}"
#define LLAMA                                                                                      \
    "{\"tokenizer\": {\"name\": \"llama\", \"xxh3_128\": \"ff000000000000000000000000000001\"}}"

static void put_shard(const char *name, const char *said)
{
    static const uint16_t tokens[] = {5, 6, 9, 7, 8, 9};
    char path[64];
    struct rp_error error;
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, 9);
    snprintf(path, sizeof path, "%s.tokens.json", name);
    remove(path);
    if (said)
        put_file(path, said, strlen(said));
    snprintf(path, sizeof path, "%s.bin", name);
    put_file(path, tokens, sizeof tokens);
    if (rp_sidecar_build(path, &(struct rp_sidecar_build_options){.hints = &hints}, &error) < 0)
        fail_msg("%s", error.message);
}

/* The tokenizer of a corpus of one source for each shard; NULL ends their list. */
static int open_all(const char *const *paths, struct rp_tokenizer_id *id, struct rp_error *error)
{
    struct rp_source_spec sources[4] = {0};
    struct rp_corpus_spec spec = {.sources = sources};
    struct rp_corpus *corpus;
    static const char *const names[] = {"books", "code", "web", "more"};
    for (; paths[spec.source_count]; spec.source_count++)
        sources[spec.source_count] = (struct rp_source_spec){.name = names[spec.source_count],
                                                             .shards = &paths[spec.source_count],
                                                             .shard_count = 1,
                                                             .eos = RP_EOS_NONE};
    int code = rp_corpus_open(&corpus, &spec, error);
    if (code == 0)
        *id = *rp_corpus_tokenizer(corpus);
    rp_corpus_close(corpus);
    return code;
}

static void one_tokenizer_is_known_and_two_are_refused(void **state)
{
    (void)state;
    struct rp_tokenizer_id id;
    struct rp_error error;
    put_shard("a", GPT2);
    put_shard("b", NULL);
    put_shard("c", LLAMA);
    put_shard("d", GPT2);
    assert_int_equal(open_all((const char *[]){"b.bin", NULL}, &id, &error), 0);
    assert_false(rp_ids_know_tokenizer(&id));
    assert_int_equal(open_all((const char *[]){"b.bin", "a.bin", "d.bin", NULL}, &id, &error), 0);
    assert_string_equal(id.name, "gpt2");
    assert_int_equal(id.hash.high, 0x0123456789abcdef);
    assert_int_equal(id.hash.low, 0x0011223344556677);
    assert_int_equal(open_all((const char *[]){"a.bin", "b.bin", "c.bin", NULL}, &id, &error),
                     -RP_E_MISMATCH);
    assert_says(&error,
                "source `web`|c.bin: tokenizer: expected gpt2 (0123456789abcdef0011223344556677)|"
                "source `books`|llama (ff000000000000000000000000000001)|again");
}

static void bytes_are_a_tokenizer_and_a_name_alone_is_none(void **state)
{
    (void)state;
    struct rp_tokenizer_id id;
    struct rp_error error;
    put_shard("a", "{\"tokenizer\": {\"name\": \"bytes\"}, \"eos\": 256}");
    assert_int_equal(open_all((const char *[]){"a.bin", NULL}, &id, &error), 0);
    assert_true(rp_hash128_equal(id.hash, rp_hash128("bytes", 5)));
    static const char *const unknown[] = {"{\"tokenizer\": null}", "{}",
                                          "{\"tokenizer\": {\"name\": \"gpt2\"}}"};
    for (size_t i = 0; i < 3; i++) {
        put_shard("a", unknown[i]);
        assert_int_equal(open_all((const char *[]){"a.bin", NULL}, &id, &error), 0);
        assert_false(rp_ids_know_tokenizer(&id));
    }
}

static void a_file_that_says_nonsense_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{\"tokenizer\": 3}",
        "{\"tokenizer\": {\"name\": 3, \"xxh3_128\": \"0123456789abcdef0011223344556677\"}}",
        "{\"tokenizer\": {\"name\": \"a\", \"xxh3_128\": \"0123\"}}",
        "{\"tokenizer\": {\"name\": \"a\", \"xxh3_128\": \"0123456789abcdef00112233445566770\"}}",
        "{\"tokenizer\": {\"name\": \"a\", \"xxh3_128\": \"0123456789ABCDEF0011223344556677\"}}",
        "{\"tokenizer\": {\"name\": \"a\", \"xxh3_128\": \"+123456789abcdef0011223344556677\"}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rp_tokenizer_id id;
        struct rp_error error;
        put_file("x.tokens.json", bad[i], strlen(bad[i]));
        if (rp_ids_read_tokenizer(&id, "x.bin", &error) != -RP_E_FORMAT)
            fail_msg("%s is taken", bad[i]);
        assert_says(&error, "x.tokens.json|expected");
    }
}

/* Its name is a text of the source, and its hash in the entry of the source. */
static void a_sidecar_has_it_as_documented(void **state)
{
    (void)state;
    static uint8_t bytes[4096], bare[4096];
    put_shard("a", NULL);
    size_t bare_count = get_file("a.bin.rpi", bare, sizeof bare);
    put_shard("a", GPT2);
    size_t count = get_file("a.bin.rpi", bytes, sizeof bytes);
    uint64_t head = rp_load_u64(bytes + 128 + 8);
    const struct rp_hash128 id = {0x0011223344556677, 0x0123456789abcdef}, none = {0, 0};
    assert_int_equal(rp_load_u64(bare + 128 + 8), head);
    assert_true(count >= bare_count);
    assert_memory_equal(bytes + 256, bare + 256, head - 256);
    assert_memory_equal(bytes + head + 128 + 96, &id, 16);
    assert_memory_equal(bare + head + 128 + 96, &none, 16);
    assert_memory_equal(bytes + head + 128 + 256 + 10, "gpt2", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tokenizer_is_known_and_two_are_refused),
        cmocka_unit_test(bytes_are_a_tokenizer_and_a_name_alone_is_none),
        cmocka_unit_test(a_file_that_says_nonsense_is_refused),
        cmocka_unit_test(a_sidecar_has_it_as_documented),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
