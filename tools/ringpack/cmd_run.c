/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/checkpoint.h"
#include "shm/run_dir.h"

static int read_kept(struct rp_config *config, const char *path, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    size_t bytes;
    int code = rp_checkpoint_open(&checkpoint, path, error);
    if (code < 0)
        return code;
    const char *text = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    code = rp_config_read_kept(config, text ? text : "", bytes, path, error);
    rp_checkpoint_close(checkpoint);
    return code;
}

int rp_cmd_config_read_file(struct rp_config *config, const char *path, struct rp_error *error)
{
    return rp_checkpoint_is_file(path) ? read_kept(config, path, error)
                                       : rp_config_read(config, path, error);
}

int rp_cmd_run_of(const char *config_path, struct rp_run_of *of, struct rp_error *error)
{
    struct rp_config config;
    rp_config_init(&config);
    *of = (struct rp_run_of){.run = NULL};
    int code = rp_cmd_config_read_file(&config, config_path, error);
    if (code >= 0) {
        const char *saved = config.checkpoint_dir;
        bool saves = saved && strcmp(saved, "none") != 0;
        of->run = strdup(config.run ? config.run : "default");
        of->run_dir = config.run_dir ? strdup(config.run_dir) : NULL;
        of->checkpoint_dir = saves ? strdup(saved) : NULL;
        if (!of->run || (config.run_dir && !of->run_dir) || (saves && !of->checkpoint_dir))
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for its run", config_path);
    }
    rp_config_free(&config);
    if (code >= 0)
        return 0;
    rp_cmd_run_free(of);
    return code;
}

bool rp_cmd_is_run(const char *word)
{
    struct stat info;
    return stat(word, &info) < 0 && errno == ENOENT && rp_run_name_check(word, NULL) == 0;
}

void rp_cmd_run_free(struct rp_run_of *of)
{
    free(of->run);
    free(of->run_dir);
    free(of->checkpoint_dir);
    *of = (struct rp_run_of){.run = NULL};
}
