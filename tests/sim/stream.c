/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c — the corpus and the plan of a story: so small that a story of five lives takes a
 * millisecond, and that limits are reached now and then. */
#include "story.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"
#include "config/key.h"

#define DOCUMENTS_MAX 120u
#define SEQ_LEN_MIN 8
#define STAGE_ROWS 72 /* a multiple of all sizes of steps */

/* The parts of a stream that its calendar depends on. */
struct draw {
    uint32_t sources, documents; /* documents: in the first shard of the first source */
    uint32_t appended;           /* in its second shard */
    bool concat, best_fit, has_stages;
};

uint64_t story_below(struct story *story, uint64_t limit)
{
    return sim_below(&story->random, limit);
}

bool story_chance(struct story *story, unsigned per_1000)
{
    return sim_chance(&story->random, per_1000);
}

void keys_set(struct keys *keys, const char *key, const char *format, ...)
{
    uint32_t i = 0;
    while (i < keys->count && strcmp(keys->text[i][0], key))
        i++;
    if (i == KEYS_MAX)
        sim_fail("more than %u keys", KEYS_MAX);
    if (i == keys->count)
        keys->count++;
    snprintf(keys->text[i][0], sizeof keys->text[i][0], "%s", key);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(keys->text[i][1], sizeof keys->text[i][1], format, arguments);
    va_end(arguments);
}

int keys_configure(const struct keys *keys, struct rp_config *config, struct rp_error *error)
{
    rp_config_init(config);
    int code = 0;
    for (uint32_t i = 0; i < keys->count && code >= 0; i++)
        code = rp_config_set(config, keys->text[i][0], keys->text[i][1], error);
    if (code >= 0 && keys->grows)
        code = rp_config_source_add_shard(&config->sources[0], NULL, "/data/c.bin", error);
    if (code >= 0 && keys->joins_later)
        config->sources[1].weight = 0;
    return code < 0 ? code : rp_config_finish(config, error);
}

uint32_t stream_token(uint32_t source, uint64_t document, uint64_t index);
uint32_t stream_token(uint32_t source, uint64_t document, uint64_t index)
{
    uint64_t mix = (source * 1000003u + document) * 10007u + index;
    return 1 + (uint32_t)((mix * 0x9e3779b97f4a7c15u) >> 40) % 49999u;
}

/* Some documents are empty, some are longer than a row. At least one has 1 to SEQ_LEN_MIN tokens,
 * so that the stream has a row with every long_doc. */
static void draw_lengths(struct story *story, int32_t *lengths, uint32_t documents,
                         uint32_t length_max)
{
    bool fits = false;
    for (uint32_t d = 0; d < documents; d++) {
        bool is_long = story_chance(story, 30);
        lengths[d] = (int32_t)(d == 0 ? 1 + story_below(story, length_max)
                                      : story_below(story, is_long ? 200 : length_max + 1));
        fits |= lengths[d] >= 1 && lengths[d] <= SEQ_LEN_MIN;
    }
    if (!fits)
        lengths[0] = 1;
}

/* Write NAME.idx and NAME.bin in the format of Megatron: a shard, with documents from `begin` on of
 * its source. */
static void write_shard(struct story *story, char name, uint32_t source, uint64_t begin,
                        uint32_t documents, uint32_t length_max)
{
    char paths[2][12];
    static uint8_t tokens[DOCUMENTS_MAX * 256 * 4];
    static uint8_t index[64 + DOCUMENTS_MAX * 20 + 8];
    uint32_t width = story_chance(story, 500) ? 2 : 4;
    int32_t lengths[DOCUMENTS_MAX];
    int64_t places[DOCUMENTS_MAX], first[DOCUMENTS_MAX + 1] = {0};
    uint64_t at = 0;
    draw_lengths(story, lengths, documents, length_max);
    for (uint32_t d = 0; d < documents; d++) {
        places[d] = (int64_t)at;
        first[d + 1] = d + 1;
        for (int32_t i = 0; i < lengths[d]; i++, at += width) {
            uint32_t token = stream_token(source, begin + d, (uint64_t)i);
            memcpy(tokens + at, &token, width);
        }
    }
    uint8_t code = width == 2 ? 8 : 4;
    uint64_t version = 1, counts[2] = {documents, documents + 1};
    uint8_t *p = index;
    const struct {
        const void *data;
        size_t bytes;
    } parts[] = {{"MMIDIDX\0\0", 9},
                 {&version, 8},
                 {&code, 1},
                 {counts, 16},
                 {lengths, documents * sizeof *lengths},
                 {places, documents * sizeof *places},
                 {first, (documents + 1) * sizeof *first}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; p += parts[i++].bytes)
        memcpy(p, parts[i].data, parts[i].bytes);
    snprintf(paths[0], sizeof paths[0], "/data/%c.idx", name);
    snprintf(paths[1], sizeof paths[1], "/data/%c.bin", name);
    sim_file_put(paths[0], index, (uint64_t)(p - index));
    sim_file_put(paths[1], tokens, at);
}

/* A stage that a config has behind the ones before. */
static void add_stage(struct story *story, char *text, size_t bytes, const struct draw *draw)
{
    static const char *const changes[][2] = {
        {"spread: 2", "spread: 2"},
        {"packing_buffer: 3", "open_bins: 3"},
        {"row_gap: split, packing_buffer: 8", "row_gap: split, open_bins: 8"}};
    char own[96] = "";
    if (draw->sources == 2 && story_chance(story, 600))
        snprintf(own, sizeof own, "weights: {a: %u, b: %u}, ramp: %u, ",
                 1 + (unsigned)story_below(story, 3), 1 + (unsigned)story_below(story, 3),
                 story_chance(story, 500) ? 0 : STAGE_ROWS);
    size_t length = strlen(text);
    snprintf(text + length, bytes - length, ", {%s", own);
    length = strlen(text);
    if (draw->appended && story_chance(story, 600))
        snprintf(text + length, bytes - length, "documents: {a: %u}, ",
                 draw->documents + draw->appended);
    length = strlen(text);
    snprintf(text + length, bytes - length, "%s",
             draw->concat ? "max_docs_per_row: 3" : changes[story_below(story, 3)][draw->best_fit]);
}

/* Stages that end with a step of every life: a source joins, another one grows. */
static void draw_stages(struct story *story, const struct draw *draw)
{
    char text[sizeof story->stream.text[0][1]];
    struct keys *keys = &story->stream;
    keys->grows = draw->appended > 0;
    keys_set(keys, "grow", "false");
    keys->joins_later = draw->sources == 2 && story_chance(story, 500);
    snprintf(text, sizeof text, "[{until: row %u", STAGE_ROWS);
    if (keys->grows)
        snprintf(text + strlen(text), sizeof text - strlen(text), ", documents: {a: %u}",
                 draw->documents);
    for (uint32_t i = 1, count = 1 + (uint32_t)story_below(story, 2); i <= count; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "}");
        add_stage(story, text, sizeof text, draw);
        if (i < count)
            snprintf(text + strlen(text), sizeof text - strlen(text), ", until: row %u",
                     (i + 1) * STAGE_ROWS);
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), "}]");
    keys_set(keys, "stages", "%s", text);
    story->counts.stages += 1;
    story->counts.growths += keys->grows;
    story->counts.joins += keys->joins_later;
}

/* The stream is of version 2: rows are dealt, long documents are spread, and two of three have
 * stages. The sizes of a step stay, because a life has one, and no command comes to an engine,
 * because the reference is one plan: tests/python/lives.py has both. */
static void draw_calendar(struct story *story, const struct draw *draw)
{
    static const char *const deals[] = {
        "off", "{window: 24, step: 12, tier: 6, bundle: 2, order: middle, cost: 16}",
        "{window: 6, step: 3, tier: 3, bundle: 1, order: descending, cost: 2}"};
    struct keys *keys = &story->stream;
    keys_set(keys, "stream_version", "2");
    keys_set(keys, "deal", "%s", deals[story_below(story, 3)]);
    if (!draw->concat)
        keys_set(keys, "spread", "%u", 1u << story_below(story, 7));
    if (draw->has_stages)
        draw_stages(story, draw);
}

void stream_draw(struct story *story)
{
    static const char *const packings[] = {"lookahead", "concat", "best_fit"};
    static const char *const shuffles[] = {"none", "document", "block"};
    static const char *const long_docs[] = {"split", "truncate", "drop"};
    struct keys *keys = &story->stream;
    uint32_t sources = story_chance(story, 300) ? 2 : 1;
    uint32_t seq_len = (uint32_t)SEQ_LEN_MIN << story_below(story, 3);
    uint32_t length_max = 1 + (uint32_t)story_below(story, 40);
    bool has_calendar = story->seed % 10 < 3;
    struct draw draw = {.sources = sources, .has_stages = story->seed % 10 < 2};
    for (uint32_t s = 0; s < sources; s++) {
        uint32_t documents = 20 + (uint32_t)story_below(story, DOCUMENTS_MAX - 20);
        write_shard(story, (char)('a' + s), s, 0, documents, length_max);
        draw.documents = s == 0 ? documents : draw.documents;
    }
    if (draw.has_stages && story_chance(story, 600)) {
        draw.appended = 10 + (uint32_t)story_below(story, DOCUMENTS_MAX - 10);
        write_shard(story, 'c', 0, draw.documents, draw.appended, length_max);
    }
    bool concat = draw.concat = story_chance(story, 300);
    draw.best_fit = !concat && !story_chance(story, 500);
    const char *packing = packings[concat ? 1 : draw.best_fit ? 2 : 0];
    keys_set(keys, "sources", sources == 2 ? "/data/a.bin,/data/b.bin" : "/data/a.bin");
    keys_set(keys, "run_dir", "/run");
    keys_set(keys, "seq_len", "%u", seq_len);
    keys_set(keys, "seed", "%u", (unsigned)story_below(story, 1000));
    keys_set(keys, "packing", "%s", packing);
    if (!concat)
        keys_set(keys, "row_gap", "%s", story_chance(story, 500) ? "pad" : "split");
    uint32_t window = 2u << story_below(story, 4);
    if (!has_calendar)
        keys_set(keys, "stream_version", "1");
    if (!concat)
        keys_set(keys, draw.best_fit ? "open_bins" : "packing_buffer", "%u", window);
    keys_set(keys, "shuffle", "%s", shuffles[story_below(story, 3)]);
    keys_set(keys, "block_documents", "%u", 4u << story_below(story, 3));
    keys_set(keys, "window_blocks", "%u", 1u + (unsigned)story_below(story, 3));
    keys_set(keys, "long_doc", "%s", long_docs[story_below(story, 3)]);
    keys_set(keys, "max_docs_per_row", "%u", 2u + (unsigned)story_below(story, seq_len - 1));
    keys_set(keys, "num_epochs", "%u", draw.appended || story_chance(story, 200) ? 2u : 1u);
    keys_set(keys, "pad_id", "%u", (unsigned)story_below(story, 100));
    keys_set(keys, "profile", "%s", story_chance(story, 500) ? "full" : "min");
    if (story_chance(story, 200))
        keys_set(keys, "drop_last", "true");
    if (has_calendar)
        draw_calendar(story, &draw);
    story->sidecars = story_chance(story, 200);
    story->checkpoints = story_chance(story, 800);
}
