/* SPDX-License-Identifier: Apache-2.0 */
/* hashed_file.c — the size and the hash of a whole file: of a part, or of a tokenizer. */
#include "base/file.h"
#include "convert/convert.h"

int rp_hash_file(const char *path, struct rp_hashed_file *file, struct rp_error *error)
{
    struct rp_map map;
    int code = rp_map_open(&map, path, error);
    if (code < 0)
        return code;
    *file = (struct rp_hashed_file){map.bytes, rp_hash128(map.data, (size_t)map.bytes)};
    rp_map_close(&map);
    return 0;
}
