/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c — `ringpack config stream`, the contract of a config as far as it follows from only
 * the config, and `ringpack config contract`, which opens the corpus for the rest. Loaders expect
 * them of the engine that they attach to. */
#include <stdio.h>
#include <stdlib.h>

#include "cmd.h"
#include "config/description.h"
#include "config/keys.h"
#include "stream.h"
#include "stream_version.h"

static int print_text(int code, char *text, const struct rp_error *error)
{
    if (code >= 0)
        fputs(text, stdout);
    free(text);
    return code < 0 ? rp_cmd_report(error) : RP_EXIT_FINE;
}

int rp_keys_stream(const struct rp_keys_arguments *arguments, struct rp_config *config)
{
    struct rp_error error = {0};
    char *text = NULL;
    if (arguments->word_count > 0)
        return rp_cmd_misuse("config", "stream: expected -c FILE, found `%s`", arguments->words[0]);
    if (config->plan_partitions >
        1) /* the run has begun as version 1: the engine refuses a new one */
        rp_config_keep_version(config, 1);
    int code = rp_config_finish(config, &error);
    if (code >= 0)
        code = rp_config_describe(&text, config, &error);
    return print_text(code, text, &error);
}

int rp_keys_contract(const struct rp_keys_arguments *arguments, struct rp_config *config)
{
    struct rp_error error = {0};
    struct rp_corpus *corpus = NULL;
    struct rp_plan *plan = NULL;
    struct rp_contract contract;
    char *text = NULL;
    if (arguments->word_count > 0)
        return rp_cmd_misuse("config", "contract: expected -c FILE, found `%s`",
                             arguments->words[0]);
    rp_version_keep(config, NULL, 0);
    int code = rp_config_finish(config, &error);
    if (code >= 0)
        code = rp_stream_open_corpus(&corpus, config, true, &error);
    if (code >= 0)
        code = rp_stream_open_plan(&plan, config, corpus, &error);
    if (code >= 0)
        code = rp_stream_make_contract(&text, &contract, config, corpus, plan, &error);
    rp_plan_close(plan);
    rp_corpus_close(corpus);
    return print_text(code, text, &error);
}
