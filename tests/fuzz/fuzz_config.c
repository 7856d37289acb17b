/* SPDX-License-Identifier: Apache-2.0 */
/* A config file.
 *
 * Refused file: the message says where, or which key. Accepted and finished config: every number is
 * in its range, and the sums that the engine relies on come out even. Shards are looked for in one
 * folder with some files, whatever the file says. */
#include "config/config.h"
#include "fuzz.h"

static const char *const there[] = {"one.bin", "two.npy", "three.bin", "three.idx"};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    for (size_t i = 0; i < RP_ARRAY_COUNT(there); i++)
        (void)fuzz_file(there[i], "", 0);
    return 0;
}

/* The fuzzer has no business in other folders. */
static void confine(struct rp_config_source *source)
{
    for (uint32_t i = 0; i < source->shard_count; i++) {
        if (strncmp(source->shards[i], FUZZ_FOLDER "/", sizeof FUZZ_FOLDER) == 0)
            continue;
        free(source->shards[i]);
        source->shards[i] = strdup(FUZZ_FOLDER "/one.bin");
    }
}

/* Stages ascend by whole steps, and skips ascend with gaps between them. */
static void check_stages(const struct rp_config *c)
{
    for (uint32_t i = 0; i < c->stages.count; i++) {
        const struct rp_config_stage *stage = &c->stages.stages[i];
        FUZZ_REQUIRE(stage->step_rows > 0);
        FUZZ_REQUIRE((stage->from == 0) == (i == 0));
        if (i == 0)
            continue;
        const struct rp_config_stage *before = stage - 1;
        uint64_t rows = stage->from - before->from;
        FUZZ_REQUIRE(stage->from > before->from && stage->from <= INT64_MAX);
        FUZZ_REQUIRE(rows / before->step_rows == stage->first_step - before->first_step);
        FUZZ_REQUIRE(rows % before->step_rows == 0);
    }
    for (uint32_t i = 0; i < c->skip.all.count; i++) {
        const struct rp_config_range *range = &c->skip.all.ranges[i];
        FUZZ_REQUIRE(range->first < range->end && range->end <= INT64_MAX);
        FUZZ_REQUIRE(i == 0 || range->first > range[-1].end);
    }
}

static void check_finished(const struct rp_config *c)
{
    uint64_t micro_rows = (uint64_t)c->batch_size * c->dp_world_size;
    FUZZ_REQUIRE(c->seq_len >= 1 && c->seq_len <= 1u << 24 && c->batch_size >= 1);
    FUZZ_REQUIRE((uint64_t)c->batch_size * c->seq_len <= INT32_MAX);
    FUZZ_REQUIRE(c->global_batch_size > 0 && c->global_batch_size % micro_rows == 0);
    FUZZ_REQUIRE(c->rank_count > 0);
    FUZZ_REQUIRE((uint64_t)c->rank_first + c->rank_count <= c->dp_world_size);
    FUZZ_REQUIRE(c->max_docs_per_row <= c->seq_len);
    FUZZ_REQUIRE(rp_config_window(c) >= 1 && rp_config_window(c) <= 4096);
    FUZZ_REQUIRE(c->plan_partitions >= 1 && c->plan_partitions <= 1024);
    FUZZ_REQUIRE(rp_is_pow2(c->prefetch_factor) && c->prefetch_factor >= 2);
    FUZZ_REQUIRE(c->token_dtype >= RP_DTYPE_U16 && c->token_dtype <= RP_DTYPE_I64);
    FUZZ_REQUIRE(c->sections >> RP_SECTION_COUNT == 0 && c->checkpoint_keep >= 2);
    FUZZ_REQUIRE(strlen(c->run) >= 1 && strlen(c->run) <= 64 && !strchr(c->run, '/'));
    for (uint32_t i = 0; i < c->source_count; i++) {
        FUZZ_REQUIRE(c->sources[i].weight >= 1 || c->stream_version == 2);
        FUZZ_REQUIRE(c->sources[i].weight <= UINT32_MAX);
        FUZZ_REQUIRE(c->sources[i].shard_count > 0 && c->sources[i].name[0]);
        for (uint32_t k = 0; k < i; k++)
            FUZZ_REQUIRE(strcmp(c->sources[i].name, c->sources[k].name) != 0);
    }
    FUZZ_REQUIRE(c->source_count > 0);
    FUZZ_REQUIRE(c->stream_version == 2 || c->stages.count + c->skip.all.count == 0);
    check_stages(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rp_config config;
    struct rp_error error = {0};
    const char *path = fuzz_file("c.yaml", data, size);
    rp_config_init(&config);
    int code = rp_config_read(&config, path, &error);
    if (code < 0)
        FUZZ_REQUIRE(code != -RP_E_CONFIG || strstr(error.message, path));
    for (uint32_t i = 0; code == 0 && i < config.source_count; i++)
        confine(&config.sources[i]);
    if (code == 0)
        code = rp_config_finish(&config, &error);
    if (fuzz_accepted(code, &error))
        check_finished(&config);
    rp_config_free(&config);
    return 0;
}
