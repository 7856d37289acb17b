/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a config, and their meaning. */
#include "config_files.h"

#include <sys/mman.h>

static void minimal_config_gets_the_standard_values(void **state)
{
    (void)state;
    must(finish_text(MINIMAL));
    assert_string_equal(config.run, "default");
    assert_string_equal(config.profile, "min");
    assert_int_equal(config.source_count, 1);
    assert_string_equal(config.sources[0].name, "one");
    assert_string_equal(config.sources[0].format, "auto");
    assert_null(config.sources[0].dtype);
    assert_int_equal(config.sources[0].eos, -1);
    assert_int_equal(config.sources[0].weight, 1);
    assert_string_equal(config.sources[0].shards[0], "one.bin");
    assert_int_equal(config.shuffle, 1);
    assert_int_equal(config.packing, 0);
    assert_int_equal(rp_config_window(&config), 64);
    assert_int_equal(config.num_epochs, 1);
    assert_int_equal(config.max_docs_per_row, 0); /* the corpus decides */
    assert_int_equal(config.global_batch_size, 4);
    assert_int_equal(config.rank_first, 0);
    assert_int_equal(config.rank_count, 1);
    assert_int_equal(config.cost.cost.k, RP_COST_K_STANDARD);
    assert_int_equal(config.cost.cost.b, 1);
    assert_int_equal(config.prefetch_bytes, 0);
    assert_int_equal(config.io_depth, 0); /* the read value decides */
    assert_int_equal(config.token_dtype, RP_DTYPE_I32);
    assert_int_equal(config.checkpoint_keep, 3);
    assert_true(config.checkpoint_contents);
    assert_false(config.packer_processes);
}

/* Every key, as a line of the file and as an option, gives the same config; none is forgotten here.
 */
static const char *const every_key[][2] = {
    {"run", "night-7"},
    {"sources", "one.bin"},
    {"removed", "{old: 3}"},
    {"streams", "{only: {}}"},
    {"stream", "only"},
    {"stream_version", "2"},
    {"seed", "18446744073709551615"},
    {"seq_len", "2048"},
    {"shuffle", "block"},
    {"block_documents", "4k"},
    {"window_blocks", "8"},
    {"packing", "best_fit"},
    {"packing_buffer", "8"},
    {"open_bins", "16"},
    {"row_gap", "split"},
    {"long_doc", "truncate"},
    {"max_docs_per_row", "77"},
    {"align", "8"},
    {"spread", "16"},
    {"group", "2"},
    {"bos_id", "1"},
    {"eos_id", "2"},
    {"label_across_cuts", "true"},
    {"deal", "{window: 48, step: 24, tier: 12}"},
    {"stages", "[{until: 3 steps}, {packing: lookahead, weights: {one: 1}}]"},
    {"skip", "{rows: [1-3, 7], steps: 4}"},
    {"grow", "false"},
    {"plan_partitions", "1"},
    {"num_epochs", "endless"},
    {"vocab_size", "50k"},
    {"batch_size", "3"},
    {"dp_world_size", "4"},
    {"global_batch_size", "24"},
    {"ranks", "1-2"},
    {"consumers_per_rank", "2"},
    {"drop_last", "true"},
    {"pad_id", "-7"},
    {"profile", "hf"},
    {"sections", "labels,provenance"},
    {"columns", "weight,teacher"},
    {"label_columns", "logprob"},
    {"document_columns", "score"},
    {"token_dtype", "i64"},
    {"label_mode", "shifted"},
    {"cost", "{k: 15072, attention_window: 4k, window_layers: 20, layers: 24}"},
    {"cpus", "0-3,8"},
    {"readers", "2"},
    {"packers", "3"},
    {"packer_processes", "yes"},
    {"prefetch_factor", "5"},
    {"prefetch_bytes", "1g"},
    {"io_depth", "32"},
    {"io", "pread"},
    {"o_direct", "off"},
    {"verify_blocks", "on"},
    {"index", "/m.rpi"},
    {"manifest", "/m"},
    {"index_dir", "/i"},
    {"cache_dir", "/c"},
    {"cache_bytes", "1t"},
    {"run_dir", "/r"},
    {"checkpoint_dir", "/c"},
    {"resume", "required"},
    {"checkpoint_steps", "10"},
    {"checkpoint_keep", "5"},
    {"checkpoint_keep_every", "7"},
    {"checkpoint_scrub_seconds", "60"},
    {"checkpoint_contents", "false"},
    {"checkpoint_mirror_dir", "/d"},
    {"alert_command", "/bin/page,--to,ops"},
    {"alert_starved_ms", "500"},
    {"alert_skew_rows", "64"},
    {"alert_disk_free", "10g"},
    {"log_format", "json"},
    {"mount_guard_dir", "/r"},
};

static void check_keys_of_version_2(void)
{
    assert_int_equal(config.stream_version, 2);
    assert_int_equal(config.align, 8);
    assert_int_equal(config.spread, 16);
    assert_int_equal(config.group, 2);
    assert_int_equal(config.bos_id, 1);
    assert_int_equal(config.eos_id, 2);
    assert_true(config.label_across_cuts);
    assert_int_equal(config.deal.mode, RP_DEAL_GIVEN);
    assert_int_equal(config.deal.window, 48);
    assert_int_equal(config.stages.count, 2);
    assert_int_equal(config.stages.stages[1].from, 3 * 24);
    assert_int_equal(config.skip.all.count, 3); /* rows 1-3, 7-8, 96-120 */
    assert_int_equal(config.skip.all.ranges[2].first, 96);
    assert_int_equal(config.skip.all.ranges[2].end, 120);
    assert_false(config.grow);
    assert_int_equal(config.plan_partitions, 1);
}

static void check_every_key(void)
{
    assert_string_equal(config.run, "night-7");
    assert_int_equal(config.cost.cost.k, 15072);
    assert_int_equal(config.cost.cost.w, 4000);
    assert_int_equal(config.cost.cost.h, 5); /* 20 of 24 layers */
    assert_int_equal(config.cost.cost.b, 6);
    assert_true(config.seed == UINT64_MAX);
    assert_int_equal(config.seq_len, 2048);
    assert_int_equal(config.shuffle, 2);
    assert_int_equal(config.block_documents, 4000);
    assert_int_equal(config.window_blocks, 8);
    assert_int_equal(config.packing, 2);
    assert_int_equal(config.packing_buffer, 8);
    assert_int_equal(rp_config_window(&config), 16);
    assert_int_equal(config.row_gap, 1);
    assert_int_equal(config.long_doc, 1);
    assert_int_equal(config.removed.count, 1);
    assert_string_equal(config.removed.pairs[0].name, "old");
    assert_int_equal(config.max_docs_per_row, 77);
    check_keys_of_version_2();
    assert_int_equal(config.num_epochs, 0);
    assert_int_equal(config.vocab_size, 50000);
    assert_int_equal(config.batch_size, 3);
    assert_int_equal(config.dp_world_size, 4);
    assert_int_equal(config.global_batch_size, 24);
    assert_int_equal(config.rank_first, 1);
    assert_int_equal(config.rank_count, 2);
    assert_int_equal(config.consumers_per_rank, 2);
    assert_true(config.drop_last);
    assert_int_equal(config.pad_id, -7);
    assert_string_equal(config.profile, "hf");
    assert_int_equal(config.sections, 0x19f); /* profile hf's, and provenance */
    assert_int_equal(config.sides.count, 4);
    assert_string_equal(config.sides.names[2], "logprob");
    assert_int_equal(config.sides.of[1], RP_SIDE_OF_TOKEN);
    assert_int_equal(config.sides.of[2], RP_SIDE_OF_LABEL);
    assert_int_equal(config.sides.of[3], RP_SIDE_OF_DOCUMENT);
    assert_int_equal(config.token_dtype, RP_DTYPE_I64);
    assert_int_equal(config.label_mode, RP_LABELS_SHIFTED);
    assert_string_equal(config.cpus, "0-3,8");
    assert_int_equal(config.readers, 2);
    assert_int_equal(config.packers, 3);
    assert_true(config.packer_processes);
    assert_int_equal(config.prefetch_factor, 8);
    assert_int_equal(config.prefetch_bytes, 1 << 30);
    assert_int_equal(config.io_depth, 32);
    assert_int_equal(config.io, RP_IO_PREAD);
    assert_int_equal(config.o_direct, RP_SWITCH_OFF);
    assert_int_equal(config.verify_blocks, RP_SWITCH_ON);
    assert_string_equal(config.index, "/m.rpi");
    assert_string_equal(config.cache_dir, "/c");
    assert_true(config.cache_bytes == 1ull << 40);
    assert_string_equal(config.run_dir, "/r");
    assert_string_equal(config.checkpoint_dir, "/c");
    assert_int_equal(config.resume, RP_RESUME_REQUIRED);
    assert_int_equal(config.checkpoint_steps, 10);
    assert_int_equal(config.checkpoint_keep, 5);
    assert_int_equal(config.checkpoint_keep_every, 7);
    assert_int_equal(config.checkpoint_scrub_seconds, 60);
    assert_false(config.checkpoint_contents);
    assert_string_equal(config.checkpoint_mirror_dir, "/d");
    assert_string_equal(config.alert_command, "/bin/page,--to,ops");
    assert_int_equal(config.alert_starved_ms, 500);
    assert_int_equal(config.alert_skew_rows, 64);
    assert_true(config.alert_disk_free == 10ull << 30);
    assert_int_equal(config.log_format, RP_LOG_JSON);
    assert_string_equal(config.mount_guard_dir, "/r");
}

static void every_key_is_read_and_set(void **state)
{
    (void)state;
    char text[4096];
    size_t used = 0, keys = 0;
    for (const struct rp_config_key *key = rp_config_keys(); key->name; key++, keys++) {
        assert_string_equal(key->name, every_key[keys][0]);
        assert_true(*key->type && *key->standard && *key->help);
    }
    assert_int_equal(keys, RP_ARRAY_COUNT(every_key));
    for (size_t i = 0; i < keys; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s: %s\n", every_key[i][0],
                                 every_key[i][1]);
    must(read_text(text));
    config.ignores_index = true; /* it is not there */
    leave_older_names();
    must(rp_config_finish(&config, &error));
    check_every_key();

    rp_config_free(&config);
    rp_config_init(&config);
    config.ignores_index = true;
    for (size_t i = 0; i < keys; i++) {
        char option[64];
        snprintf(option, sizeof option, "%s", every_key[i][0]);
        for (char *c = option; *c; c++)
            *c = *c == '_' ? '-' : *c;
        must(rp_config_set(&config, option, every_key[i][1], &error));
    }
    leave_older_names();
    must(rp_config_finish(&config, &error));
    check_every_key();
}

static void sources_are_expanded_in_canonical_order(void **state)
{
    (void)state;
    must(finish_text(
        "seq_len: 8\nbatch_size: 1\nsources:\n"
        "- mega\n"
        "- {name: raw, weight: 0.25, shards: ['raw/*.bin', raw/z.npy], dtype: u16, eos: 0,"
        " format: raw}\n"
        "- {path: plain, weight: 1.5}\n"));
    assert_int_equal(config.source_count, 3);
    const struct rp_config_source *source = &config.sources[0];
    assert_int_equal(source->shard_count,
                     2); /* c.bin has no index; a.bin is gone, its index is not */
    assert_string_equal(source->shards[0], "mega/a.bin");
    assert_string_equal(source->shards[1], "mega/b.bin");
    assert_string_equal(source->name, "a");
    assert_int_equal(source->weight, 4);
    source = &config.sources[1];
    assert_int_equal(source->shard_count, 4); /* bytewise: capitals first, 10 before 2 */
    assert_string_equal(source->shards[0], "raw/B.bin");
    assert_string_equal(source->shards[1], "raw/t10.bin");
    assert_string_equal(source->shards[2], "raw/t2.bin");
    assert_string_equal(source->shards[3], "raw/z.npy");
    assert_string_equal(source->dtype, "u16");
    assert_string_equal(source->format, "raw");
    assert_int_equal(source->eos, 0);
    assert_int_equal(source->weight, 1);
    source = &config.sources[2];
    assert_int_equal(source->shard_count, 2); /* no index anywhere: all *.bin and *.npy */
    assert_string_equal(source->shards[0], "plain/x.bin");
    assert_string_equal(source->shards[1], "plain/y.npy");
    assert_int_equal(source->weight, 6);
}

/* Companion files name their token file as well; folders are no shards; a link whose file is
 * missing is left to its opener. */
static void a_pattern_names_each_shard_once(void **state)
{
    (void)state;
    static const char *const files[] = {"pat/a.bin", "pat/a.idx", "pat/a.bin.rpi", "pat/b.npy"};
    assert_int_equal(mkdir("pat", 0700) | mkdir("pat/folder.bin", 0700), 0);
    assert_int_equal(symlink("nowhere", "pat/gone.bin"), 0);
    for (size_t i = 0; i < RP_ARRAY_COUNT(files); i++)
        write_file(files[i], "", 0);
    must(finish_text("seq_len: 8\nbatch_size: 1\nsources: ['pat/*', .none]\n"));
    const struct rp_config_source *source = &config.sources[0];
    assert_int_equal(source->shard_count, 3);
    assert_string_equal(source->shards[0], "pat/a.bin");
    assert_string_equal(source->shards[1], "pat/b.npy");
    assert_string_equal(source->shards[2], "pat/gone.bin");
    assert_string_equal(config.sources[1].name, ".none"); /* not the empty text before the dot */
}

static void a_folder_that_is_not_there_names_its_source(void **state)
{
    (void)state;
    must(finish_text("seq_len: 8\nbatch_size: 1\nsources: [none/c4.en//, none/]\n"));
    assert_string_equal(config.sources[0].name, "c4");
    assert_string_equal(config.sources[1].name, "none");
}

static void values_that_go_together_are_accepted(void **state)
{
    (void)state;
    must(finish_text(MINIMAL "packing: concat\ncpus: 0-2,5\n"));
    must(finish_text(MINIMAL "packing: concat\nfill: split\n"));
}

static void any_editor_and_any_language_may_write_the_file(void **state)
{
    (void)state;
    must(read_text("\xef\xbb\xbfseq_len: 128\r\nseed: 7\r\n"));
    assert_int_equal(config.seq_len, 128);
    assert_int_equal(config.seed, 7);
    must(read_text("drop_last: True\npacker_processes: TRUE\ncheckpoint_contents: No\n"));
    assert_true(config.drop_last && config.packer_processes && !config.checkpoint_contents);
}

static void a_file_in_memory_has_the_name_it_was_made_with(void **state)
{
    (void)state;
    char path[32];
    int memory = memfd_create("the corpus", MFD_CLOEXEC);
    assert_int_equal(write(memory, "seq_len: x", 10), 10);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    rp_config_free(&config);
    rp_config_init(&config);
    assert_int_equal(rp_config_read(&config, path, &error), -RP_E_CONFIG);
    assert_string_equal(
        error.message,
        "the corpus:1:10: seq_len: expected a whole number such as 2048 or 8Ki, found `x`");
    assert_string_equal(config.path, path); /* it can be read again */
    close(memory);
}

static void an_index_that_is_hidden_makes_no_folder_one_of_megatron(void **state)
{
    (void)state;
    assert_int_equal(mkdir("mac", 0700), 0);
    write_file("mac/a.bin", "", 0);
    write_file("mac/._a.idx", "", 0);
    must(finish_text("seq_len: 8\nbatch_size: 1\nsources: [mac]\n"));
    assert_int_equal(config.sources[0].shard_count, 1);
    assert_string_equal(config.sources[0].shards[0], "mac/a.bin");
}

static void a_token_file_that_is_left_out_is_told(void **state)
{
    (void)state;
    char said[4096] = "";
    FILE *file = tmpfile();
    int aside = dup(STDERR_FILENO);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    must(finish_text("seq_len: 8\nbatch_size: 1\nsources: [mega]\n"));
    assert_int_equal(dup2(aside, STDERR_FILENO), STDERR_FILENO);
    rewind(file);
    assert_true(fread(said, 1, sizeof said - 1, file) > 0);
    assert_string_equal(said,
                        "ringpack: warning: mega/c.bin: left out: it has no .idx next to it, as"
                        " others there have\n");
    fclose(file);
    close(aside);
}

static void paths_are_relative_to_the_file(void **state)
{
    (void)state;
    write_file("raw/c.yaml", MINIMAL "checkpoint_dir: ckpt\nrun_record_dir: none\n",
               strlen(MINIMAL "checkpoint_dir: ckpt\nrun_record_dir: none\n"));
    rp_config_free(&config);
    rp_config_init(&config);
    must(rp_config_read(&config, "raw/c.yaml", &error));
    must(rp_config_set(&config, "index-dir", "here", &error));
    must(rp_config_set(&config, "run_dir", "/run/elsewhere", &error));
    must(rp_config_finish(&config, &error));
    assert_string_equal(config.sources[0].shards[0], "raw/one.bin");
    assert_string_equal(config.checkpoint_dir, "raw/ckpt");
    assert_string_equal(config.mount_guard_dir, "none"); /* a word, and no path */
    assert_string_equal(config.index_dir, "here");
    assert_string_equal(config.run_dir, "/run/elsewhere");
}

static void sources_given_again_are_added(void **state)
{
    (void)state;
    write_file("raw/c.yaml", MINIMAL, strlen(MINIMAL));
    rp_config_free(&config);
    rp_config_init(&config);
    must(rp_config_read(&config, "raw/c.yaml", &error));
    must(rp_config_set(&config, "sources", "two.bin", &error)); /* in place of the file's */
    must(rp_config_set(&config, "sources", "three.bin,four.bin", &error));
    must(rp_config_finish(&config, &error));
    assert_int_equal(config.source_count, 3);
    assert_string_equal(config.sources[0].name, "two");
    assert_string_equal(config.sources[2].name, "four");
}

static void profiles_choose_sections(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t sections;
        enum rp_dtype dtype;
        enum rp_label_mode labels;
    } expected[] = {
        {"min", 0x87, RP_DTYPE_I32, RP_LABELS_SHIFTED},
        {"hf", 0x9f, RP_DTYPE_I64, RP_LABELS_ALIGNED},
        {"trl", 0x9f, RP_DTYPE_I64, RP_LABELS_ALIGNED},
        {"megatron", 0xdf, RP_DTYPE_I64, RP_LABELS_SHIFTED},
        {"grain", 0x37, RP_DTYPE_I32, RP_LABELS_SHIFTED},
        {"olmo", 0x47, RP_DTYPE_I64, RP_LABELS_SHIFTED},
        {"torchtitan", 0x9f, RP_DTYPE_I64, RP_LABELS_SHIFTED},
        {"pairs", 0xf, RP_DTYPE_I64, RP_LABELS_ALIGNED},
        {"full", 0x1ff, RP_DTYPE_I32, RP_LABELS_SHIFTED},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(expected); i++) {
        must(read_text(MINIMAL));
        must(rp_config_set(&config, "profile", expected[i].name, &error));
        if (!strcmp(expected[i].name, "pairs"))
            must(rp_config_set(&config, "group", "2", &error));
        must(rp_config_finish(&config, &error));
        assert_int_equal(config.sections, expected[i].sections);
        assert_int_equal(config.token_dtype, expected[i].dtype);
        assert_int_equal(config.label_mode, expected[i].labels);
    }
}

static void sections_add_to_a_profile_that_is_given(void **state)
{
    (void)state;
    char text[512];
    must(finish_text(MINIMAL "profile: hf\nsections: [segment_ids]\ntoken_dtype: u16\n"));
    assert_int_equal(config.sections, 0xbf);
    assert_int_equal(config.token_dtype, RP_DTYPE_U16);
    assert_int_equal(config.label_mode, RP_LABELS_ALIGNED);
    assert_false(rp_config_sections_doubt(&config, text, sizeof text));
    must(finish_text(MINIMAL "sections: [segment_ids]\nprofile: min\n"));
    assert_int_equal(config.sections, 0xa7);
    must(finish_text(MINIMAL "sections: [segment_ids]\n")); /* without one there are no others */
    assert_int_equal(config.sections, 0x27);
    assert_false(rp_config_sections_doubt(&config, text, sizeof text));
}

/* A list that names a part of the profile may have been meant to replace it. */
static void a_list_that_repeats_a_part_of_the_profile_is_told(void **state)
{
    (void)state;
    char text[512];
    must(finish_text(MINIMAL "profile: hf\nsections: [labels, segment_ids]\n"));
    assert_true(rp_config_sections_doubt(&config, text, sizeof text));
    assert_string_equal(text,
                        "sections: profile hf adds position_ids,cu_seqlens to the list; for the "
                        "list alone, leave `profile` out, and give `token_dtype: i64` and "
                        "`label_mode: aligned`");
    must(finish_text(MINIMAL "profile: hf\nsections: [input_ids]\n"));
    assert_true(rp_config_sections_doubt(&config, text, sizeof text));
    must(finish_text(MINIMAL "profile: hf\nsections: [labels, cu_seqlens, position_ids, rows]\n"));
    assert_false(rp_config_sections_doubt(&config, text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimal_config_gets_the_standard_values),
        cmocka_unit_test(every_key_is_read_and_set),
        cmocka_unit_test(sources_are_expanded_in_canonical_order),
        cmocka_unit_test(a_pattern_names_each_shard_once),
        cmocka_unit_test(a_folder_that_is_not_there_names_its_source),
        cmocka_unit_test(values_that_go_together_are_accepted),
        cmocka_unit_test(any_editor_and_any_language_may_write_the_file),
        cmocka_unit_test(a_file_in_memory_has_the_name_it_was_made_with),
        cmocka_unit_test(an_index_that_is_hidden_makes_no_folder_one_of_megatron),
        cmocka_unit_test(a_token_file_that_is_left_out_is_told),
        cmocka_unit_test(paths_are_relative_to_the_file),
        cmocka_unit_test(sources_given_again_are_added),
        cmocka_unit_test(profiles_choose_sections),
        cmocka_unit_test(sections_add_to_a_profile_that_is_given),
        cmocka_unit_test(a_list_that_repeats_a_part_of_the_profile_is_told),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
