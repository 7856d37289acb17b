/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/numpy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/file.h"

int rp_numpy_fail(const struct rp_numpy *npy, const char *expected, const char *found,
                  struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT, npy->hint, "%s: npy header: expected %s, found %.80s",
                   npy->path, expected, found);
}

static int take_type(struct rp_numpy *npy, struct rp_error *error)
{
    int used = 0;
    npy->text[strcspn(npy->text, "\n")] = 0;
    if (sscanf(npy->text, "{'descr': '%7[^']', 'fortran_order': %n", npy->descr, &used) != 1 ||
        used == 0)
        return rp_numpy_fail(npy, "{'descr': '…', 'fortran_order': …", npy->text, error);
    npy->rest = npy->text + used;
    return 0;
}

int rp_numpy_begin(struct rp_numpy *npy, int fd, const char *path, uint64_t file_bytes,
                   const char *hint, struct rp_error *error)
{
    uint8_t head[12];
    *npy = (struct rp_numpy){.path = path, .hint = hint, .file_bytes = file_bytes};
    int code = rp_file_read_at(fd, path, head, sizeof head, 0, error);
    if (code < 0)
        return code;
    uint8_t major = head[6];
    if (memcmp(head, RP_NUMPY_MAGIC, 6) != 0 || major < 1 || major > 3)
        return rp_numpy_fail(npy, "the magic of numpy and version 1, 2 or 3", "others", error);
    uint32_t prefix = major == 1 ? 10 : 12;
    uint32_t length = major == 1 ? rp_load_u16(head + 8) : rp_load_u32(head + 8);
    if (length > RP_NUMPY_HEADER_BYTES_MAX || prefix + length > file_bytes)
        return rp_numpy_fail(npy, "a header of at most 4096 bytes inside the file", "a longer one",
                             error);
    npy->at = prefix + length;
    code = rp_file_read_at(fd, path, npy->text, length, prefix, error);
    return code < 0 ? code : take_type(npy, error);
}

/* Read the number at *text, which moves behind it. False: no number. */
static bool take_size(const char **text, uint64_t *size, bool *fits)
{
    size_t digits = strspn(*text, "0123456789");
    *size = 0;
    for (const char *end = *text + digits; *text < end; (*text)++)
        *fits = *fits && rp_mul_u64(*size, 10, size) &&
                rp_add_u64(*size, (uint64_t)(**text - '0'), size);
    return digits > 0;
}

int rp_numpy_shape(const struct rp_numpy *npy, bool may_have_two, uint64_t shape[2],
                   struct rp_error *error)
{
    static const char order[] = "False, 'shape': (";
    const char *rest = npy->rest;
    if (strncmp(rest, order, sizeof order - 1) != 0)
        return rp_numpy_fail(npy, "'fortran_order': False, 'shape': (", rest, error);
    const char *sizes = rest += sizeof order - 1, *end = ",), }";
    bool fits = true, is_shape = take_size(&rest, &shape[0], &fits);
    shape[1] = 1;
    if (may_have_two && !strncmp(rest, ", ", 2)) {
        rest += 2;
        end = "), }";
        is_shape = is_shape && take_size(&rest, &shape[1], &fits) && shape[1] > 0;
    }
    if (!fits)
        return rp_numpy_fail(npy, "a size that fits 64 bits", sizes, error);
    size_t length = strlen(end);
    if (is_shape && !strncmp(rest, end, length) && !rest[length + strspn(rest + length, " ")])
        return 0;
    return rp_numpy_fail(npy,
                         may_have_two ? "one or two dimensions: (N,), } or (N, K), }"
                                      : "one dimension: (N,), }",
                         sizes, error);
}

int rp_numpy_check_size(const struct rp_numpy *npy, uint64_t count, const char *things,
                        uint32_t width, struct rp_error *error)
{
    uint64_t bytes, found = npy->file_bytes - npy->at;
    if (rp_mul_u64(count, width, &bytes) && bytes == found)
        return 0;
    return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                   "%s: the header says %" PRIu64 " %s of %u bytes, found %" PRIu64
                   " bytes after it",
                   npy->path, count, things, width, found);
}
