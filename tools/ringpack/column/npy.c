/* SPDX-License-Identifier: Apache-2.0 */
/* npy — .npy files (values.h). numpy writes the header always in one form, and no other is read, as
 * the reader of tokens does. */
#include "column/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"

#define HEADER_BYTES_MAX 4096u

static int fail_header(const char *path, const char *expected, const char *found,
                       struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT,
                   "save an array of one or two dimensions, a row for each token: "
                   "`np.save(path, np.ascontiguousarray(a.astype('<f4')))`; fields of a record "
                   "are columns of their own",
                   "%s: npy header: expected %s, found %.80s", path, expected, found);
}

static int take_type(struct rp_values *npy, const char *descr, bool bf16, uint32_t *width,
                     struct rp_error *error)
{
    if (rp_values_type(descr, bf16, &npy->type, width) && npy->type.dtype)
        return 0;
    if (*width)
        return rp_fail(error, -RP_E_FORMAT, "add --bf16 if they are bfloat16, as ml_dtypes saves",
                       "%s: values of two bytes without a type (%s)", npy->path, descr);
    return fail_header(npy->path, "a dtype of |u1, |i1, <u2, <i2, <i4, <i8, <f2, <f4 or <f8", descr,
                       error);
}

/* "(123,), }" or "(123, 4), }" after its bracket. */
static bool take_shape(const char *text, uint64_t *rows, uint32_t *count)
{
    int end = 0;
    *count = 1;
    if (sscanf(text, "%" SCNu64 ",), }%n", rows, &end) == 1 && end > 0)
        return true;
    return sscanf(text, "%" SCNu64 ", %" SCNu32 "), }%n", rows, count, &end) == 2 && end > 0 &&
           *count > 0;
}

static int parse_header(struct rp_values *npy, char *text, bool bf16, struct rp_error *error)
{
    static const char order[] = "False, 'shape': (";
    char descr[8];
    int used = 0;
    uint32_t width = 0;
    text[strcspn(text, "\n")] = 0;
    if (sscanf(text, "{'descr': '%7[^']', 'fortran_order': %n", descr, &used) != 1 || used == 0)
        return fail_header(npy->path, "{'descr': '…', 'fortran_order': …", text, error);
    int code = take_type(npy, descr, bf16, &width, error);
    if (code < 0)
        return code;
    const char *rest = text + used;
    if (strncmp(rest, order, sizeof order - 1) != 0)
        return fail_header(npy->path, "'fortran_order': False, 'shape': (", rest, error);
    rest += sizeof order - 1;
    if (!take_shape(rest, &npy->rows, &npy->type.count))
        return fail_header(npy->path, "one or two dimensions: (N,), } or (N, K), }", rest, error);
    return rp_values_set_width(npy, npy->type.count, width, error);
}

static int read_header(struct rp_values *npy, uint64_t file_bytes, bool bf16,
                       struct rp_error *error)
{
    uint8_t head[12];
    char text[HEADER_BYTES_MAX + 1];
    uint64_t bytes;
    int code = rp_file_read_at(npy->fd, npy->path, head, sizeof head, 0, error);
    if (code < 0)
        return code;
    if (memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3)
        return fail_header(npy->path, "the magic of numpy and version 1, 2 or 3", "others", error);
    uint32_t prefix = head[6] == 1 ? 10 : 12;
    uint32_t length = head[6] == 1 ? rp_load_u16(head + 8) : rp_load_u32(head + 8);
    if (length > HEADER_BYTES_MAX || prefix + length > file_bytes)
        return fail_header(npy->path, "a header of at most 4096 bytes inside the file",
                           "a longer one", error);
    code = rp_file_read_at(npy->fd, npy->path, text, length, prefix, error);
    text[length] = 0;
    if (code == 0)
        code = parse_header(npy, text, bf16, error);
    npy->at = prefix + length;
    if (code == 0 &&
        (!rp_mul_u64(npy->rows, npy->type.bytes, &bytes) || bytes != file_bytes - npy->at))
        code = rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: the header says %" PRIu64 " rows of %u bytes, found %" PRIu64
                       " bytes after it",
                       npy->path, npy->rows, npy->type.bytes, file_bytes - npy->at);
    return code;
}

int rp_values_open_npy(struct rp_values *npy, bool bf16, struct rp_error *error)
{
    uint64_t bytes = 0;
    npy->fd = rp_file_open_read(npy->path, &bytes, error);
    return npy->fd < 0 ? npy->fd : read_header(npy, bytes, bf16, error);
}
