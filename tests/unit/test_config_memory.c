/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation and every system call of reading a configuration fails: refused with a message,
 * or overcome; and the config is whole or not there. */
#include "system_faults.h"

#include "config_files.h"

static int read_config(struct rp_error *failure)
{
    struct rp_config one;
    rp_config_init(&one);
    int code = rp_config_read(&one, "c.yaml", failure);
    if (code == 0)
        code = rp_config_set(&one, "seq_len", "256", failure);
    if (code == 0)
        code = rp_config_finish(&one, failure);
    if (code == 0) {
        assert_int_equal(one.seq_len, 256);
        assert_true(one.source_count > 0 && one.sources[0].shard_count > 0);
    }
    rp_config_free(&one);
    return code;
}

static void test_reading(void **state)
{
    (void)state;
    static const char *const texts[] = {
        MINIMAL,
        "sources:\n- {name: a, path: mega, weight: 0.5}\n- {path: raw, dtype: u16}\n"
        "seq_len: 128\nbatch_size: 4\nindex_dir: there\ncheckpoint_dir: here\nsections: [labels]\n",
        "stream_version: 2\nseq_len: 256\nbatch_size: 4\nsources:\n"
        "- {name: a, path: mega, weight: 0, repeat: {3: x > 2, 2: x > 1}, select: x > 0}\n"
        "- {name: b, path: raw}\n"
        "deal: {window: 8, step: 4, tier: 2, cost: 9}\nskip: {rows: [1-2, 5], steps: [7]}\n"
        "stages:\n- {until: 5 steps}\n- until: 9 steps\n  weights: {a: 1, b: 2}\n"
        "  without: {a: x}\n- {limits: {b: {max_tokens: 5}}, documents: {b: 7}}\n",
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(texts); i++) {
        write_file("c.yaml", texts[i], strlen(texts[i]));
        every_allocation(read_config, false);
        every_allocation(read_config, true);
        every_call(read_config, EIO, 1);
        every_call(read_config, EINTR, 1);
        must(finish_text(texts[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),
    };
    return run_with_faults("config_memory", tests, make_files, remove_files);
}
