/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/byte_mask.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

const struct rp_companion rp_byte_masks_of_olmo[] = {
    {"token_ids", "labels_mask"}, {"input_ids", "label_mask"}, {NULL, NULL}};

/* A byte cannot hold the id of a token. */
static int check_origin(const struct rp_probe *probe, const struct rp_mask_origin *origin,
                        struct rp_error *error)
{
    return !origin->rule.is_labels
               ? 0
               : rp_fail(error, -RP_E_FORMAT,
                         "a mask of bytes says of each token whether it is trained: name it so",
                         "%s: mask `%s`: expected a mask, found the name of labels", probe->path,
                         origin->name);
}

int rp_byte_mask_find(struct rp_byte_mask *mask, struct rp_mask_file file,
                      const struct rp_probe *probe, const struct rp_mask_choice *choice,
                      struct rp_layout *layout, struct rp_error *error)
{
    if (!file.path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", probe->path);
    int code = 0;
    layout->has_spans = access(file.path, F_OK) == 0;
    if (layout->has_spans) {
        mask->path = file.path;
        code = rp_mask_origin(&layout->mask, file.name, choice, error);
        mask->rule = layout->mask.rule;
        return code < 0 ? code : check_origin(probe, &layout->mask, error);
    }
    if (!rp_mask_is_auto(choice))
        code = rp_fail(error, -RP_E_FORMAT, file.hint,
                       "%s: mask `%s`: expected %s, found no such file", probe->path, file.name,
                       file.path);
    free(file.path);
    return code;
}

int rp_byte_mask_find_olmo(struct rp_byte_mask *mask, const struct rp_probe *probe,
                           const struct rp_mask_choice *choice, struct rp_layout *layout,
                           struct rp_error *error)
{
    const char *base = rp_path_name(probe->path);
    const struct rp_companion *kind = rp_byte_masks_of_olmo;
    while (kind->cut && strncmp(base, kind->cut, strlen(kind->cut)) != 0)
        kind++;
    if (!kind->cut || rp_mask_is_none(choice))
        return 0;
    const char *name = rp_mask_is_auto(choice) ? kind->add : choice->name;
    const struct rp_mask_file file = {
        .path = rp_asprintf("%.*s%s%s", (int)(base - probe->path), probe->path, name,
                            base + strlen(kind->cut)),
        .name = name,
        .hint = "write the mask as a byte for each token, or set `mask: none` (--mask none)"};
    return rp_byte_mask_find(mask, file, probe, choice, layout, error);
}

static int fail_too_long_at_start(const struct rp_probe *probe, const struct rp_layout *layout,
                                  const char *path, uint64_t bytes, uint64_t bytes_max,
                                  struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint, "run `ringpack index --dtype %s --mask %s%s%s %s` once",
             rp_token_type_name(layout->type), RP_TEXT_SHELL_WORD(layout->mask.name),
             layout->mask.rule.ignores ? " --mask-value ignore" : "",
             layout->mask.rule.of_next ? " --mask-of next" : "", RP_HINT_PATH(probe->path));
    return rp_fail(error, -RP_E_FORMAT, hint,
                   "%s: too long to be read at every start: expected a sidecar, or at most %" PRIu64
                   " bytes, found %" PRIu64,
                   path, bytes_max, bytes);
}

int rp_byte_mask_open(struct rp_byte_mask *mask, const struct rp_probe *probe,
                      const struct rp_reader_options *options, const struct rp_layout *layout,
                      struct rp_error *error)
{
    if (!mask->path)
        return 0;
    uint64_t bytes, tokens = probe->bytes / rp_token_width(layout->type);
    int fd = rp_file_open_read(mask->path, &bytes, error);
    if (fd < 0)
        return fd;
    mask->file = (struct rp_buffered){.path = mask->path, .fd = fd, .file_bytes = bytes};
    if (bytes != tokens)
        return rp_fail(error, -RP_E_CORRUPT,
                       "copy or write both files again, or set `mask: none` (--mask none)",
                       "%s: expected a byte for each of the %" PRIu64
                       " tokens of %s, found %" PRIu64 " bytes",
                       mask->path, tokens, probe->path, bytes);
    return bytes <= options->read_bytes_max
               ? 0
               : fail_too_long_at_start(probe, layout, mask->path, bytes, options->read_bytes_max,
                                        error);
}

int rp_byte_mask_read(struct rp_byte_mask *mask, uint64_t document, uint64_t begin, uint64_t end,
                      struct rp_error *error)
{
    struct rp_mask_document entries = {.path = mask->path,
                                       .number = document,
                                       .entry_type = RP_TOKEN_U8,
                                       .count = (uint32_t)(end - begin)};
    if (!mask->path || end - begin > UINT32_MAX) /* the sink refuses the latter */
        return 0;
    int code = rp_buffered_view(&mask->file, begin, end - begin, &entries.entries, error);
    return code < 0 ? code : rp_mask_spans(&mask->spans, &mask->rule, &entries, error);
}

void rp_byte_mask_close(struct rp_byte_mask *mask)
{
    if (mask->file.fd >= 0)
        close(mask->file.fd);
    rp_buffered_release(&mask->file);
    rp_span_list_release(&mask->spans);
    free(mask->path);
}
