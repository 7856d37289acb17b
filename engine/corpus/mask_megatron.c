/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/mask_megatron.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/stop.h"
#include "base/text.h"
#include "corpus/buffered.h"
#include "corpus/spanfile.h"

#define TEXT_SUFFIX "_text_document"
#define DOCUMENTS_PER_CHECK 1024u /* between checks whether the process is to end */

/* A token file that is read document by document. */
struct reading {
    const struct rp_opened *opened;
    struct rp_buffered file;
};

static struct reading begin_reading(const struct rp_opened *opened, int fd)
{
    return (struct reading){
        .opened = opened,
        .file = {.path = opened->shard.path, .fd = fd, .file_bytes = opened->shard.bytes}};
}

static int locate(const struct rp_opened *opened, uint64_t document, uint64_t *tokens,
                  uint64_t *byte, struct rp_error *error)
{
    const char *problem = rp_shard_locate(opened, document, tokens, byte);
    return problem ? rp_fail(error, -RP_E_CORRUPT, "write the shard again",
                             "%s: document %" PRIu64 ": %s", opened->found.index_path, document,
                             problem)
                   : 0;
}

/* The tokens of a document, and how many there are. */
static int get_document(struct reading *reading, uint64_t document, uint64_t *tokens,
                        const uint8_t **out, struct rp_error *error)
{
    uint64_t byte;
    int code = locate(reading->opened, document, tokens, &byte, error);
    return code < 0 ? code
                    : rp_buffered_view(&reading->file, byte,
                                       *tokens * rp_token_width(reading->opened->shard.type), out,
                                       error);
}

static int fail_length(const struct rp_opened *mask, const char *what, uint64_t expected,
                       uint64_t found, struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT, "a mask has the documents of its shard, token by token",
                   "%s: %s: expected %" PRIu64 ", as the shard has, found %" PRIu64,
                   mask->shard.path, what, expected, found);
}

static int add_document(struct reading *tokens, struct reading *entries, uint64_t document,
                        const struct rp_mask_rule *rule, struct rp_span_list *list,
                        struct rp_error *error)
{
    uint64_t token_count, entry_count;
    const uint8_t *token_bytes, *entry_bytes;
    int code = get_document(tokens, document, &token_count, &token_bytes, error);
    if (code == 0)
        code = get_document(entries, document, &entry_count, &entry_bytes, error);
    if (code < 0)
        return code;
    if (token_count > UINT32_MAX)
        return rp_fail(error, -RP_E_FORMAT, "split the document, or index it with --mask none",
                       "%s: document %" PRIu64 " has too many tokens for a mask",
                       tokens->opened->shard.path, document);
    if (token_count != entry_count) {
        char what[64];
        snprintf(what, sizeof what, "tokens of document %" PRIu64, document);
        return fail_length(entries->opened, what, token_count, entry_count, error);
    }
    const struct rp_mask_document both = {.path = entries->opened->shard.path,
                                          .number = document,
                                          .tokens = token_bytes,
                                          .entries = entry_bytes,
                                          .token_type = tokens->opened->shard.type,
                                          .entry_type = entries->opened->shard.type,
                                          .count = (uint32_t)token_count};
    return rp_mask_spans(list, rule, &both, error);
}

static int add_documents(struct reading *tokens, struct reading *entries,
                         const struct rp_mask_rule *rule, struct rp_collector *collector,
                         struct rp_error *error)
{
    const struct rp_opened *mask = entries->opened;
    struct rp_span_list list = {0};
    uint64_t documents = tokens->opened->shard.documents;
    int code = documents == mask->shard.documents
                   ? 0
                   : fail_length(mask, "documents", documents, mask->shard.documents, error);
    for (uint64_t d = 0; d < documents && code == 0; d++) {
        code = add_document(tokens, entries, d, rule, &list, error);
        if (code == 0 && d % DOCUMENTS_PER_CHECK == 0)
            code = rp_stop_check(error);
        if (code == 0)
            code = rp_collector_add_spans(collector, list.spans, list.count, error);
    }
    rp_span_list_release(&list);
    rp_buffered_release(&tokens->file);
    rp_buffered_release(&entries->file);
    return code;
}

char *rp_megatron_mask_prefix(const char *path, const char *name)
{
    size_t stem = rp_text_stem(path, ".bin");
    size_t suffix = strlen(TEXT_SUFFIX);
    if (stem > suffix && !strncmp(path + stem - suffix, TEXT_SUFFIX, suffix))
        return rp_asprintf("%.*s_%s_document", (int)(stem - suffix), path, name);
    return rp_asprintf("%.*s_%s", (int)stem, path, name);
}

static int add_mask(const struct rp_opened *opened, int fd, const char *prefix,
                    struct rp_collector *collector, const struct rp_mask_origin *origin,
                    struct rp_error *error)
{
    static const struct rp_source_spec megatron = {.format = RP_FORMAT_MEGATRON,
                                                   .eos = RP_EOS_NONE};
    const struct rp_find_options options = {.hints = &megatron, .replacing_sidecar = true};
    struct rp_opened mask;
    int mask_fd;
    int code = rp_shard_open_for_index(&mask, prefix, &options, &mask_fd, error);
    if (code < 0)
        return code;
    struct reading tokens = begin_reading(opened, fd), entries = begin_reading(&mask, mask_fd);
    code = add_documents(&tokens, &entries, &origin->rule, collector, error);
    close(mask_fd);
    rp_shard_close(&mask);
    return code < 0 ? code : 1;
}

static int copy_spans(const struct rp_opened *opened, struct rp_spanfile *file,
                      struct rp_collector *collector, struct rp_error *error)
{
    int code = 0;
    for (uint64_t d = 0; d < opened->shard.documents && code == 0; d++) {
        const struct rp_span *spans;
        uint32_t count = 0;
        uint64_t tokens, byte;
        code = locate(opened, d, &tokens, &byte, error);
        if (code == 0)
            code = rp_spanfile_next(file, tokens, &spans, &count, error);
        if (code == 0 && d % DOCUMENTS_PER_CHECK == 0)
            code = rp_stop_check(error);
        if (code == 0)
            code = rp_collector_add_spans(collector, spans, count, error);
    }
    return code < 0 ? code : rp_spanfile_end(file, error);
}

/* The span file of `ringpack convert`. 1: its spans are added. 0: no such file, or another mask is
 * wanted. */
static int add_spanfile(const struct rp_opened *opened, const struct rp_mask_choice *choice,
                        struct rp_collector *collector, struct rp_mask_origin *origin,
                        struct rp_error *error)
{
    struct rp_spanfile file;
    char *path = rp_spanfile_path(opened->shard.path);
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", opened->shard.path);
    int code = rp_spanfile_open(&file, path, error);
    bool is_wanted = rp_mask_is_auto(choice) || !strcmp(choice->name, file.origin.name);
    if (code == 1 && is_wanted) {
        *origin = file.origin;
        code = rp_mask_check(choice, origin, path, error);
        if (code == 0)
            code = copy_spans(opened, &file, collector, error);
        code = code < 0 ? code : 1;
    } else if (code == 1) {
        code = 0;
    }
    rp_spanfile_close(&file);
    free(path);
    return code;
}

int rp_megatron_mask(const struct rp_opened *opened, int fd, struct rp_collector *collector,
                     struct rp_mask_origin *origin, struct rp_error *error)
{
    const struct rp_mask_choice *choice = &opened->found.mask;
    bool is_auto = rp_mask_is_auto(choice);
    const char *name = is_auto ? "label" : choice->name;
    if (rp_mask_is_none(choice))
        return 0;
    int code = add_spanfile(opened, choice, collector, origin, error);
    if (code != 0)
        return code;
    code = rp_mask_origin(origin, name, choice, error);
    if (code < 0)
        return code;
    char *prefix = rp_megatron_mask_prefix(opened->shard.path, name);
    if (!prefix)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", opened->shard.path);
    bool is_there = rp_path_exists("%s.idx", prefix);
    if (is_there && (!is_auto || rp_text_has_suffix(prefix, "_document")))
        code = add_mask(opened, fd, prefix, collector, origin, error);
    else if (!is_auto)
        code = rp_fail(error, -RP_E_FORMAT,
                       "write the mask as a shard of its own, with the same documents",
                       "%s: mask `%s`: expected %s.bin and .idx, found none", opened->shard.path,
                       name, prefix);
    free(prefix);
    return code;
}
