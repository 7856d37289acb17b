/* SPDX-License-Identifier: Apache-2.0 */
/* A kept text is read again as the same config, in another directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "log_kit.h"

static void set(struct rp_config *config, const char *key, const char *text)
{
    assert_int_equal(rp_config_set(config, key, text, NULL), 0);
}

static void the_file_and_the_options_come_back(void **state)
{
    (void)state;
    static const char file[] = "seq_len: 64\nbatch_size: 2\nsources: [a.bin, {path: b.bin, "
                               "weight: 2}]\n# ringpack: file /elsewhere\n# ringpack: seed 9";
    struct rp_config config, again;
    rp_config_init(&config);
    rp_config_init(&again);
    assert_int_equal(rp_config_read_text(&config, file, sizeof file - 1, "/x/y\\z\n/c.yaml", NULL),
                     0);
    set(&config, "batch_size", "4");
    set(&config, "mount-guard-dir", "none");
    set(&config, "checkpoint_dir", "saved\\here\n");
    char *kept = rp_config_kept_text(&config);
    assert_non_null(kept);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rp_config_read_kept(&again, kept, strlen(kept), "it", NULL), 0);
    assert_int_equal(again.batch_size, 4);
    assert_int_equal(again.seq_len, 64);
    assert_int_equal(again.seed, 0); /* the line of the file itself is none of ours */
    assert_string_equal(again.sources[1].shards[0], "/x/y\\z\n/b.bin");
    assert_string_equal(again.mount_guard_dir, "none");
    assert_int_equal(again.checkpoint_dir[0], '/');
    assert_non_null(strstr(again.checkpoint_dir, "/saved\\here\n"));
    free(kept);
    rp_config_free(&config);
    rp_config_free(&again);
}

/* A file is refused that says `seed: 0100`; nobody can edit the text in a checkpoint. */
static void an_octal_number_of_an_earlier_version_is_read(void **state)
{
    (void)state;
    static const char file[] = "seq_len: 64\nbatch_size: 2\nsources: [a.bin]\nseed: 0100\n"
                               "# ringpack: file /elsewhere/c.yaml\n";
    struct rp_config config;
    rp_config_init(&config);
    assert_int_equal(rp_config_read_kept(&config, file, sizeof file - 1, "it", NULL), 0);
    assert_int_equal(config.seed, 100);
    rp_config_free(&config);
}

static void options_alone_come_back(void **state)
{
    (void)state;
    struct rp_config config, again;
    char directory[PATH_MAX], first[PATH_MAX + 8];
    assert_int_equal(chdir("/tmp"), 0);
    assert_non_null(getcwd(directory, sizeof directory));
    rp_config_init(&config);
    rp_config_init(&again);
    set(&config, "sources", "a.bin,/b.bin,https://host/c.bin");
    set(&config, "seq_len", "32");
    char *kept = rp_config_kept_text(&config);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rp_config_read_kept(&again, kept, strlen(kept), "it", NULL), 0);
    snprintf(first, sizeof first, "%s/a.bin", directory);
    assert_int_equal(again.source_count, 3);
    assert_string_equal(again.sources[0].shards[0], first);
    assert_string_equal(again.sources[1].shards[0], "/b.bin");
    assert_string_equal(again.sources[2].shards[0], "https://host/c.bin");
    assert_int_equal(again.seq_len, 32);
    assert_null(again.path);
    free(kept);
    rp_config_free(&config);
    rp_config_free(&again);
}

static void the_text_of_an_older_ringpack_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "seq_len: 64\n", "# all keys were given as options\n"};
    for (size_t i = 0; i < 3; i++) {
        struct rp_config config;
        struct rp_error error;
        rp_config_init(&config);
        assert_int_equal(rp_config_read_kept(&config, texts[i], strlen(texts[i]), "it", &error),
                         -RP_E_VERSION);
        assert_non_null(strstr(error.hint, "-c CONFIG"));
        rp_config_free(&config);
    }
}

/* A kept config may be of an older ringpack; the options that follow are typed today. */
static void older_names_are_told_of_options_alone(void **state)
{
    (void)state;
    static const char kept[] = "num_workers: 3\n# ringpack: file /c.yaml\n# ringpack: direct off\n";
    struct rp_config config;
    rp_config_init(&config);
    hear_log();
    int code = rp_config_read_kept(&config, kept, sizeof kept - 1, "it", NULL);
    const char *heard = log_heard();
    assert_int_equal(code, 0);
    assert_string_equal(heard, "");
    assert_int_equal(config.readers, 3);
    hear_log();
    set(&config, "num-workers", "4");
    assert_non_null(strstr(log_heard(), "`num_workers` is now `readers`"));
    rp_config_free(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_and_the_options_come_back),
        cmocka_unit_test(an_octal_number_of_an_earlier_version_is_read),
        cmocka_unit_test(options_alone_come_back),
        cmocka_unit_test(older_names_are_told_of_options_alone),
        cmocka_unit_test(the_text_of_an_older_ringpack_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
