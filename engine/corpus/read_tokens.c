/* SPDX-License-Identifier: Apache-2.0 */
/* read_tokens — one pass over a token file, in pieces that stay in the cache while they are hashed
 * and scanned. It reads and does not map: a file that is truncated meanwhile is an error and no
 * signal. */
#include <errno.h>
#include <fcntl.h>

#include "base/bits.h"
#include "base/mem.h"
#include "corpus/document_scan.h"
#include "corpus/shard.h"

static int read_pieces(const struct rp_opened *opened, int fd, struct rp_document_scan *scan,
                       uint8_t *piece_bytes, uint64_t *starts, rp_piece_function piece,
                       void *context, const struct rp_progress *progress, struct rp_error *error)
{
    uint64_t total = opened->shard.bytes;
    uint32_t width = rp_token_width(opened->shard.type);
    for (uint64_t done = 0; done < total;) {
        size_t length = (size_t)rp_min_u64(RP_DOCUMENT_SCAN_BYTES, total - done);
        int code = rp_file_read_at(fd, opened->found.token_path, piece_bytes, length, done, error);
        if (code < 0)
            return code;
        size_t skip = done < opened->token_offset
                          ? (size_t)rp_min_u64(length, opened->token_offset - done)
                          : 0;
        size_t count = rp_document_scan_add(scan, piece_bytes + skip, (length - skip) / width,
                                            starts);
        done += length;
        if (done == total)
            count += rp_document_scan_finish(scan, starts + count);
        code = piece(context, piece_bytes, length, starts, count, error);
        if (code < 0)
            return code;
        if (progress && progress->report)
            progress->report(progress->context, done, total);
    }
    return 0;
}

int rp_tokens_read(const struct rp_opened *opened, int fd, struct rp_document_scan *scan,
                   rp_piece_function piece, void *context, const struct rp_progress *progress,
                   struct rp_error *error)
{
    /* Every token of a piece may be an EOS, and the first and the last entry come on top. */
    size_t bytes_max = (size_t)rp_align_up(rp_min_u64(opened->shard.bytes, RP_DOCUMENT_SCAN_BYTES),
                                           RP_BLOCK_BYTES);
    size_t starts_max = bytes_max / rp_token_width(opened->shard.type) + 2;
    uint8_t *piece_bytes = rp_calloc_aligned(RP_BLOCK_BYTES, bytes_max);
    uint64_t *starts = malloc(starts_max * sizeof *starts);
    int code = 0;
    if (!piece_bytes || !starts) {
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to scan it", opened->found.token_path);
    } else {
        posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        code = read_pieces(opened, fd, scan, piece_bytes, starts, piece, context, progress, error);
    }
    free(starts);
    free(piece_bytes);
    return code;
}
