/* SPDX-License-Identifier: Apache-2.0 */
/* print_value.c — one value that is not nested as the text that would set it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "config/key.h"

static void print_word(const char *words, uint64_t index, char *text, size_t bytes)
{
    for (; index > 0; index--)
        words = strchrnul(words, '|') + 1;
    snprintf(text, bytes, "%.*s", (int)(strchrnul(words, '|') - words), words);
}

void rp_key_print_sections(uint64_t sections, char *text, size_t bytes)
{
    char word[RP_TEXT_WORD_MAX];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < RP_SECTION_ROW_PLANS; i++) {
        if (!(sections >> i & 1))
            continue;
        print_word(RP_SECTION_WORDS, i, word, sizeof word);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "", word);
        RP_ASSERT(used < bytes);
    }
}

static void print_shards(const struct rp_config_source *source, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < source->shard_count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? "," : "",
                                 source->shards[i]);
}

static void print_ranks(const struct rp_config *config, char *text, size_t bytes)
{
    text[0] = '\0';
    if (config->rank_count > 0)
        snprintf(text, bytes, "%" PRIu32 "-%" PRIu32, config->rank_first,
                 config->rank_first + config->rank_count - 1);
}

void rp_key_print(const struct rp_key *key, const void *object, char *text, size_t bytes)
{
    const char *string;
    switch (key->kind) {
    case RP_KIND_TEXT:
    case RP_KIND_PATH:
    case RP_KIND_WORD:
    case RP_KIND_COMMAND:
    case RP_KIND_NAMES:
        string = *(char *const *)((const char *)object + key->offset);
        snprintf(text, bytes, "%s", string ? string : "");
        return;
    case RP_KIND_BOOL:
        snprintf(text, bytes, "%s", rp_key_number(key, object) ? "true" : "false");
        return;
    case RP_KIND_CHOICE:
    case RP_KIND_DROPPED:
        print_word(key->words, rp_key_number(key, object), text, bytes);
        return;
    case RP_KIND_SECTIONS:
        rp_key_print_sections(rp_key_number(key, object), text, bytes);
        return;
    case RP_KIND_SHARDS:
        print_shards(object, text, bytes);
        return;
    case RP_KIND_RANKS:
        print_ranks(object, text, bytes);
        return;
    case RP_KIND_WEIGHT:
        rp_text_millionths(rp_key_number(key, object), text, bytes);
        return;
    case RP_KIND_SIGNED:
        snprintf(text, bytes, "%" PRId64, (int64_t)rp_key_number(key, object));
        return;
    case RP_KIND_EPOCHS:
        if (rp_key_number(key, object) == 0) {
            snprintf(text, bytes, "endless");
            return;
        }
        /* fall through */
    case RP_KIND_COUNT:
        if (key->words && rp_key_number(key, object) == RP_CONFIG_CHOSEN) {
            snprintf(text, bytes, "%s", key->words);
            return;
        }
        /* fall through */
    case RP_KIND_LENGTH:
    case RP_KIND_BYTES:
        snprintf(text, bytes, "%" PRIu64, rp_key_number(key, object));
        return;
    case RP_KIND_SOURCES:
    default:
        break; /* sources have keys of their own; nested_print.c has the nested ones */
    }
    RP_ASSERT(false);
}
