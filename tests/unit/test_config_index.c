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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_index_is_a_file_or_a_directory)};
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
