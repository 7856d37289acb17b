/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c — large files become several inputs, so that workers share them. A piece has the lines
 * of a plain JSONL file, or the row groups of a Parquet file, that begin within its bytes. Where
 * pieces begin depends only on sizes, so the documents and their order equal the whole file's. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "convert/convert.h"
#include "interrupt.h"

#define SCAN_BYTES (1u << 20)
#define PIECES_MAX 100000u

static bool is_gzip(const char *path)
{
    uint8_t magic[2] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool packed = fd < 0 || pread(fd, magic, sizeof magic, 0) != sizeof magic ||
                  (magic[0] == 0x1f && magic[1] == 0x8b);
    if (fd >= 0)
        close(fd);
    return packed;
}

static bool can_be_cut(const struct rp_input *input)
{
    bool lines = input->form->reading == RP_READ_JSONL || input->form->reading == RP_READ_JSON;
    if (input->url || input->is_folder)
        return false;
    if (lines)
        return !rp_text_has_suffix(input->path, ".zst") && !is_gzip(input->path);
    return !strcmp(input->form->name, "parquet");
}

static uint64_t pieces_of(const struct rp_input *input, uint64_t piece_bytes)
{
    uint64_t pieces = piece_bytes ? (input->bytes + piece_bytes - 1) / piece_bytes : 1;
    return pieces > 1 && can_be_cut(input) ? rp_min_u64(pieces, PIECES_MAX) : 1;
}

struct rp_input *rp_inputs_cut(const struct rp_inputs *inputs, uint64_t piece_bytes, size_t *count)
{
    size_t total = 0;
    uint64_t *pieces = rp_calloc(inputs->count, sizeof *pieces);
    for (size_t i = 0; pieces && i < inputs->count; i++) {
        pieces[i] = pieces_of(&inputs->files[i], piece_bytes);
        total += (size_t)pieces[i];
    }
    struct rp_input *cut = pieces ? rp_calloc(total, sizeof *cut) : NULL;
    *count = 0;
    for (size_t i = 0; cut && i < inputs->count; i++)
        for (uint64_t k = 0; k < pieces[i]; k++) {
            struct rp_input *piece = &cut[(*count)++];
            uint64_t each = (inputs->files[i].bytes + pieces[i] - 1) / pieces[i];
            *piece = inputs->files[i];
            if (pieces[i] == 1)
                continue;
            piece->begin = k * each;
            piece->end = rp_min_u64((k + 1) * each, piece->bytes);
            piece->bytes = piece->end - piece->begin;
        }
    free(pieces);
    return cut;
}

int rp_inputs_lines_before(const struct rp_input *input, uint64_t *lines, struct rp_error *error)
{
    char *buffer = malloc(SCAN_BYTES);
    int fd = rp_file_open_read(input->path, NULL, error), code = fd < 0 ? fd : 0;
    *lines = 0;
    if (code == 0 && !buffer)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", input->path);
    /* A line that begins before the piece ends in it, or at its first byte. */
    for (uint64_t at = 0; code == 0 && at < input->begin;) {
        size_t wanted = (size_t)rp_min_u64(SCAN_BYTES, input->begin - at);
        code = rp_file_read_at(fd, input->path, buffer, wanted, at, error);
        for (size_t i = 0; code == 0 && i < wanted; i++)
            *lines += buffer[i] == '\n';
        if (code == 0 && at + wanted == input->begin)
            *lines += buffer[wanted - 1] != '\n';
        at += wanted;
        code = code ? code : rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
    }
    if (fd >= 0)
        close(fd);
    free(buffer);
    return code;
}
