/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/mask.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define LABEL_IGNORED (-100)

const char *const rp_mask_usual_names[RP_MASK_USUAL_NAMES] = {"labels", "completion_mask",
                                                              "assistant_masks", "loss_mask"};

bool rp_mask_is_none(const struct rp_mask_choice *choice)
{
    return choice->name && !strcmp(choice->name, "none");
}

bool rp_mask_is_auto(const struct rp_mask_choice *choice)
{
    return !choice->name || !strcmp(choice->name, "auto");
}

static bool ends_with(const char *name, const char *word)
{
    return !strcmp(name, word) || rp_text_has_suffix(name, word);
}

int rp_mask_origin(struct rp_mask_origin *origin, const char *name,
                   const struct rp_mask_choice *choice, struct rp_error *error)
{
    bool is_labels = ends_with(name, "label") || ends_with(name, "labels");
    *origin = (struct rp_mask_origin){
        .rule = {.is_labels = is_labels,
                 .ignores = choice->value && !strcmp(choice->value, "ignore"),
                 .of_next = choice->of && !strcmp(choice->of, "next")}};
    if (strlen(name) >= sizeof origin->name)
        return rp_fail(error, -RP_E_CONFIG, "rename it",
                       "mask `%s`: its name has more than %zu bytes", name,
                       sizeof origin->name - 1);
    memcpy(origin->name, name, strlen(name));
    return 0;
}

void rp_mask_text(const struct rp_mask_origin *origin, char *text, size_t bytes)
{
    const struct rp_mask_rule *rule = &origin->rule;
    bool is_plain = !rule->ignores && !rule->of_next;
    snprintf(text, bytes, "%s%s%s%s%s%s", origin->name, is_plain ? "" : " (",
             rule->ignores ? "ignore" : "", rule->ignores && rule->of_next ? ", " : "",
             rule->of_next ? "next" : "", is_plain ? "" : ")");
}

int rp_mask_check(const struct rp_mask_choice *choice, const struct rp_mask_origin *origin,
                  const char *path, struct rp_error *error)
{
    struct rp_mask_origin wanted;
    char found[64] = "none", expected[64], hint[sizeof error->hint];
    bool is_auto = rp_mask_is_auto(choice);
    if (rp_mask_is_none(choice) || (is_auto && !origin))
        return 0;
    int code = rp_mask_origin(&wanted, is_auto ? origin->name : choice->name, choice, error);
    if (code < 0)
        return code;
    if (origin) {
        wanted.rule.ignores = choice->value ? wanted.rule.ignores : origin->rule.ignores;
        wanted.rule.of_next = choice->of ? wanted.rule.of_next : origin->rule.of_next;
        rp_mask_text(origin, found, sizeof found);
    }
    rp_mask_text(&wanted, expected, sizeof expected);
    if (!strcmp(expected, found))
        return 0;
    snprintf(hint, sizeof hint,
             "run `ringpack index --mask %s%s%s %s`: masks are read when a file is indexed",
             RP_TEXT_SHELL_WORD(wanted.name), wanted.rule.ignores ? " --mask-value ignore" : "",
             wanted.rule.of_next ? " --mask-of next" : "", RP_HINT_PATH(path));
    return rp_fail(error, -RP_E_MISMATCH, hint, "%s: mask: expected %s, found %s in its index",
                   path, expected, found);
}

int rp_mask_take(char mask[RP_MASK_TEXT_BYTES], const struct rp_mask_origin *origin,
                 const char *path, const char *first, struct rp_error *error)
{
    char found[RP_MASK_TEXT_BYTES] = "";
    if (origin)
        rp_mask_text(origin, found, sizeof found);
    if (!first)
        memcpy(mask, found, sizeof found);
    if (!strcmp(mask, found))
        return 0;
    return rp_fail(error, -RP_E_MISMATCH,
                   "index all its shards with one mask (`mask:` in the configuration, `ringpack "
                   "index --mask NAME`), or set mask: none",
                   "%s: mask: expected %s, as of %s, found %s", path, mask[0] ? mask : "none",
                   first, found[0] ? found : "none");
}

int rp_mask_fail_drop(struct rp_error *error)
{
    return rp_fail(error, -RP_E_CONFIG, "index its shards with a mask, or leave drop_untrained out",
                   "drop_untrained: its shards have no mask, or mask: none was given");
}

void rp_span_list_release(struct rp_span_list *list)
{
    free(list->spans);
    *list = (struct rp_span_list){.spans = NULL};
}

int rp_span_list_add(struct rp_span_list *list, uint32_t token)
{
    struct rp_span *last = list->count > 0 ? &list->spans[list->count - 1] : NULL;
    if (last && last->end == token) {
        last->end++;
        return 0;
    }
    if (!RP_GROW(list->spans, list->capacity, list->count + 1))
        return -ENOMEM;
    list->spans[list->count++] = (struct rp_span){token, token + 1};
    return 0;
}

/* Entry i of a run of numbers, with its sign. */
static int64_t number_at(const uint8_t *numbers, enum rp_token_type type, uint32_t i)
{
    uint32_t width = rp_token_width(type), unused = 64 - 8 * width;
    uint64_t bits = 0;
    RP_ASSERT(width > 0 && width <= sizeof bits);
    memcpy(&bits, numbers + (size_t)i * width, width); /* little-endian */
    bits <<= unused;
    bool is_signed = rp_token_bits(type) % 8 != 0;
    return is_signed ? (int64_t)bits >> unused : (int64_t)(bits >> unused);
}

static int refuse_label(const struct rp_mask_document *document, uint32_t entry, int64_t expected,
                        int64_t found, struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT,
                   "a label is the token's own id or -100, not shifted: labels of other ids cannot "
                   "be kept as a mask; for labels of the next token give --mask-of next",
                   "%s: document %" PRIu64 ", label %" PRIu32 ": expected %" PRId64
                   " or -100, found %" PRId64,
                   document->path, document->number, entry, expected, found);
}

int rp_mask_spans(struct rp_span_list *list, const struct rp_mask_rule *rule,
                  const struct rp_mask_document *document, struct rp_error *error)
{
    list->count = 0;
    for (uint32_t i = 0; i + rule->of_next < document->count; i++) {
        uint32_t token = i + rule->of_next;
        int64_t entry = number_at(document->entries, document->entry_type, i);
        bool is_trained = (entry != 0) != rule->ignores;
        if (rule->is_labels) {
            int64_t id = number_at(document->tokens, document->token_type, token);
            is_trained = entry == id;
            if (!is_trained && entry != LABEL_IGNORED)
                return refuse_label(document, i, id, entry, error);
        }
        if (token > 0 && is_trained && rp_span_list_add(list, token) < 0)
            return rp_fail(error, -ENOMEM, NULL, "%s: out of memory for spans", document->path);
    }
    return 0;
}
