/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c — .npy files (values.h). */
#include <string.h>

#include "base/bits.h"
#include "base/file.h"
#include "column/values.h"
#include "convert/value_type.h"
#include "corpus/numpy.h"

#define HINT                                                                                       \
    "save an array of one or two dimensions, a row for each token: `np.save(path, "                \
    "np.ascontiguousarray(a.astype('<f4')))`; fields of a record are columns of their own"

static int take_type(struct rp_values *values, const struct rp_numpy *npy, bool bf16,
                     uint32_t *width, struct rp_error *error)
{
    static const char *const raw[] = {"<u2", "<i2", "<V2", "|V2"}; /* may be bits of bfloat16 */
    bool is_raw = false;
    for (size_t i = 0; i < RP_ARRAY_COUNT(raw); i++)
        is_raw = is_raw || !strcmp(npy->descr, raw[i]);
    if (bf16 && !is_raw)
        return rp_fail(error, -RP_E_FORMAT, "leave --bf16 out",
                       "%s: --bf16 is for values of two bytes without a type of their own, found "
                       "%s",
                       npy->path, npy->descr);
    if (rp_value_type(npy->descr, bf16, &values->type, width) && values->type.dtype)
        return 0;
    if (*width)
        return rp_fail(error, -RP_E_FORMAT, "add --bf16 if they are bfloat16, as ml_dtypes saves",
                       "%s: values of two bytes without a type (%s)", npy->path, npy->descr);
    return rp_numpy_fail(npy, "a dtype of |u1, |i1, <u2, <i2, <i4, <i8, <f2, <f4 or <f8",
                         npy->descr, error);
}

int rp_values_open_npy(struct rp_values *values, bool bf16, struct rp_error *error)
{
    struct rp_numpy npy;
    uint64_t bytes = 0, shape[2];
    uint32_t width = 0;
    values->fd = rp_file_open_read(values->path, &bytes, error);
    int code = values->fd < 0 ? values->fd
                              : rp_numpy_begin(&npy, values->fd, values->path, bytes, HINT, error);
    if (code == 0)
        code = take_type(values, &npy, bf16, &width, error);
    if (code == 0)
        code = rp_numpy_shape(&npy, true, shape, error);
    if (code == 0)
        code = rp_value_type_repeat(&values->type, (uint32_t)rp_min_u64(shape[1], UINT32_MAX),
                                    width, values->path, error);
    if (code < 0)
        return code;
    values->rows = shape[0];
    values->at = npy.at;
    return rp_numpy_check_size(&npy, values->rows, "rows", values->type.bytes, error);
}
