/* SPDX-License-Identifier: Apache-2.0 */
/* The key `index`, which names a file or a directory, and its older names. */
#include "config_files.h"

/* A file is the index of all sources, whatever its name, and an absent path is one if it ends with
 * .rpi; else the path is a directory of sidecars. */
static void an_index_is_a_file_or_a_directory(void **state)
{
    (void)state;
    static const struct {
        const char *key, *path, *file, *directory;
    } cases[] = {
        {"index", "none.rpi", "none.rpi", NULL},     {"index", "none", NULL, "none"},
        {"index", "folder.rpi", NULL, "folder.rpi"}, {"index", "named.idx", "named.idx", NULL},
        {"index", "s3://b/x", "s3://b/x", NULL},     {"manifest", "none", "none", NULL},
        {"index_dir", "none.rpi", NULL, "none.rpi"}};
    write_file("named.idx", "x", 1);
    assert_int_equal(mkdir("folder.rpi", 0700), 0);
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        must(read_text(MINIMAL));
        must(rp_config_set(&config, cases[i].key, cases[i].path, &error));
        config.ignores_index = true;
        must(rp_config_finish(&config, &error));
        const char *file = rp_config_index_file(&config), *folder = rp_config_index_dir(&config);
        assert_int_equal(file != NULL, cases[i].file != NULL);
        assert_int_equal(folder != NULL, cases[i].directory != NULL);
        assert_string_equal(file ? file : folder, cases[i].path);
    }
    must(read_text(MINIMAL));
    must(rp_config_set(&config, "index", "a.rpi", &error));
    must(rp_config_set(&config, "manifest", "b.rpm", &error));
    assert_int_equal(rp_config_finish(&config, &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "`manifest` is an older name of this key"));
    assert_int_equal(unlink("named.idx") | rmdir("folder.rpi"), 0);
}

/* Every older name belongs to a key, and sets its field. */
static void older_names_are_read(void **state)
{
    (void)state;
    must(finish_text(MINIMAL "num_workers: 7\n"));
    assert_int_equal(config.readers, 7);
    for (const struct rp_config_older_name *entry = rp_config_older_names; entry->older; entry++) {
        const struct rp_config_key *key = rp_config_keys(), *of_source = rp_config_source_keys();
        while (key->name && strcmp(key->name, entry->name) != 0)
            key++;
        while (of_source->name && strcmp(of_source->name, entry->name) != 0)
            of_source++;
        assert_true(key->name || of_source->name);
    }
    assert_int_equal(read_text(MINIMAL "num_workers: 7\nreaders: 8\n"), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "given twice"));
    must(finish_text("sources: [{path: one.bin, drop_unmasked: false}]\n"
                     "seq_len: 4\nbatch_size: 1\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_index_is_a_file_or_a_directory),
                                       cmocka_unit_test(older_names_are_read)};
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
