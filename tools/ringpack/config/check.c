/* SPDX-License-Identifier: Apache-2.0 */
/* check.c — `ringpack config check`: a config that is complete, in range, and of files that are
 * there. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cmd.h"
#include "config/keys.h"
#include "object/url.h"
#include "stream_version.h"

/* Is it a file, or the prefix of a Megatron dataset? */
static bool is_there(const char *path)
{
    return rp_path_exists("%s", path) || rp_path_exists("%s.idx", path);
}

int rp_keys_finish(struct rp_config *config, struct rp_error *error)
{
    rp_version_keep(config, NULL, 0);
    int code = rp_config_finish(config, error);
    for (uint32_t i = 0; i < config->source_count && code == 0; i++) {
        const struct rp_config_source *source = &config->sources[i];
        for (uint32_t s = 0; s < source->shard_count && code == 0; s++)
            if (!rp_url_is(source->shards[s]) && !is_there(source->shards[s]))
                code = rp_fail(error, -ENOENT, "check the path",
                               "source %s: %s: there is no such file, and no %s.idx", source->name,
                               source->shards[s], source->shards[s]);
    }
    return code;
}

int rp_keys_check(const struct rp_keys_arguments *arguments, struct rp_config *config)
{
    struct rp_error error;
    if (arguments->word_count > 0)
        return rp_cmd_misuse("config", "check: expected -c FILE, found `%s`", arguments->words[0]);
    if (rp_keys_finish(config, &error) < 0)
        return rp_cmd_report(&error);
    uint64_t files = 0;
    for (uint32_t i = 0; i < config->source_count; i++)
        files += config->sources[i].shard_count;
    char doubt[512];
    if (rp_config_sections_doubt(config, doubt, sizeof doubt))
        printf("warning: %s\n", doubt);
    printf("%s: fine (sources: %" PRIu32 ", files: %" PRIu64
           "); `ringpack doctor -c` also opens them\n",
           config->called ? config->called : "the options", config->source_count, files);
    return RP_EXIT_FINE;
}
