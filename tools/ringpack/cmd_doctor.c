/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c — `ringpack doctor`: check this machine for the engine's needs, and name changes to
 * make. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/bits.h"
#include "cmd.h"
#include "cmd_config.h"
#include "config/packers.h"
#include "doctor.h"
#include "corpus/eos.h"
#include "flow/descriptors.h"
#include "flow/flow.h"
#include "other_streams.h"
#include "server/sizes.h"
#include "stream.h"

struct arguments {
    struct rp_cmd_line line;
    bool json;
};

static const struct rp_option own_options[] = {
    {RP_FLAG("json", struct arguments, json), .help = "print the findings as JSON"},
    {0},
};

/* Whether a run is described, and not only some keys of any. */
static bool describes_run(const struct rp_cmd_line *arguments)
{
    return arguments->path || rp_cmd_config_given(arguments, "sources");
}

/* Where no run is described, required keys may be missing. */
static int read_config(struct rp_cmd_line *arguments)
{
    struct rp_error error;
    if (describes_run(arguments)) {
        int status = rp_cmd_config_finish(arguments);
        if (status == RP_EXIT_FINE && rp_other_streams_is_for(arguments) &&
            rp_other_streams_check(arguments, &error) < 0)
            return rp_cmd_report(&error);
        return status;
    }
    for (size_t i = 0; i < arguments->setting_count; i++)
        if (rp_config_set(arguments->config, arguments->settings[i].key,
                          arguments->settings[i].text, &error) < 0)
            return rp_cmd_report(&error);
    rp_config_choose_packers(arguments->config);
    return RP_EXIT_FINE;
}

/* Find the sources whose tokens are not compared with hashes. */
static void check_verification(const struct rp_config *config, const struct rp_corpus *corpus,
                               struct rp_doctor_needs *needs)
{
    size_t used = 0;
    needs->has_corpus = true;
    needs->unverified_share = rp_stream_unverified_share(config, corpus);
    for (uint32_t i = 0; i < config->source_count && used < sizeof needs->unverified; i++) {
        struct rp_source_part found = rp_stream_unverified(config, corpus, i);
        const struct rp_source *source = rp_corpus_source(corpus, i);
        char bytes[RP_CMD_TEXT_BYTES];
        if (found.shards)
            used += (size_t)snprintf(
                needs->unverified + used, sizeof needs->unverified - used,
                "%ssource `%s`: %" PRIu64 " tokens (%s) in %" PRIu32 " of %" PRIu32 " shards",
                used ? "; " : "", rp_source_name(source), found.tokens,
                rp_cmd_bytes_text(found.bytes, bytes), found.shards, rp_source_shards(source));
    }
}

/* Find the source with the largest token id. */
static void check_tokens(const struct rp_config *config, const struct rp_corpus *corpus,
                         struct rp_doctor_needs *needs)
{
    needs->token_limit = rp_stream_token_limit(config);
    for (uint32_t i = 0; i < config->source_count; i++) {
        const struct rp_source *source = rp_corpus_source(corpus, i);
        uint64_t found = rp_source_token_max(source);
        if (found <= needs->token_max)
            continue;
        needs->token_max = found;
        snprintf(needs->token_source, sizeof needs->token_source, "%s", rp_source_name(source));
    }
}

static void check_borders(const struct rp_corpus *corpus, struct rp_doctor_needs *needs)
{
    size_t used = 0;
    char doubt[200];
    for (uint32_t i = 0; i < rp_corpus_source_count(corpus) && used < sizeof needs->eos; i++) {
        const struct rp_source *source = rp_corpus_source(corpus, i);
        if (rp_source_eos_doubt(source, doubt, sizeof doubt))
            used += (size_t)snprintf(needs->eos + used, sizeof needs->eos - used,
                                     "%ssource `%s`: %s", used ? "; " : "", rp_source_name(source),
                                     doubt);
    }
}

/* The rings grow with the rows. A stage of another seq_len has an engine of its own. */
static uint64_t memory_of(const struct rp_config *config, const struct rp_corpus *corpus,
                          const struct rp_plan *plan)
{
    struct rp_engine_memory memory = rp_engine_memory(config, corpus, plan);
    struct rp_geometry longest = rp_engine_geometry(config, corpus, plan);
    for (uint32_t i = 0; i < config->stages.count; i++)
        longest.seq_len = (uint32_t)rp_max_u64(longest.seq_len, config->stages.stages[i].seq_len);
    uint64_t ring = rp_geometry_layout(&longest, rp_engine_sections(config, plan),
                                       config->token_dtype);
    bool is_mapped = config->io == RP_IO_MAPPED;
    return ring * config->rank_count + memory.process +
           (is_mapped ? memory.flow_mapped : memory.flow_reading);
}

static void check_corpus(const struct rp_config *config, struct rp_doctor_needs *needs)
{
    struct rp_corpus *corpus = NULL;
    struct rp_plan *plan = NULL;
    struct rp_docs_per_row found = {0};
    int code = rp_stream_open_corpus(&corpus, config, true, &needs->corpus_error);
    if (code >= 0)
        code = rp_stream_docs_per_row(&found, config, corpus, &needs->corpus_error);
    if (code >= 0)
        code = rp_stream_open_plan_with(&plan, config, corpus, &found, &needs->corpus_error);
    if (code >= 0)
        (void)rp_stream_docs_per_row_text(&found, config, needs->packing, sizeof needs->packing);
    if (code >= 0) {
        check_verification(config, corpus, needs);
        check_tokens(config, corpus, needs);
        check_borders(corpus, needs);
        needs->memory_bytes = memory_of(config, corpus, plan);
    }
    rp_plan_close(plan);
    rp_corpus_close(corpus);
    needs->corpus_code = code;
}

static struct rp_doctor_needs needs_of(const struct rp_config *config, bool complete)
{
    struct rp_doctor_needs needs = {
        .prefetch_bytes = config->prefetch_bytes ? config->prefetch_bytes
                                                 : RP_PREFETCH_BYTES_STANDARD,
        .files = rp_engine_descriptors(config) + RP_DESCRIPTORS_MIN,
        .files_least = rp_engine_descriptors(config) + RP_DESCRIPTORS_MIN,
        .readers = config->readers,
        .packers = config->packers,
        .run_dir = config->run_dir,
        .checkpoint_dir = config->checkpoint_dir,
        .checkpoint_mirror_dir = config->checkpoint_mirror_dir,
        .resume = config->resume};
    if (!complete)
        return needs;
    check_corpus(config, &needs);
    uint64_t shards = 0;
    for (uint32_t i = 0; i < config->source_count; i++)
        shards += config->sources[i].shard_count;
    needs.files = rp_max_u64(needs.files_least, rp_engine_descriptors(config) + shards);
    return needs;
}

static const char *const state_names[] = {"ok", "warn", "FAIL"};

static void print_finding(const char *name, const struct rp_doctor_finding *finding)
{
    printf("%-5s %-14s %s\n", state_names[finding->state], name, finding->found);
    if (finding->fix[0])
        printf("%20s next: %s\n", "", finding->fix);
}

static json_t *finding_json(const char *name, const struct rp_doctor_finding *finding)
{
    return json_pack("{s:s, s:s, s:o, s:o}", "name", name, "state", state_names[finding->state],
                     "found", rp_cmd_json_text(finding->found), "next",
                     rp_cmd_json_text(finding->fix));
}

static int examine(void *argument, const struct rp_config *config)
{
    const struct arguments *arguments = argument;
    struct rp_doctor_needs needs = needs_of(config, describes_run(&arguments->line));
    unsigned counts[RP_ARRAY_COUNT(state_names)] = {0};
    json_t *list = json_array();
    for (size_t i = 0; i < rp_doctor_check_count; i++) {
        const struct rp_doctor_check *check = &rp_doctor_checks[i];
        struct rp_doctor_finding finding = {0};
        check->run(&needs, &finding);
        counts[finding.state]++;
        if (arguments->json)
            json_array_append_new(list, finding_json(check->name, &finding));
        else
            print_finding(check->name, &finding);
    }
    bool fails = counts[RP_DOCTOR_FAIL] > 0;
    if (arguments->json) {
        json_t *report = json_pack("{s:b, s:i, s:i, s:o}", "ready", !fails, "warnings",
                                   counts[RP_DOCTOR_WARN], "failures", counts[RP_DOCTOR_FAIL],
                                   "checks", list);
        rp_cmd_print_json(report);
    } else {
        json_decref(list);
        printf("%s: %u ok, %u warn, %u FAIL\n", fails ? "an engine cannot run here yet" : "ready",
               counts[RP_DOCTOR_OK], counts[RP_DOCTOR_WARN], counts[RP_DOCTOR_FAIL]);
    }
    return fails ? RP_EXIT_DIFFERS : RP_EXIT_FINE;
}

int rp_cmd_doctor(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "doctor",
        .help = "Check this machine and propose changes.",
        .notes = "Every line is ok, warn (it works, but could do better) or FAIL (an engine cannot "
                 "run). With a config, or --sources, the run that it describes is checked, else "
                 "the defaults count. Exit status: 0 fine or warnings only, 1 something FAILs, 2 "
                 "trouble.",
        .options = own_options,
        .takes = RP_TAKES_CONFIG,
        .run = examine,
        .finish = read_config};
    struct arguments arguments = {0};
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
