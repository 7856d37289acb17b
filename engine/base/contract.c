/* SPDX-License-Identifier: Apache-2.0 */
#include "base/contract.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"
#include "base/weights.h"

/* The kind of a field decides the hint of a difference. */
enum kind {
    KIND_KEY,     /* a key of the config with that name */
    KIND_CORPUS,  /* the content of the corpus */
    KIND_SIDE,    /* the content of a side column */
    KIND_WEIGHT,  /* the weight of a source */
    KIND_STAGE,   /* a key of a stage of the config */
    KIND_VERSION, /* a version of the specification */
    KIND_LABEL,   /* information for people, never compared: sign `:` */
};

#define NEVER 0u
#define RESUME (RP_AT_RESUME | RP_AT_REWEIGHTED)
#define REWEIGHTED RP_AT_REWEIGHTED
#define EXTENSION RP_AT_EXTENSION

/* Every field: name, sign, kind, the moments at which it may differ, its name in messages (%s: the
 * source). `source[]` stands for every source. No field may differ between nodes. A message lists
 * several differences in the order of this table. */
static const struct rule {
    const char *name;
    char sign;
    enum kind kind;
    unsigned may_differ;
    const char *words; /* name in messages, of a key the one that a config has; NULL = `name` */
} rules[] = {
    /* the stream */
    {"stream_version", '=', KIND_VERSION, NEVER, NULL},
    {"seed", '=', KIND_KEY, NEVER, NULL},
    {"seq_len", '=', KIND_KEY, NEVER, NULL},
    {"shuffle", '=', KIND_KEY, NEVER, NULL},
    {"packing", '=', KIND_KEY, NEVER, NULL},
    {"fill", '=', KIND_KEY, NEVER, "row_gap"},
    {"long_doc", '=', KIND_KEY, NEVER, NULL},
    {"window", '=', KIND_KEY, NEVER, "packing_buffer"},
    {"window", '=', KIND_KEY, NEVER, "open_bins"}, /* with packing: best_fit */
    {"max_docs_per_row", '=', KIND_KEY, NEVER, NULL},
    {"block_documents", '=', KIND_KEY, NEVER, NULL},
    {"window_blocks", '=', KIND_KEY, NEVER, NULL},
    {"lanes", '=', KIND_KEY, NEVER, "plan_partitions"},
    {"group", '=', KIND_KEY, NEVER, NULL},
    {"bos_id", '=', KIND_KEY, NEVER, NULL},
    {"eos_id", '=', KIND_KEY, NEVER, NULL},
    {"label_across_cuts", '=', KIND_KEY, NEVER, NULL},
    {"num_epochs", '=', KIND_KEY, EXTENSION, NULL},
    {"sources", '=', KIND_CORPUS, NEVER, "number of sources"},
    {"source[].documents", '=', KIND_CORPUS, NEVER, "documents of source %s"},
    {"source[].weight", '=', KIND_WEIGHT, REWEIGHTED, "weight of source %s"},
    {"source[].name", ':', KIND_LABEL, NEVER, "name of source %s"},
    {"corpus_files", '~', KIND_CORPUS, NEVER, "files of the corpus"},
    {"corpus_paths", ':', KIND_LABEL, NEVER, NULL},
    {"corpus_sampled", '=', KIND_CORPUS, NEVER, "sampled fingerprint of the corpus"},
    {"corpus_full", '~', KIND_CORPUS, NEVER, "full fingerprint of the corpus"},
    {"tokenizer", '~', KIND_CORPUS, NEVER, NULL},
    /* the delivery */
    {"dp_world_size", '=', KIND_KEY, RESUME, NULL},
    {"batch_size", '=', KIND_KEY, RESUME, NULL},
    {"global_batch_size", '=', KIND_KEY, RESUME, NULL},
    {"drop_last", '=', KIND_KEY, RESUME, NULL},
    {"sections", '=', KIND_KEY, RESUME | RP_AT_ATTACH, NULL},
    {"columns", '=', KIND_KEY, RESUME | RP_AT_ATTACH, NULL},
    {"column[].content", '~', KIND_SIDE, NEVER, NULL},
    {"column[].type", '=', KIND_SIDE, RESUME | RP_AT_ATTACH, NULL},
    {"source[].mask", '=', KIND_CORPUS, RESUME, "mask of source %s"},
    {"stage[].batch_size", '=', KIND_STAGE, RESUME, NULL},
    {"stage[].global_batch_size", '=', KIND_STAGE, RESUME, NULL},
    {"token_dtype", '=', KIND_KEY, RESUME, NULL},
    {"label_mode", '=', KIND_KEY, RESUME, NULL},
    {"pad_id", '=', KIND_KEY, RESUME, NULL},
    /* any field that this ringpack does not know */
    {"", '=', KIND_VERSION, NEVER, NULL},
};
static const struct rule *const unknown_rule = &rules[RP_ARRAY_COUNT(rules) - 1];

#define NAME_BYTES (RP_RECORD_NAME_MAX + 1)

/* Set name to `source[].weight` for `source[0003].weight`, and return 3. UINT32_MAX without one. */
static uint32_t without_number(const struct rp_field *field, char name[NAME_BYTES])
{
    static const char source[] = "source[", stage[] = "stage[", column[] = "column[";
    uint32_t number = 0, at = sizeof source - 1;
    snprintf(name, NAME_BYTES, "%.*s", (int)field->name_bytes, field->name);
    char *end = strncmp(name, column, sizeof column - 1) == 0 ? strchr(name, ']') : NULL;
    if (end) /* column[weight].type is column[].type */
        memmove(name + sizeof column - 1, end, strlen(end) + 1);
    if (strncmp(name, stage, sizeof stage - 1) == 0)
        at = sizeof stage - 1;
    else if (strncmp(name, source, at) != 0)
        return UINT32_MAX;
    uint32_t begin = at;
    for (; name[at] >= '0' && name[at] <= '9' && number < RP_CONTRACT_BYTES_MAX; at++)
        number = 10 * number + (uint32_t)(name[at] - '0');
    memmove(name + begin, name + at, strlen(name + at) + 1);
    return number;
}

static const struct rule *find_rule(const char *name)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(rules); i++)
        if (!strcmp(rules[i].name, name))
            return &rules[i];
    return unknown_rule;
}

static const char *key_of(const struct rule *rule)
{
    return rule->kind == KIND_KEY && rule->words ? rule->words : rule->name;
}

const char *rp_contract_key(const char *name)
{
    const struct rule *rule = find_rule(name);
    if (!strcmp(name, "window")) /* its two rules */
        return "packing_buffer or open_bins";
    return rule == unknown_rule ? name : key_of(rule);
}

unsigned rp_contract_may_differ(const char *key)
{
    for (const struct rule *rule = rules; rule < unknown_rule; rule++)
        if (!strcmp(key_of(rule), key))
            return rule->may_differ;
    return UINT_MAX;
}

/* ---- making and reading ---------------------------------------------------------------------- */

static void add_line(struct rp_record_writer *writer, const char *name, const char *format,
                     va_list arguments)
{
    char value[RP_RECORD_VALUE_MAX + 1], rule_name[NAME_BYTES];
    const struct rp_field field = {.name = name, .name_bytes = (uint32_t)strlen(name)};
    (void)without_number(&field, rule_name);
    const struct rule *rule = find_rule(rule_name);
    RP_ASSERT(rule != unknown_rule);
    vsnprintf(value, sizeof value, format, arguments);
    rp_record_add(writer, rule->sign, name, "%s", value);
}

void rp_contract_add(struct rp_record_writer *writer, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_line(writer, name, format, arguments);
    va_end(arguments);
}

void rp_contract_add_of(struct rp_record_writer *writer, const char *list, uint32_t number,
                        const char *name, const char *format, ...)
{
    char full_name[NAME_BYTES];
    va_list arguments;
    snprintf(full_name, sizeof full_name, "%s[%04u].%s", list, number, name);
    va_start(arguments, format);
    add_line(writer, full_name, format, arguments);
    va_end(arguments);
}

int rp_contract_open(struct rp_contract *contract, const char *text, size_t bytes,
                     struct rp_error *error)
{
    *contract = (struct rp_contract){{text, 0}, {text, 0}};
    const char *empty = bytes > 0 && bytes <= RP_CONTRACT_BYTES_MAX ? memmem(text, bytes, "\n\n", 2)
                                                                    : NULL;
    if (!empty)
        return rp_fail(error, -RP_E_CORRUPT, NULL,
                       "a contract is two records with an empty line between them, of at most %u "
                       "bytes; %zu bytes were found",
                       RP_CONTRACT_BYTES_MAX, bytes);
    size_t stream_bytes = (size_t)(empty - text) + 1;
    int code = rp_record_open(&contract->stream, text, stream_bytes, error);
    return code < 0 ? code
                    : rp_record_open(&contract->delivery, text + stream_bytes + 1,
                                     bytes - stream_bytes - 1, error);
}

/* ---- comparing ------------------------------------------------------------------------------- */

struct difference {
    const struct rule *rule;
    uint32_t source;       /* its number, if the field is a source's */
    char name[NAME_BYTES]; /* in messages */
    char had[RP_RECORD_VALUE_MAX + 1], has[RP_RECORD_VALUE_MAX + 1];
};

static void copy_value(char out[RP_RECORD_VALUE_MAX + 1], bool is_there,
                       const struct rp_field *field)
{
    if (is_there)
        snprintf(out, RP_RECORD_VALUE_MAX + 1, "%.*s", (int)field->value_bytes, field->value);
    else
        snprintf(out, RP_RECORD_VALUE_MAX + 1, "none");
}

/* A message has the name of a source if one of the contracts has it, otherwise its number. */
static void name_field(struct difference *difference, const struct rp_record_pair *pair)
{
    char label[NAME_BYTES], source[NAME_BYTES];
    struct rp_field found;
    snprintf(label, sizeof label, "source[%04u].name", difference->source);
    snprintf(source, sizeof source, "%u", difference->source);
    for (unsigned i = 0; i < 2; i++)
        if (rp_record_find(pair->of[i], label, &found))
            snprintf(source, sizeof source, "%.*s", (int)found.value_bytes, found.value);
    const char *words = difference->rule->words;
    const char *hole = words ? strstr(words, "%s") : NULL;
    if (hole)
        snprintf(difference->name, NAME_BYTES, "%.*s%s", (int)(hole - words), words, source);
    else if (words)
        snprintf(difference->name, NAME_BYTES, "%s", words);
}

/* The rule of a field: of two with its name, the second one is for packing: best_fit. */
static const struct rule *rule_of(const char *name, const struct rp_record_pair *pair)
{
    const struct rule *rule = find_rule(name);
    struct rp_field packing;
    bool is_second = rule != unknown_rule && !strcmp(rule[1].name, name) &&
                     rp_record_find(pair->of[0], "packing", &packing) && packing.value_bytes == 8 &&
                     !memcmp(packing.value, "best_fit", 8);
    return is_second ? rule + 1 : rule;
}

static struct difference describe(const struct rp_record_pair *pair)
{
    struct difference difference = {.rule = NULL};
    const struct rp_field *field = &pair->field[pair->has[0] ? 0 : 1];
    char name[NAME_BYTES];
    difference.source = without_number(field, name);
    difference.rule = rule_of(name, pair);
    snprintf(difference.name, NAME_BYTES, "%.*s", (int)field->name_bytes, field->name);
    copy_value(difference.had, pair->has[0], &pair->field[0]);
    copy_value(difference.has, pair->has[1], &pair->field[1]);
    return difference;
}

/* "set seed back to 7 (`ringpack serve --seed 7`)" */
static void write_setting(char *out, size_t bytes, const struct difference *difference)
{
    char option[NAME_BYTES];
    snprintf(option, sizeof option, "%s", difference->name);
    for (char *c = option; *c; c++)
        if (*c == '_')
            *c = '-';
    const char *note = strcmp(option, "sections") ? "" : "; a profile adds its own";
    snprintf(out, bytes, "set %s back to %s (`ringpack serve --%s %s`%s)", difference->name,
             difference->had, option, RP_TEXT_SHELL_WORD(difference->had), note);
}

static const char *may_change(const struct rule *rule)
{
    if (rule->may_differ & RP_AT_RESUME)
        return "it may change when trainers start again from a state";
    if (rule->may_differ & RP_AT_REWEIGHTED)
        return "it may change when a run starts from a state with --accept-weights";
    if (rule->may_differ & RP_AT_EXTENSION)
        return "it may change when an engine starts from a state, to no less than was read";
    return "it never changes within a stream";
}

/* The hint for a difference: the next command, and whether the field may ever change. */
static void write_hint(char *hint, size_t bytes, const struct difference *difference,
                       enum rp_contract_moment moment)
{
    const char *may = may_change(difference->rule);
    enum kind kind = difference->rule->kind;
    char setting[RP_RECORD_VALUE_MAX + 1];
    write_setting(setting, sizeof setting, difference);
    if (kind == KIND_CORPUS)
        snprintf(setting, sizeof setting,
                 "the corpus is another one, another part of it (`documents`), or its content "
                 "changed: point the configuration at the corpus that %s with",
                 moment == RP_AT_REATTACH ? "the trainer began" : "the state was made");
    else if (kind == KIND_SIDE)
        snprintf(setting, sizeof setting,
                 "the values of that side column are others: restore its files, or leave it out");
    else if (kind == KIND_WEIGHT)
        snprintf(setting, sizeof setting,
                 moment == RP_AT_REATTACH
                     ? "set the weights back, and restart the engine"
                     : "`ringpack plan -c CONFIG --state FILE` shows the mixture of the new ones "
                       "from there on: take them with --accept-weights, or set the weights back");
    else if (kind == KIND_STAGE)
        snprintf(setting, sizeof setting, "set it back to %s in that stage of the config",
                 difference->had);
    else if (kind == KIND_VERSION)
        snprintf(setting, sizeof setting, "use one ringpack on both sides");

    if (moment == RP_AT_ATTACH)
        snprintf(hint, bytes,
                 "the run is unchanged; the engine of this run serves another stream than this "
                 "trainer describes: describe it as the trainer does that started the engine, or "
                 "give this one a run of its own (run)");
    else if (moment == RP_ON_NODES)
        snprintf(hint, bytes,
                 "let all nodes have the same corpus, the same config and one ringpack: %s has one "
                 "value in a job",
                 difference->name);
    else if (moment == RP_AT_REATTACH)
        snprintf(hint, bytes, "the trainer keeps its batches; %s; %s", setting, may);
    else if (kind == KIND_KEY)
        snprintf(hint, bytes,
                 "the run is unchanged; %s to continue this stream, or start a new one without "
                 "the state, in a checkpoint_dir of its own; %s",
                 setting, may);
    else
        snprintf(hint, bytes, "the run is unchanged; %s; %s", setting, may);
}

/* The differences that are not allowed: the first of the message, and as many others as it has room
 * for. */
struct refusal {
    struct difference first;
    char rest[512];
    size_t used;
    unsigned count, untold;
};

static void add_text(struct refusal *refusal, const struct difference *difference,
                     const struct rp_contract_sides *sides)
{
    size_t room = sizeof refusal->rest - refusal->used;
    int length = snprintf(refusal->rest + refusal->used, room, "; %s differs: %s has %s, %s has %s",
                          difference->name, sides->had, difference->had, sides->has,
                          difference->has);
    if (length >= 0 && (size_t)length < room)
        refusal->used += (size_t)length;
    else
        refusal->untold++;
    refusal->rest[refusal->used] = '\0';
}

/* Whether the records have other numbers of sources, so that their fields cannot be compared by
 * number. */
static bool has_other_sources(const struct rp_record *had, const struct rp_record *has)
{
    struct rp_field a, b;
    return rp_record_find(had, "sources", &a) && rp_record_find(has, "sources", &b) &&
           (a.value_bytes != b.value_bytes || memcmp(a.value, b.value, a.value_bytes));
}

/* Two records that are being compared. */
struct comparison {
    const struct rp_contract_sides *sides;
    struct rp_record_pair pair;
    bool other_sources;
    bool has_weights; /* the weights were compared, all at once */
    struct refusal *refusal;
};

static void add_difference(struct comparison *comparison, struct difference *difference)
{
    struct refusal *refusal = comparison->refusal;
    bool is_known = difference->rule != unknown_rule;
    bool is_first = refusal->count++ == 0 || difference->rule < refusal->first.rule;
    /* name_field searches both records, so it is called only for names that are printed. */
    if (is_known && (is_first || refusal->untold == 0))
        name_field(difference, &comparison->pair);
    if (is_first && refusal->count > 1)
        add_text(refusal, &refusal->first, comparison->sides);
    else if (!is_first)
        add_text(refusal, difference, comparison->sides);
    if (is_first)
        refusal->first = *difference;
}

/* Add each weight that differs relative to the others: it may be the same number. Returns false if
 * they cannot be compared so: then each number that differs is a difference. */
static bool add_weights(struct comparison *comparison)
{
    struct rp_weights weights;
    if (!rp_weights_open(&weights, comparison->pair.of[0], comparison->pair.of[1],
                         comparison->sides->weight_unit))
        return false;
    for (uint32_t s = 0; s < weights.count; s++) {
        struct difference difference = {.rule = find_rule("source[].weight"), .source = s};
        if (rp_weights_is_kept(&weights, s))
            continue;
        rp_weights_had_text(&weights, s, difference.had);
        rp_weights_has_text(&weights, s, difference.has);
        add_difference(comparison, &difference);
    }
    rp_weights_close(&weights);
    return true;
}

/* Is it a line of a record that neither side has begun? */
static bool is_ahead(const struct rp_record_pair *pair, uint64_t records_from)
{
    const struct rp_field *field = &pair->field[pair->has[0] ? 0 : 1];
    char name[NAME_BYTES], value[RP_RECORD_VALUE_MAX + 1];
    bool is_ahead = false;
    snprintf(name, sizeof name, "%.*s", (int)field->name_bytes, field->name);
    char *end = strncmp(name, RP_CONTRACT_RECORD, strlen(RP_CONTRACT_RECORD)) == 0
                    ? strchr(name, ']')
                    : NULL;
    if (records_from == 0 || !end)
        return false;
    snprintf(end + 1, sizeof name - (size_t)(end + 1 - name), ".from");
    for (unsigned i = 0; i < 2; i++) {
        struct rp_field from;
        if (!rp_record_find(pair->of[i], name, &from))
            continue;
        copy_value(value, true, &from);
        if (strtoull(value, NULL, 10) < records_from)
            return false;
        is_ahead = true;
    }
    return is_ahead;
}

/* Is it a fingerprint of a source that gets other documents by a record that neither side has
 * begun? Fingerprints are at the newest number of documents. */
static bool is_of_documents_ahead(const struct rp_record_pair *pair, uint64_t records_from)
{
    const struct rp_field *field = &pair->field[pair->has[0] ? 0 : 1];
    char name[NAME_BYTES], wanted[NAME_BYTES];
    uint32_t source = without_number(field, name);
    if (records_from == 0 || source == UINT32_MAX ||
        (strcmp(name, "source[].sampled") && strcmp(name, "source[].full") &&
         strcmp(name, "source[].selection")))
        return false;
    snprintf(wanted, sizeof wanted, "].documents[%04" PRIu32 "]", source);
    for (unsigned i = 0; i < 2; i++) {
        struct rp_record_pair line = {.of = {pair->of[i], pair->of[i]}, .has = {true, true}};
        for (size_t at = 0; rp_record_next(pair->of[i], &at, &line.field[0]);) {
            snprintf(name, sizeof name, "%.*s", (int)line.field[0].name_bytes, line.field[0].name);
            if (strstr(name, wanted) && is_ahead(&line, records_from))
                return true;
        }
    }
    return false;
}

static void collect(struct refusal *refusal, const struct rp_record *had,
                    const struct rp_record *has, const struct rp_contract_sides *sides)
{
    struct comparison comparison = {.sides = sides,
                                    .pair = {.of = {had, has}},
                                    .other_sources = has_other_sources(had, has),
                                    .refusal = refusal};
    bool is_tried = false;
    while (rp_record_next_difference(&comparison.pair)) {
        struct difference difference = describe(&comparison.pair);
        bool is_weight = difference.rule->kind == KIND_WEIGHT;
        if (difference.rule->may_differ & sides->moment ||
            (sides->moment == RP_AT_ATTACH && !comparison.pair.has[0]) ||
            (comparison.other_sources && difference.source != UINT32_MAX) ||
            is_ahead(&comparison.pair, sides->records_from) ||
            is_of_documents_ahead(&comparison.pair, sides->records_from))
            continue;
        if (is_weight && !is_tried)
            comparison.has_weights = add_weights(&comparison);
        is_tried |= is_weight;
        if (!is_weight || !comparison.has_weights)
            add_difference(&comparison, &difference);
    }
}

int rp_contract_compare(const struct rp_contract *had, const struct rp_contract *has,
                        const struct rp_contract_sides *sides, struct rp_error *error)
{
    struct refusal refusal = {.used = 0};
    collect(&refusal, &had->stream, &has->stream, sides);
    collect(&refusal, &had->delivery, &has->delivery, sides);
    if (refusal.count == 0)
        return 0;
    char hint[384], more[32] = "";
    const struct difference *first = &refusal.first;
    write_hint(hint, sizeof hint, first, sides->moment);
    if (refusal.untold)
        snprintf(more, sizeof more, "; and %u more", refusal.untold);
    return rp_fail(error, -RP_E_MISMATCH, hint, "%s differs: %s has %s, %s has %s%s%s", first->name,
                   sides->had, first->had, sides->has, first->has, refusal.rest, more);
}
