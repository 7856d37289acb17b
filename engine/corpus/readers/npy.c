/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c — a true numpy .npy file of one dimension (corpus/numpy.h). */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "corpus/numpy.h"
#include "corpus/readers/eos_walk.h"

static const struct {
    const char *descr;
    enum rp_token_type type;
} types[] = {
    {"|u1", RP_TOKEN_U8},  {"<u2", RP_TOKEN_U16}, {"<u4", RP_TOKEN_U32},
    {"<i4", RP_TOKEN_I32}, {"<i8", RP_TOKEN_I64},
};

static int read_header(const struct rp_probe *probe, struct rp_layout *layout,
                       struct rp_error *error)
{
    static const char hint[] =
        "save a flat array of u1, u2, u4, i4 or i8: `np.save(path, a.ravel().astype('<u2'))`";
    struct rp_numpy npy;
    uint64_t shape[2];
    int code = rp_numpy_begin(&npy, probe->fd, probe->path, probe->bytes, hint, error);
    if (code < 0)
        return code;
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++)
        if (!strcmp(npy.descr, types[i].descr))
            layout->type = types[i].type;
    if (layout->type == RP_TOKEN_NONE)
        return rp_numpy_fail(&npy, "a dtype of |u1, <u2, <u4, <i4 or <i8", npy.descr, error);
    code = rp_numpy_shape(&npy, false, shape, error);
    if (code < 0)
        return code;
    layout->token_offset = npy.at;
    uint32_t width = rp_token_width(layout->type);
    if (npy.at % width != 0)
        return rp_numpy_fail(&npy, "a header that ends at a multiple of the dtype",
                             "another length", error);
    return rp_numpy_check_size(&npy, shape[0], "tokens", width, error);
}

static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    snprintf(why, 256, "it begins with the magic of a numpy .npy file");
    if (!memcmp(probe->head, RP_NUMPY_MAGIC, 6))
        return 1;
    if (!probe->is_declared)
        return 0;
    return rp_readers_refuse(probe, "no numpy header, though it was declared npy",
                             "OLMo's .npy files have none: declare them olmo if a .csv.gz is next "
                             "to them, else raw, with dtype and eos",
                             error);
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    struct rp_layout layout = {.eos = options->eos};
    int code = read_header(probe, &layout, error);
    if (code == 0)
        code = rp_readers_check_type(probe->path, options->type, layout.type, error);
    return code < 0 ? code : rp_eos_walk(probe, &layout, false, options, sink, error);
}

const struct rp_reader rp_reader_npy = {
    .format = RP_FORMAT_NPY,
    .title = "a numpy .npy file",
    .reads_tokens = true,
    .holds_no_mask = true,
    .claim = claim,
    .walk = walk,
};
