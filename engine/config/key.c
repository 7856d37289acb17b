/* SPDX-License-Identifier: Apache-2.0 */
/* key.c — the conversion of a text to the value of a field (print.c has the way back).
 *
 * Errors: -RP_E_CONFIG with the place, the key, and the expected and the found value. */
#include "config/key.h"
#include "corpus/encoded.h"
#include "object/url.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

int rp_key_fail(struct rp_key_place place, const char *key, const char *hint,
                struct rp_error *error, const char *format, ...)
{
    char message[512], where[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!place.path)
        where[0] = '\0';
    else if (place.column)
        snprintf(where, sizeof where, "%.250s:%u:%u: ", place.path, place.line, place.column);
    else if (place.line)
        snprintf(where, sizeof where, "%.250s:%u: ", place.path, place.line);
    else
        snprintf(where, sizeof where, "%.250s: ", place.path);
    return rp_fail(error, -RP_E_CONFIG, hint, "%s%.80s: %s", where, key, message);
}

int rp_key_no_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory while reading the config");
}

int rp_word_index(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (int index = 0; words; index++) {
        const char *end = strchrnul(words, '|');
        if ((size_t)(end - words) == length && !strncmp(words, word, length))
            return index;
        words = *end ? end + 1 : NULL;
    }
    return -1;
}

int rp_key_expected(struct rp_key_place place, const struct rp_key *key, const char *what,
                    const char *found, struct rp_error *error)
{
    return rp_key_fail(place, key->name, NULL, error, "expected %s, found `%.120s`", what, found);
}

static int expected_word(struct rp_key_place place, const struct rp_key *key, const char *words,
                         const char *found, struct rp_error *error)
{
    char list[256];
    size_t used = 0;
    struct rp_text_near near = {.word = found};
    char buffer[256], *rest = buffer;
    snprintf(buffer, sizeof buffer, "%s", words);
    for (char *word; (word = strsep(&rest, "|")) != NULL;) {
        rp_text_offer(&near, word);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", word);
        RP_ASSERT(used < sizeof list);
    }
    if (near.best && !rp_encoded_named(found))
        return rp_key_fail(place, key->name, NULL, error,
                           "expected one of %s, found `%.120s`; did you mean `%s`?", list, found,
                           near.best);
    char hint[256];
    const struct rp_encoded *encoded = strcmp(key->name, "format") ? NULL : rp_encoded_named(found);
    if (encoded)
        rp_encoded_hint(encoded, "PATH", hint, sizeof hint);
    return rp_key_fail(place, key->name, encoded ? hint : NULL, error,
                       "expected one of %s, found `%.120s`", list, found);
}

static void store_number(const struct rp_key *key, void *object, uint64_t value)
{
    char *field = (char *)object + key->offset;
    if (key->size == sizeof(uint64_t))
        rp_store_u64(field, value);
    else
        rp_store_u32(field, (uint32_t)value);
}

uint64_t rp_key_number(const struct rp_key *key, const void *object)
{
    const char *field = (const char *)object + key->offset;
    if (key->kind == RP_KIND_BOOL)
        return *(const bool *)field;
    return key->size == sizeof(uint64_t) ? rp_load_u64(field) : rp_load_u32(field);
}

bool rp_key_is(const struct rp_key *key, const void *object, const char *word)
{
    return rp_key_number(key, object) == (uint64_t)rp_word_index(key->words, word);
}

/* The expected value of a number of this kind, for messages. */
static const char *number_words(const struct rp_key *key)
{
    switch (key->kind) {
    case RP_KIND_BYTES:
        return "a size such as 4096, 64m or 1g";
    case RP_KIND_LENGTH:
        return "a whole number such as 2048 or 8Ki";
    case RP_KIND_EPOCHS:
        return "a whole number or `endless`";
    default:
        return !key->words                  ? "a whole number such as 64 or 100k"
               : strcmp(key->words, "none") ? "a whole number or `auto`"
                                            : "a whole number or `none`";
    }
}

/* Refuse a suffix that may mean powers of 1000 or of 1024, as in `8k`. */
static int check_length(const struct rp_key *key, const char *text, uint64_t value,
                        struct rp_key_place place, struct rp_error *error)
{
    size_t length = strlen(text);
    if (key->kind != RP_KIND_LENGTH || !isalpha((unsigned char)text[length - 1]) ||
        tolower((unsigned char)text[length - 1]) == 'i')
        return 0;
    uint64_t binary;
    char hint[96];
    if (!rp_text_bytes(text, &binary))
        binary = value;
    snprintf(hint, sizeof hint, "write %" PRIu64 ", or %.20s%s for %" PRIu64, value, text, "i",
             binary);
    return rp_key_fail(place, key->name, hint, error, "`%.120s` could be %" PRIu64 " or %" PRIu64,
                       text, value, binary);
}

static bool parse_number(const struct rp_key *key, const char *text, uint64_t *value)
{
    return key->kind == RP_KIND_BYTES ? rp_text_bytes(text, value) : rp_text_count(text, value);
}

/* Whether a text that is not read as a number is one, but above 2^64. */
static bool is_huge(const struct rp_key *key, const char *text)
{
    char one[24];
    uint64_t value;
    size_t digits = strspn(text, "0123456789");
    int length = snprintf(one, sizeof one, "1%s", text + digits);
    return rp_text_decimal(text, 0, &value) == RP_DECIMAL_LARGE ||
           (digits > 0 && length < (int)sizeof one && parse_number(key, one, &value));
}

static int set_number(const struct rp_key *key, void *object, const char *text,
                      struct rp_key_place place, struct rp_error *error)
{
    uint64_t value = 0;
    bool is_endless = key->kind == RP_KIND_EPOCHS && !strcmp(text, "endless");
    bool is_chosen = key->kind == RP_KIND_COUNT && key->words && !strcmp(text, key->words);
    if (is_chosen)
        value = RP_CONFIG_CHOSEN;
    bool is_number = is_endless || is_chosen || parse_number(key, text, &value);
    if (!is_number && !is_huge(key, text))
        return rp_key_expected(place, key, number_words(key), text, error);
    int code = is_number ? check_length(key, text, value, place, error) : 0;
    if (code < 0)
        return code;
    bool fits = key->size == sizeof value || value <= UINT32_MAX;
    if (!is_number || !fits || (key->words && !is_chosen && value == RP_CONFIG_CHOSEN)) {
        char range[64]; /* values too large for the field: other bounds are checked in finish.c */
        snprintf(range, sizeof range, "%" PRIu64 " … %" PRIu64, key->least, key->most);
        return rp_key_expected(place, key, range, text, error);
    }
    store_number(key, object, value);
    return 0;
}

static int set_signed(const struct rp_key *key, void *object, const char *text,
                      struct rp_key_place place, struct rp_error *error)
{
    uint64_t magnitude;
    bool negative = text[0] == '-';
    if (rp_text_decimal(text + negative, 0, &magnitude) != RP_DECIMAL_FINE || magnitude > INT64_MAX)
        return rp_key_expected(place, key, "a whole number", text, error);
    store_number(key, object, negative ? 0 - magnitude : magnitude);
    return 0;
}

static int set_bool(const struct rp_key *key, void *object, const char *text,
                    struct rp_key_place place, struct rp_error *error)
{
    static const char *const spellings[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(spellings); i++) {
        if (strcasecmp(spellings[i], text)) /* YAML also has True and TRUE */
            continue;
        *(bool *)((char *)object + key->offset) = i % 2 == 1;
        return 0;
    }
    return rp_key_expected(place, key, "true or false", text, error);
}

static int set_choice(const struct rp_key *key, void *object, const char *text,
                      struct rp_key_place place, struct rp_error *error)
{
    int index = rp_word_index(key->words, text);
    if (index < 0)
        return expected_word(place, key, key->words, text, error);
    store_number(key, object, (uint32_t)index);
    return 0;
}

/* true and false are the words of older versions. */
static int set_dropped(const struct rp_key *key, void *object, const char *text,
                       struct rp_key_place place, struct rp_error *error)
{
    bool is_dropped = false;
    struct rp_key as_bool = *key;
    as_bool.offset = 0;
    if (set_bool(&as_bool, &is_dropped, text, place, NULL) < 0)
        return set_choice(key, object, text, place, error);
    store_number(key, object, is_dropped);
    return 0;
}

/* A decimal number with at most six decimals, in millionths, exactly. 0 is refused later, in a
 * stream of version 1. */
static int set_weight(const struct rp_key *key, void *object, const char *text,
                      struct rp_key_place place, struct rp_error *error)
{
    uint64_t value = 0;
    enum rp_decimal read = rp_text_decimal(text, 6, &value);
    if (read == RP_DECIMAL_LARGE)
        return rp_key_expected(place, key,
                               "a smaller number, of at most 18446744073709 (only ratios count)",
                               text, error);
    if (read != RP_DECIMAL_FINE)
        return rp_key_expected(
            place, key, "a number above 0 with at most 6 decimals, such as 2 or 0.25", text, error);
    store_number(key, object, value);
    return 0;
}

static int set_ranks(const struct rp_key *key, struct rp_config *config, const char *text,
                     struct rp_key_place place, struct rp_error *error)
{
    char first_text[24] = "";
    const char *dash = strchr(text, '-');
    size_t length = dash ? (size_t)(dash - text) : strlen(text);
    if (length < sizeof first_text)
        snprintf(first_text, sizeof first_text, "%.*s", (int)length, text);
    uint64_t first, last;
    if (!rp_text_u64(first_text, &first) || !rp_text_u64(dash ? dash + 1 : first_text, &last) ||
        first > last || last >= UINT32_MAX)
        return rp_key_expected(place, key, "a rank or a range of ranks such as 0-3", text, error);
    config->rank_first = (uint32_t)first;
    config->rank_count = (uint32_t)(last - first + 1);
    return 0;
}

static int set_sections(const struct rp_key *key, struct rp_config *config, const char *text,
                        struct rp_key_place place, struct rp_error *error)
{
    uint32_t sections = 0;
    char *copy = strdup(text), *rest = copy;
    if (!copy)
        return rp_key_no_memory(error);
    int code = 0;
    for (char *word; code == 0 && (word = strsep(&rest, ",")) != NULL;) {
        word += strspn(word, " ");
        word[strcspn(word, " ")] = '\0';
        int index = rp_word_index(RP_SECTION_WORDS, word);
        if (index < 0)
            code = expected_word(place, key, RP_SECTION_WORDS, word, error);
        else
            sections |= 1u << index;
    }
    free(copy);
    if (code == 0)
        config->sections = sections;
    return code;
}

char *rp_config_path_behind(const char *directory, const char *path)
{
    if (!directory || !strcmp(directory, ".") || path[0] == '/' || rp_url_is(path))
        return strdup(path);
    return rp_asprintf("%s/%s", directory, path);
}

bool rp_key_is_program_path(const struct rp_key *key, const char *text)
{
    return key->kind == RP_KIND_COMMAND && memchr(text, '/', strcspn(text, ",")) != NULL;
}

static int set_text(const struct rp_key *key, void *object, const char *text,
                    struct rp_key_place place, struct rp_error *error)
{
    if (!*text && key->kind != RP_KIND_NAMES)
        return rp_key_expected(place, key, "a text that is not empty", text, error);
    if (key->kind == RP_KIND_PATH && strchr("~$", text[0])) /* a shell does not expand --key=~/x */
        return rp_key_expected(place, key, "a path that is written out (~ and $ are not expanded)",
                               text, error);
    if (key->kind == RP_KIND_PATH && rp_url_is(text) && strcmp(key->name, "index") != 0 &&
        strcmp(key->name, "manifest") != 0)
        return rp_key_fail(place, key->name, NULL, error,
                           "expected a path on a disk of this machine, found a URL (%.*s://): "
                           "ringpack reads from stores, and never writes to them",
                           (int)rp_min_u64(strcspn(text, ":"), 20), text);
    bool is_word = key->words && rp_word_index(key->words, text) >= 0;
    bool is_path = key->kind == RP_KIND_PATH || rp_key_is_program_path(key, text);
    bool beside_file = is_path && place.path && !is_word;
    char *directory = beside_file ? rp_path_directory(place.path) : NULL;
    char *copy = beside_file && !directory ? NULL : rp_config_path_behind(directory, text);
    free(directory);
    if (!copy)
        return rp_key_no_memory(error);
    char **field = (char **)((char *)object + key->offset);
    free(*field);
    *field = copy;
    return 0;
}

int rp_key_set(const struct rp_key *key, void *object, const char *text, struct rp_key_place place,
               struct rp_error *error)
{
    switch (key->kind) {
    case RP_KIND_COUNT:
    case RP_KIND_LENGTH:
    case RP_KIND_BYTES:
    case RP_KIND_EPOCHS:
        return set_number(key, object, text, place, error);
    case RP_KIND_SIGNED:
        return set_signed(key, object, text, place, error);
    case RP_KIND_BOOL:
        return set_bool(key, object, text, place, error);
    case RP_KIND_WEIGHT:
        return set_weight(key, object, text, place, error);
    case RP_KIND_RANKS:
        return set_ranks(key, object, text, place, error);
    case RP_KIND_SECTIONS:
        return set_sections(key, object, text, place, error);
    case RP_KIND_CHOICE:
        return set_choice(key, object, text, place, error);
    case RP_KIND_DROPPED:
        return set_dropped(key, object, text, place, error);
    case RP_KIND_WORD:
        if (rp_word_index(key->words, text) < 0)
            return expected_word(place, key, key->words, text, error);
        return set_text(key, object, text, place, error);
    case RP_KIND_TEXT:
    case RP_KIND_NAMES:
    case RP_KIND_PATH:
    case RP_KIND_COMMAND:
        return set_text(key, object, text, place, error);
    default:
        break; /* callers set the elements of lists and mappings one by one */
    }
    RP_ASSERT(false);
    return 0;
}

int rp_key_check(const struct rp_key *key, const void *object, struct rp_key_place place,
                 struct rp_error *error)
{
    if (key->kind != RP_KIND_COUNT && key->kind != RP_KIND_LENGTH && key->kind != RP_KIND_BYTES &&
        key->kind != RP_KIND_EPOCHS)
        return 0;
    uint64_t value = rp_key_number(key, object);
    bool is_chosen = key->words && value == RP_CONFIG_CHOSEN;
    if (is_chosen || (value >= key->least && value <= key->most))
        return 0;
    return rp_key_fail(place, key->name, NULL, error,
                       "expected %" PRIu64 " … %" PRIu64 ", found %" PRIu64, key->least, key->most,
                       value);
}

bool rp_key_is_nested(const struct rp_key *key)
{
    return key->kind >= RP_KIND_UNTIL;
}

/* Whether the value is on the heap. */
static bool is_text(const struct rp_key *key)
{
    return key->kind == RP_KIND_TEXT || key->kind == RP_KIND_WORD || key->kind == RP_KIND_PATH ||
           key->kind == RP_KIND_COMMAND || key->kind == RP_KIND_NAMES;
}

void rp_key_set_standards(const struct rp_key_list *list, void *object)
{
    static const struct rp_key_place nowhere = {0};
    for (size_t i = 0; i < list->count; i++) {
        const struct rp_key *key = &list->keys[i];
        if (key->standard[0] == '(' || is_text(key) || rp_key_is_nested(key))
            continue;
        int code = rp_key_set(key, object, key->standard, nowhere, NULL);
        RP_ASSERT(code == 0);
    }
}

int rp_key_fill_texts(const struct rp_key_list *list, void *object, struct rp_error *error)
{
    static const struct rp_key_place nowhere = {0};
    for (size_t i = 0; i < list->count; i++) {
        const struct rp_key *key = &list->keys[i];
        if (key->standard[0] == '(' || !is_text(key) || *(char **)((char *)object + key->offset))
            continue;
        int code = rp_key_set(key, object, key->standard, nowhere, error);
        if (code < 0)
            return code;
    }
    return 0;
}

void rp_key_free_texts(const struct rp_key_list *list, void *object)
{
    for (size_t i = 0; i < list->count; i++)
        if (is_text(&list->keys[i]))
            free(*(char **)((char *)object + list->keys[i].offset));
}
