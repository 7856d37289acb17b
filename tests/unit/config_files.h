/* SPDX-License-Identifier: Apache-2.0 */
/* config_files.h — shared by the tests of engine/config: a directory with shards to point at, and
 * one config that is read from text. */
#ifndef RP_TESTS_CONFIG_FILES_H
#define RP_TESTS_CONFIG_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "config/config.h"

#define MINIMAL "sources: [one.bin]\nseq_len: 128\nbatch_size: 4\n"

static char directory[] = "/tmp/test_config.XXXXXX";
static struct rp_config config;
static struct rp_error error;

static void write_file(const char *name, const char *text, size_t bytes)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static int read_text(const char *text)
{
    write_file("c.yaml", text, strlen(text));
    rp_config_free(&config);
    rp_config_init(&config);
    return rp_config_read(&config, "c.yaml", &error);
}

static inline int finish_text(const char *text)
{
    int code = read_text(text);
    return code < 0 ? code : rp_config_finish(&config, &error);
}

static void must(int code)
{
    if (code < 0)
        fail_msg("%s (%s)", error.message, error.hint);
}

/* Two keys are older names of a third, and cannot be given with it. */
static inline void leave_older_names(void)
{
    assert_string_equal(config.manifest, "/m");
    assert_string_equal(config.index_dir, "/i");
    free(config.manifest);
    free(config.index_dir);
    config.manifest = config.index_dir = NULL;
}

static int make_files(void **state)
{
    (void)state;
    static const char *const files[] = {"one.bin",     "mega/a.idx",  "mega/b.bin",  "mega/b.idx",
                                        "mega/c.bin",  "raw/B.bin",   "raw/t2.bin",  "raw/t10.bin",
                                        "raw/z.npy",   "plain/x.bin", "plain/y.npy", "plain/n.txt",
                                        "plain/.h.bin"};
    static const char *const directories[] = {"mega", "raw", "plain", "void"};
    if (!mkdtemp(directory) || chdir(directory) < 0)
        return -1;
    for (size_t i = 0; i < RP_ARRAY_COUNT(directories); i++)
        if (mkdir(directories[i], 0700) < 0)
            return -1;
    for (size_t i = 0; i < RP_ARRAY_COUNT(files); i++)
        write_file(files[i], "", 0);
    rp_config_init(&config);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    rp_config_free(&config);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

#endif
