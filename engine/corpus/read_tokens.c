/* SPDX-License-Identifier: Apache-2.0 */
/* read_tokens.c — one pass over a token file, in pieces that stay in the cache while they are
 * hashed and scanned. It reads and does not map: a file that is truncated is an error and no
 * signal. */
#include <errno.h>
#include <fcntl.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/stop.h"
#include "corpus/document_scan.h"
#include "corpus/shard.h"

/* Scan the tokens of a piece. Returns the number of starts. */
static size_t scan_piece(const struct rp_token_pass *pass, const uint8_t *bytes, size_t length,
                         uint64_t done, uint64_t *starts)
{
    const struct rp_layout *layout = pass->layout;
    struct rp_document_scan *scan = pass->scan;
    if (!scan)
        return 0;
    size_t skip = done < layout->token_offset
                      ? (size_t)rp_min_u64(length, layout->token_offset - done)
                      : 0;
    size_t tokens = (length - skip) / rp_token_width(layout->type);
    size_t count = rp_document_scan_add(scan, bytes + skip, tokens, starts);
    bool is_last = done + length == pass->probe->bytes;
    return is_last ? count + rp_document_scan_finish(scan, starts + count) : count;
}

static int read_pieces(const struct rp_token_pass *pass, uint8_t *bytes, uint64_t *starts,
                       struct rp_error *error)
{
    const struct rp_probe *probe = pass->probe;
    for (uint64_t done = 0; done < probe->bytes;) {
        size_t length = (size_t)rp_min_u64(RP_DOCUMENT_SCAN_BYTES, probe->bytes - done);
        int code = rp_stop_check(error);
        if (code == 0)
            code = rp_file_read_at(probe->fd, probe->path, bytes, length, done, error);
        if (code < 0)
            return code;
        size_t count = scan_piece(pass, bytes, length, done, starts);
        done += length;
        code = pass->piece(pass->context, bytes, length, starts, count, error);
        if (code < 0)
            return code;
        rp_progress_report(pass->progress, done, probe->bytes);
    }
    return 0;
}

int rp_tokens_read(const struct rp_token_pass *pass, struct rp_error *error)
{
    const struct rp_probe *probe = pass->probe;
    /* Every token of a piece may be an EOS, and the first and the last entry come on top. */
    size_t bytes_max = (size_t)rp_align_up(rp_min_u64(probe->bytes, RP_DOCUMENT_SCAN_BYTES),
                                           RP_BLOCK_BYTES);
    size_t starts_max = pass->scan ? bytes_max / rp_token_width(pass->layout->type) + 2 : 1;
    uint8_t *bytes = rp_calloc_aligned(RP_BLOCK_BYTES, bytes_max);
    uint64_t *starts = malloc(starts_max * sizeof *starts);
    int code = 0;
    if (!bytes || !starts) {
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to scan it", probe->path);
    } else {
        posix_fadvise(probe->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        code = read_pieces(pass, bytes, starts, error);
    }
    free(starts);
    free(bytes);
    return code;
}
