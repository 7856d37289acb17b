/* SPDX-License-Identifier: Apache-2.0 */
/* datatrove.c — the files of datatrove's tokenizer, which nanotron reads:
 *
 *     NAME.ds           bare tokens, u16 or u32
 *     NAME.ds.index     u64 ends[documents], in tokens
 *     NAME.ds.metadata  text: TOKENIZER|bytes of a token, tokens, and a number for people
 *     NAME.ds.loss      a mask, one byte for each token: 0 = not trained. May be missing
 *
 * The mask is read once, into spans, in the order of the documents. The width of a token is in the
 * metadata and nowhere else. A .ds has no magic, so it is recognised by its name and its .index. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/byte_mask.h"

#define METADATA_BYTES_MAX 4096u
#define LOSS "loss"

static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    (void)error;
    snprintf(why, 256, "it is a .ds with its .index next to it");
    if (probe->is_declared || !rp_text_has_suffix(probe->path, ".ds"))
        return probe->is_declared;
    return rp_path_exists("%s.index", probe->path);
}

static int expand(const struct rp_folder *folder, struct rp_paths *files, struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < folder->names.count; i++)
        if (rp_text_has_suffix(folder->names.paths[i], ".ds"))
            code = rp_folder_add(folder, folder->names.paths[i], files, error);
    return code < 0 ? code : files->count > 0;
}

/* The type of a token: from the metadata, or as declared without it. */
static int find_type(const struct rp_probe *probe, const struct rp_reader_options *options,
                     enum rp_token_type *type, struct rp_error *error)
{
    char *text = NULL, *name = rp_asprintf("%s.metadata", probe->path);
    size_t bytes;
    if (!name)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", probe->path);
    *type = options->type;
    int code = rp_file_read_all(name, METADATA_BYTES_MAX, &text, &bytes, error);
    if (code == -ENOENT)
        code = *type != RP_TOKEN_NONE
                   ? 0
                   : rp_fail(error, -RP_E_FORMAT, "declare the dtype: u16 or u32 (--dtype)",
                             "%s: expected the width of a token, found no such file", name);
    if (text) {
        text[strcspn(text, "\n")] = '\0';
        const char *bar = strrchr(text, '|'); /* the tokenizer's name may have one */
        *type = !bar                    ? RP_TOKEN_NONE
                : !strcmp(bar + 1, "2") ? RP_TOKEN_U16
                : !strcmp(bar + 1, "4") ? RP_TOKEN_U32
                                        : RP_TOKEN_NONE;
        if (*type == RP_TOKEN_NONE)
            code = rp_fail(error, -RP_E_FORMAT, "write the dataset again",
                           "%s: first line: expected TOKENIZER|2 or TOKENIZER|4, found `%.80s`",
                           name, text);
    }
    free(text);
    free(name);
    return code;
}

static int fail_ends(const char *name, uint64_t document, uint64_t end, uint64_t least,
                     uint64_t most, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT,
                   "the .ds and its .index do not belong together, or one was cut short: copy or "
                   "write both again",
                   "%s: end of document %" PRIu64 ": expected %" PRIu64 " to %" PRIu64
                   " tokens, found %" PRIu64,
                   name, document, least, most, end);
}

/* ---- the mask -------------------------------------------------------------------------------- */

/* Set the path and the layout of the mask, if one is wanted and exists. */
static int find_loss(const struct rp_probe *probe, const struct rp_mask_choice *choice,
                     struct rp_byte_mask *loss, struct rp_layout *layout, struct rp_error *error)
{
    if (rp_mask_is_none(choice))
        return 0;
    if (!rp_mask_is_auto(choice) && strcmp(choice->name, LOSS) != 0)
        return rp_fail(error, -RP_E_FORMAT, "set `mask:` (--mask) to " LOSS ", auto or none",
                       "%s: mask `%s`: expected " LOSS ", the mask of datatrove: %s." LOSS,
                       probe->path, choice->name, probe->path);
    const struct rp_mask_file file = {
        .path = rp_asprintf("%s." LOSS, probe->path),
        .name = LOSS,
        .hint =
            "write the dataset with save_loss_metadata=True, or set `mask: none` (--mask none)"};
    return rp_byte_mask_find(loss, file, probe, choice, layout, error);
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Emit a document for each end. The last one is the end of the file. */
static int emit(const struct rp_probe *probe, struct rp_buffered *ends, struct rp_byte_mask *loss,
                struct rp_sink *sink, struct rp_error *error)
{
    const char *name = ends->path;
    uint32_t width = rp_token_width(sink->layout.type);
    uint64_t begin = 0, all = probe->bytes / width, documents = ends->file_bytes / 8;
    int code = 0;
    for (uint64_t d = 0; code == 0 && d < documents; d++) {
        const uint8_t *bytes;
        code = rp_buffered_view(ends, 8 * d, 8, &bytes, error);
        uint64_t end = code == 0 ? rp_load_u64(bytes) : 0;
        if (code == 0 && (end < begin || end > all || (d + 1 == documents && end != all)))
            code = fail_ends(name, d, end, d + 1 == documents ? all : begin, all, error);
        if (code == 0)
            code = rp_byte_mask_read(loss, d, begin, end, error);
        if (code == 0)
            code = rp_sink_document(sink, begin * width, end - begin, loss->spans.spans,
                                    loss->spans.count, error);
        begin = end;
    }
    if (code == 0 && documents == 0 && all > 0)
        return rp_fail(
            error, -RP_E_CORRUPT, "the .index was cut short: copy or write both files again",
            "%s: expected the ends of documents with %" PRIu64 " tokens, found none", name, all);
    return code;
}

static int walk_index(const struct rp_probe *probe, const char *name, struct rp_byte_mask *loss,
                      struct rp_sink *sink, struct rp_error *error)
{
    struct rp_buffered ends = {.path = name};
    int fd = ends.fd = rp_file_open_read(name, &ends.file_bytes, error);
    if (fd < 0)
        return fd;
    int code = ends.file_bytes % 8 == 0
                   ? emit(probe, &ends, loss, sink, error)
                   : rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                             "%s: expected a multiple of 8 bytes, found %" PRIu64, name,
                             ends.file_bytes);
    rp_buffered_release(&ends);
    close(fd);
    return code;
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    struct rp_layout layout = {.eos = RP_EOS_NONE};
    struct rp_byte_mask loss = RP_BYTE_MASK_NONE;
    int code = find_type(probe, options, &layout.type, error);
    if (code == 0)
        code = find_loss(probe, &options->mask, &loss, &layout, error);
    if (code == 0)
        code = rp_sink_begin(sink, &layout, options, error);
    if (code == 0)
        code = rp_readers_check_width(probe, layout.type, error);
    if (code == 0)
        code = rp_byte_mask_open(&loss, probe, options, &layout, error);
    char *name = rp_asprintf("%s.index", probe->path);
    if (code == 0 && !name)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", probe->path);
    if (code == 0)
        code = walk_index(probe, name, &loss, sink, error);
    free(name);
    rp_byte_mask_close(&loss);
    return code;
}

static const struct rp_companion companions[] = {
    {".ds", ".ds.index"}, {".ds", ".ds.metadata"}, {".ds", ".ds." LOSS}, {NULL, NULL}};

const struct rp_reader rp_reader_datatrove = {
    .format = RP_FORMAT_DATATROVE,
    .title = "a .ds of datatrove",
    .folders = "*.ds (datatrove)",
    .claims_by_name = true,
    .companions = companions,
    .claim = claim,
    .expand = expand,
    .walk = walk,
};
