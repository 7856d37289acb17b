/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c — choose one of the streams of a config: its keys are set in the config of the run. A
 * chosen config is like one that was written for this stream only. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "config/key.h"
#include "corpus/index/index.h"

#define MAIN_STREAM "train"

static struct rp_key_place place_of(const struct rp_config *config,
                                    const struct rp_config_named_stream *stream)
{
    return rp_config_nested_place(config, RP_KEY_streams, stream->place);
}

/* The number of the main stream. */
static uint32_t find_main(const struct rp_config_streams *streams)
{
    for (uint32_t i = 0; i < streams->count; i++)
        if (!strcmp(streams->streams[i].name, MAIN_STREAM))
            return i;
    return 0;
}

static int find_named(const struct rp_config *config, uint32_t *number_out, struct rp_error *error)
{
    const struct rp_config_streams *streams = &config->streams;
    struct rp_text_near near = {.word = config->stream};
    char names[512] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < streams->count; i++) {
        *number_out = i;
        if (!strcmp(streams->streams[i].name, config->stream))
            return 0;
        rp_text_offer(&near, streams->streams[i].name);
        int more = snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                            streams->streams[i].name);
        used = used + (size_t)more < sizeof names ? used + (size_t)more : sizeof names - 1;
    }
    return rp_key_fail(rp_config_key_place(config, RP_KEY_stream), "stream",
                       "give one of these names", error,
                       "there is no stream `%.64s`%s%.64s%s; the streams are %.300s",
                       config->stream, near.best ? " (did you mean `" : "",
                       near.best ? near.best : "", near.best ? "`?)" : "", names);
}

/* Only the main stream is saved by its engine: the position of another one is in the states of its
 * trainers, and without one it begins at its first row. */
static int check_directories(const struct rp_config *config, uint32_t main_number,
                             struct rp_error *error)
{
    const struct rp_config_streams *streams = &config->streams;
    for (uint32_t i = 0; i < streams->count; i++)
        if (i != main_number && streams->streams[i].saves)
            return rp_key_fail(place_of(config, &streams->streams[i]), "streams",
                               "leave its checkpoint_dir out; the trainers' states have its "
                               "position",
                               error,
                               "stream %s has a checkpoint_dir, and only the checkpoints of the "
                               "main stream, %s, are used",
                               streams->streams[i].name, streams->streams[main_number].name);
    return 0;
}

static void leave_out(const struct rp_config *config, enum rp_key_index key, char **text)
{
    if (config->lines[key] == RP_CONFIG_OPTION)
        return;
    free(*text);
    *text = NULL;
}

/* Another stream than the main one has a run of its own, and none of its checkpoints. */
static int make_other(struct rp_config *config, const struct rp_config_named_stream *stream,
                      struct rp_error *error)
{
    char *run = rp_asprintf("%s.%s", config->run ? config->run : "default", stream->name);
    if (!run)
        return rp_key_no_memory(error);
    free(config->run);
    config->run = run;
    config->is_repeated = true;
    free(config->checkpoint_dir);
    return (config->checkpoint_dir = strdup("none")) ? 0 : rp_key_no_memory(error);
}

/* An index at the top has the sources at the top, and not the sources of the stream. */
static void leave_index_out(struct rp_config *config)
{
    if (!config->of_stream[RP_KEY_sources])
        return;
    if (!config->of_stream[RP_KEY_manifest])
        leave_out(config, RP_KEY_manifest, &config->manifest);
    if (!config->of_stream[RP_KEY_index] && config->index &&
        rp_text_has_suffix(config->index, RP_INDEX_SUFFIX))
        leave_out(config, RP_KEY_index, &config->index);
}

int rp_config_choose_stream(struct rp_config *config, struct rp_error *error)
{
    struct rp_config_streams *streams = &config->streams;
    if (streams->count == 0 && config->stream)
        return rp_key_fail(rp_config_key_place(config, RP_KEY_stream), "stream",
                           "leave it out, or add `streams: {train: {}, eval: {...}}`", error,
                           "`%.64s`: the config has no `streams`", config->stream);
    if (streams->count == 0 || streams->chosen)
        return 0;
    uint32_t main_number = find_main(streams), number = main_number;
    int code = config->stream ? find_named(config, &number, error) : 0;
    if (code == 0)
        code = check_directories(config, main_number, error);
    if (code < 0)
        return code;
    const struct rp_config_named_stream *stream = &streams->streams[number];
    streams->chosen = number + 1;
    code = number == main_number ? 0 : make_other(config, stream, error);
    if (code == 0)
        code = rp_config_read_stream(config, stream, error);
    if (code == 0)
        leave_index_out(config);
    return code;
}

const char *rp_config_stream_name(const struct rp_config *config)
{
    uint32_t chosen = config->streams.chosen;
    return chosen ? config->streams.streams[chosen - 1].name : NULL;
}
