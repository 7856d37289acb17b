/* SPDX-License-Identifier: Apache-2.0 */
/* The message of every mistake in a config: whole messages are compared, because users see them. */
#include "config_files.h"

#include <errno.h>

#include "base/clock.h"

static void must_fail(int code, const char *message)
{
    assert_int_equal(code, -RP_E_CONFIG);
    assert_string_equal(error.message, message);
}

static const char *const mistakes[][2] = {
    {"", "c.yaml: config: the file is empty"},
    {"- 1\n", "c.yaml:1:1: config: expected `key: value`, found a list"},
    {"seq_len: 1\nbatchsize: 2\n",
     "c.yaml:2:1: batchsize: unknown key; did you mean `batch_size`?"},
    {"seq_len: 1\nxyzzy: 2\n", "c.yaml:2:1: xyzzy: unknown key"},
    {"seq_len: 1\nseq_len: 2\n", "c.yaml:2:1: seq_len: the key is given twice"},
    {"seq_len: 1\nseq-len: 2\n", "c.yaml:2:1: seq-len: the key is given twice"},
    {"seq_len: 1\n\tseed: 2\n", "c.yaml:2:1: YAML: found a tab"},
    {"# a \u00df of \u4e2d\u6587\nseq_len: 1\n\tseed: 2\n", "c.yaml:3:1: YAML: found a tab"},
    {"\xef\xbb\xbfseq_len: 1\nseed: \xff\n", "c.yaml:2: YAML: invalid leading UTF-8 octet"},
    {"seq_len: *a\n", "c.yaml:1:10: YAML: found undefined alias"},
    {"seq_len: 1\n---\nseed: 1\n",
     "c.yaml:2:1: config: the file holds more than one YAML document"},
    {"seq_len: [1\n",
     "c.yaml:2:1: YAML: did not find expected ',' or ']' while parsing a flow sequence"},
    {"seq_len: [1]\n", "c.yaml:1:10: seq_len: expected a value, found a list"},
    {"seq_len:\n", "c.yaml:1:9: seq_len: expected a value, found none"},
    {"run: ''\n", "c.yaml:1:6: run: expected a text that is not empty, found ``"},
    {"run: \"a\\0b\"\n", "c.yaml:1:6: run: the text contains a NUL character"},
    {"seq_len: many\n",
     "c.yaml:1:10: seq_len: expected a whole number such as 2048 or 8Ki, found `many`"},
    {"seq_len: -1\n",
     "c.yaml:1:10: seq_len: expected a whole number such as 2048 or 8Ki, found `-1`"},
    {"seq_len: 1.5\n",
     "c.yaml:1:10: seq_len: expected a whole number such as 2048 or 8Ki, found `1.5`"},
    {"seq_len: 4294967296\n", "c.yaml:1:10: seq_len: expected 1 … 16777216, found `4294967296`"},
    {"seed: 18446744073709551616\n",
     "c.yaml:1:7: seed: expected 0 … 18446744073709551615, found `18446744073709551616`"},
    {"open_bins: 100000000000\n",
     "c.yaml:1:12: open_bins: expected 1 … 4096, found `100000000000`"},
    {"open_bins: 99999999999999g\n",
     "c.yaml:1:12: open_bins: expected 1 … 4096, found `99999999999999g`"},
    {"prefetch_bytes: 99999999999t\n",
     "c.yaml:1:17: prefetch_bytes: expected 65536 … 17592186044416, found `99999999999t`"},
    {"prefetch_bytes: 64mx\n",
     "c.yaml:1:17: prefetch_bytes: expected a size such as 4096, 64m or 1g, found `64mx`"},
    {"num_epochs: forever\n",
     "c.yaml:1:13: num_epochs: expected a whole number or `endless`, found `forever`"},
    {"drop_last: maybe\n", "c.yaml:1:12: drop_last: expected true or false, found `maybe`"},
    {"pad_id: x\n", "c.yaml:1:9: pad_id: expected a whole number, found `x`"},
    {"packing: best-fit\n",
     "c.yaml:1:10: packing: expected one of lookahead, concat, best_fit, found"
     " `best-fit`; did you mean `best_fit`?"},
    {"shuffle: yes\n", "c.yaml:1:10: shuffle: expected one of none, document, block, found `yes`"},
    {"ranks: 3-1\n",
     "c.yaml:1:8: ranks: expected a rank or a range of ranks such as 0-3, found `3-1`"},
    {"sections: [labels, label]\n",
     "c.yaml:1:11: sections: expected one of rows, doc_lens, input_ids, labels, position_ids,"
     " segment_ids,"
     " loss_mask, cu_seqlens, provenance, found `label`; did you mean `labels`?"},
    {"sources:\n- weigth: 1\n", "c.yaml:2:3: weigth: unknown key; did you mean `weight`?"},
    {"sources:\n- weight: 0.0000001\n",
     "c.yaml:2:11: weight: expected a number above 0 with at most 6"
     " decimals, such as 2 or 0.25, found `0.0000001`"},
    {"sources:\n- {path: a, shards: b}\n",
     "c.yaml:2:21: shards: shards and path mean the same, and both are given"},
    {"sources: [[a]]\n", "c.yaml:1:11: shards: expected a value, found a list"},
    {"[[[[[[[[[[[[[[[[[[[[\n",
     "c.yaml:1:17: config: lists and mappings are nested more than 16 deep"},
    {"seq_len: \xff\n", "c.yaml:1: YAML: invalid leading UTF-8 octet"},
    {"seq_len: 1\nbatch_size: 2\nrun: \xff\n", "c.yaml:3: YAML: invalid leading UTF-8 octet"},
    {"pad_id: 9223372036854775808\n",
     "c.yaml:1:9: pad_id: expected a whole number, found `9223372036854775808`"},
    {"ranks: 00000000000000000000000005\n",
     "c.yaml:1:8: ranks: expected a rank or a range of ranks such as 0-3, found"
     " `00000000000000000000000005`"},
    {"ranks: 4294967295\n", "c.yaml:1:8: ranks: expected a rank or a range of ranks such as"
                            " 0-3, found `4294967295`"},
    {"sources:\n- weight: 18446744073709551616\n",
     "c.yaml:2:11: weight: expected a smaller number, of at most "
     "18446744073709 (only ratios count), found `18446744073709551616`"},
    {"sources:\n- weight: 18446744073709551615\n",
     "c.yaml:2:11: weight: expected a smaller number, of at most "
     "18446744073709 (only ratios count), found `18446744073709551615`"},
    {"sources:\n- weight: 1.2.3\n", "c.yaml:2:11: weight: expected a number above 0 with at most 6"
                                    " decimals, such as 2 or 0.25, found `1.2.3`"},
    {"sources:\n- weight: .\n", "c.yaml:2:11: weight: expected a number above 0 with at most 6"
                                " decimals, such as 2 or 0.25, found `.`"},
    {"checkpoint_dir: ~/ck\n",
     "c.yaml:1:17: checkpoint_dir: expected a path that is written out (~ and $ are not expanded"
     "), found `~/ck`"},
    {"index_dir: $SCRATCH/index\n",
     "c.yaml:1:12: index_dir: expected a path that is written out (~ and $ are not expanded"
     "), found `$SCRATCH/index`"},
    {"seq_len: null\n", "c.yaml:1:10: seq_len: expected a value, found none"},
    {"seed: 99999999999999999999\n",
     "c.yaml:1:7: seed: expected 0 … 18446744073709551615, found `99999999999999999999`"},
    {"seed: 99q\n", "c.yaml:1:7: seed: expected a whole number such as 64 or 100k, found `99q`"},
    {"sources: ['']\n", "c.yaml:1:11: shards: the path is empty"},
    {"seq_len: {a: b}\n", "c.yaml:1:10: seq_len: expected a value, found a mapping"},
};

static void mistakes_in_the_text_are_told_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(mistakes); i++)
        must_fail(read_text(mistakes[i][0]), mistakes[i][1]);
}

#define BRACES_4 "{a,b}{a,b}{a,b}{a,b}"
#define BRACES_16 BRACES_4 BRACES_4 BRACES_4 BRACES_4

static const char *const combinations[][2] = {
    {"seq_len: 8\nbatch_size: 1\n",
     "c.yaml: sources: required, but not given: where the tokens are"},
    {"sources: [a]\nbatch_size: 1\n", "c.yaml: seq_len: required, but not given: tokens in a row"},
    {"sources: [a]\nseq_len: 1\n",
     "c.yaml: batch_size: required, but not given: rows of a rank's micro-batch"},
    {"sources: [a]\nseq_len: 0\nbatch_size: 1\n",
     "c.yaml:2: seq_len: expected 1 … 16777216, found 0"},
    {MINIMAL "packing_buffer: 5000\n", "c.yaml:4: packing_buffer: expected 1 … 4096, found 5000"},
    {MINIMAL "prefetch_factor: 8192\n", "c.yaml:4: prefetch_factor: expected 1 … 4096, found 8192"},
    {MINIMAL "num_epochs: 4294967296\n",
     "c.yaml:4: num_epochs: expected 0 … 4294967295, found 4294967296"},
    {MINIMAL "checkpoint_keep: 1\n", "c.yaml:4: checkpoint_keep: expected 2 … 1000, found 1"},
    {MINIMAL "run: a/b\n",
     "c.yaml:4: run: expected 1 … 64 letters, digits, dots, dashes and underscores,"
     " not beginning with a dot; found `a/b`"},
    {MINIMAL "run: .a\n",
     "c.yaml:4: run: expected 1 … 64 letters, digits, dots, dashes and underscores,"
     " not beginning with a dot; found `.a`"},
    {MINIMAL "pad_id: 2147483648\n",
     "c.yaml:4: pad_id: expected -2147483648 … 2147483647 (token_dtype), found 2147483648"},
    {MINIMAL "max_docs_per_row: 129\n",
     "c.yaml:4: max_docs_per_row: expected at most seq_len, which is 128; found 129"},
    {MINIMAL "packing: concat\nfill: pad\n",
     "c.yaml:5: row_gap: packing: concat always splits; `pad` cannot be had with it"},
    {MINIMAL "cpus: 3-1\n",
     "c.yaml:4: cpus: expected CPUs below 4096, like 0-7,16-23; found `3-1`"},
    {"seq_len: 8\nbatch_size: 1\nsources:\n- {path: one.bin, eos: -2}\n",
     "c.yaml:4: eos: expected a token id, or -1 for none; found -2"},
    {"seq_len: 8\nbatch_size: 1\nsources:\n- {path: one.bin, weight: 5000.000001}\n- raw\n",
     "c.yaml:4: weight: the weights have no common scale below 2^32"},
    {"seq_len: 8\nbatch_size: 1\nsources: ['one.bin/*']\n",
     "c.yaml:3: shards: one.bin/*: no file matches"},
    {MINIMAL "dp_world_size: 3\nglobal_batch_size: 64\n",
     "c.yaml:4: dp_world_size: batch_size 4 * dp_world_size 3 does not divide global_batch_size"
     " 64;"
     " legal dp_world_size with this batch_size: 1, 2, 4, 8, 16"},
    {MINIMAL "global_batch_size: 6\n",
     "c.yaml:3: batch_size: 4 does not divide global_batch_size 6; legal up to it: 1, 2, 3"},
    {MINIMAL "dp_world_size: 2\nranks: 1-2\n",
     "c.yaml:5: ranks: expected ranks below dp_world_size 2, found 2"},
    {MINIMAL "token_dtype: u16\npad_id: -1\n",
     "c.yaml:5: pad_id: expected 0 … 65535 (token_dtype), found -1"},
    {MINIMAL "token_dtype: u16\nvocab_size: 100000\n",
     "c.yaml:5: vocab_size: token ids up to 99999 do not fit token_dtype"},
    {"sources: [one.bin]\nseq_len: 16777216\nbatch_size: 128\n",
     "c.yaml:3: batch_size: batch_size * seq_len is 2147483648; at most 2147483647 tokens"
     " fit a batch"},
    {MINIMAL "checkpoint_steps: 5\n",
     "c.yaml:4: checkpoint_steps: there is no checkpoint_dir to write to"},
    {MINIMAL "checkpoint_mirror_dir: x\n",
     "c.yaml:4: checkpoint_mirror_dir: there is no checkpoint_dir to copy"},
    {MINIMAL "checkpoint_dir: x\ncheckpoint_copy_dir: x\n",
     "c.yaml:5: checkpoint_mirror_dir: it is the same as checkpoint_dir"},
    {"seq_len: 8\nbatch_size: 1\nsources: ['nothing/*.bin']\n",
     "c.yaml:3: shards: nothing/*.bin: no file matches"},
    {"seq_len: 8\nbatch_size: 1\nsources: ['" BRACES_16 BRACES_16 "']\n",
     "c.yaml:3: shards: " BRACES_16 BRACES_16 ": its braces stand for more than 65536 patterns"},
    {"seq_len: 8\nbatch_size: 1\nsources:\n- void\n",
     "c.yaml:4: shards: void: the directory holds no token files"},
    {"seq_len: 8\nbatch_size: 1\nsources:\n- shards: ['raw/t*.bin', raw/t2.bin]\n",
     "c.yaml:4: shards: raw/t2.bin: the source has this shard twice"},
    {"seq_len: 8\nbatch_size: 1\nsources: [a/x.bin, b/x.bin]\n",
     "c.yaml:3: sources: two sources are named `x`"},
    {"seq_len: 8\nbatch_size: 1\nsources:\n- weight: 1\n",
     "c.yaml:4: sources: the source names no shard"},
    {"stream_version: 1\nseq_len: 8\nbatch_size: 1\nsources:\n- {path: one.bin, weight: 0}\n",
     "c.yaml:5:27: weight: expected a number above 0 with at most 6 decimals, such as 2 or 0.25,"
     " found `0`"},
    {"seq_len: 8\nbatch_size: 1\nsources: []\n",
     "c.yaml:3: sources: expected at least one source, found an empty list"},
};

static void mistakes_in_combinations_are_told_with_what_would_be_legal(void **state)
{
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(combinations); i++)
        must_fail(finish_text(combinations[i][0]), combinations[i][1]);
}

/* count times `item`, the last one without its end. */
static char *repeat(const char *begin, const char *item, unsigned count, const char *end)
{
    size_t bytes = strlen(item), at = strlen(begin);
    char *text = malloc(at + count * bytes + strlen(end) + 1);
    assert_non_null(text);
    memcpy(text, begin, at);
    for (unsigned i = 0; i < count; i++, at += bytes)
        memcpy(text + at, item, bytes);
    memcpy(text + at, end, strlen(end) + 1);
    return text;
}

static void too_much_of_anything_is_refused(void **state)
{
    (void)state;
    char *text = repeat("sources: [", "a,", 4097, "]\n");
    must_fail(read_text(text), "c.yaml:1:8203: sources: more than 4096 sources");
    free(text);
    text = repeat("sources: [", "&a b,", 101, "]\n");
    must_fail(read_text(text), "c.yaml:1:511: config: more than 100 anchors");
    free(text);
    char *shards = repeat("sources: [&a {shards: [", "b,", 2048, "]},");
    text = repeat(shards, "*a,", 512, "]\n"); /* 2048 * 513 paths in 6 KB */
    assert_int_equal(read_text(text), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "shards: more than 1048576 paths"));
    free(shards);
    free(text);
}

/* glob(3) would use up the stack. */
static void patterns_that_go_too_deep_are_refused(void **state)
{
    (void)state;
    static const char *const items[] = {"/", "*/", "{a}", "*a"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(items); i++) {
        char *text = repeat("seq_len: 8\nbatch_size: 1\nsources: ['raw/*", items[i], 30000,
                            "x']\n");
        assert_int_equal(finish_text(text), -RP_E_CONFIG);
        assert_non_null(strstr(error.message, ": a pattern has at most 128 slashes and braces"));
        free(text);
    }
}

static void mistakes_in_options_and_files_are_told(void **state)
{
    (void)state;
    must(read_text(MINIMAL));
    must_fail(rp_config_set(&config, "batch-sise", "1", &error),
              "batch-sise: unknown key; did you mean `batch_size`?");
    must_fail(rp_config_set(&config, "xyzzy", "1", &error), "xyzzy: unknown key");
    assert_non_null(strstr(error.hint, RP_VERSION "; a config of a newer version"));
    must_fail(rp_config_set(&config, "sources", "a,,b", &error),
              "sources: expected paths separated by commas, found `a,,b`");
    must_fail(rp_config_set(&config, "io", "uring", &error),
              "io: expected one of auto, io_uring, pread, mapped, found `uring`");
    assert_int_equal(symlink("ring", "ring"), 0); /* stands for a directory that nobody may read */
    assert_int_equal(finish_text("seq_len: 8\nbatch_size: 1\nsources: ['ring/*.bin']\n"), -ELOOP);
    assert_string_equal(error.message,
                        "ring/*.bin: ring cannot be listed: Too many levels of symbolic links");
    assert_true(rp_config_read(&config, "absent.yaml", &error) < 0);
    assert_non_null(strstr(error.message, "absent.yaml"));
    assert_true(rp_config_read(&config, "void", &error) < 0);
    assert_non_null(strstr(error.message, "directory"));
    char *big = malloc((1 << 20) + 2);
    memset(big, '\n', (1 << 20) + 2);
    write_file("big.yaml", big, (1 << 20) + 2);
    free(big);
    assert_true(rp_config_read(&config, "big.yaml", &error) < 0);
}

/* Mutations of a good file: it is read, or it is refused with a message; nothing else may happen.
 */
static void mutated_files_never_crash(void **state)
{
    (void)state;
    static const char good[] =
        "# a comment\nsources:\n- &a {name: web, weight: 0.75, shards: [raw/*.bin, mega], eos: 5}\n"
        "- one.bin\n- path: \"p\\x41\"\n  dtype: u16\nseq_len: 2048\nbatch_size: 8\nranks: 0-3\n"
        "dp_world_size: 4\nsections: [labels, provenance]\nrun: |-\n  x\nprefetch_bytes: 64mb\n";
    static const char pool[] = "\n\t :,-[]{}&*!|>'\"%@`#\\0129azkmg.~?\xff\xc3";
    must(finish_text(good));
    uint64_t seed = rp_now_ns(), random = seed | 1;
    printf("seed %" PRIu64 "\n", seed);
    unsigned refused = 0;
    for (int round = 0; round < 3000; round++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        for (int changes = 1 + round % 4; changes; changes--) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            size_t at = random % (sizeof good - 1);
            text[at] = pool[(random >> 32) % (sizeof pool - 1)];
        }
        error.message[0] = '\0';
        if (finish_text(text) < 0) {
            refused++;
            assert_true(error.message[0] != '\0');
        }
    }
    assert_in_range(refused, 1, 2999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_in_the_text_are_told_with_their_place),
        cmocka_unit_test(mistakes_in_combinations_are_told_with_what_would_be_legal),
        cmocka_unit_test(too_much_of_anything_is_refused),
        cmocka_unit_test(patterns_that_go_too_deep_are_refused),
        cmocka_unit_test(mistakes_in_options_and_files_are_told),
        cmocka_unit_test(mutated_files_never_crash),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
