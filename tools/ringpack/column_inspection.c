/* SPDX-License-Identifier: Apache-2.0 */
#include "column_inspection.h"

#include <stdio.h>

#include "cmd.h"
#include "corpus/side_file.h"
#include "inspection.h"

static void print(const struct rp_side_file *file, bool is_scanned)
{
    char type[RP_SIDE_TYPE_BYTES], a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES];
    char hex[RP_HASH_HEX_BYTES], tokenizer[RP_TOKENIZER_TEXT_BYTES];
    rp_sidefile_type_text(&file->type, type);
    printf("%s\n  what         a side column, %s\n", file->path, type);
    printf("  entries      %s in %s\n", rp_cmd_count_text(file->entries, a),
           rp_cmd_bytes_text(file->map.bytes, b));
    printf("  tokenizer    %s\n", rp_ids_tokenizer_text(&file->tokenizer, tokenizer));
    printf("  content      %s, %s\n", rp_hash128_hex(file->content, hex),
           is_scanned ? "and every block has its hash"
                      : "its blocks were not compared (--scan does)");
}

static json_t *to_json(const struct rp_side_file *file, bool is_scanned)
{
    char hex[RP_HASH_HEX_BYTES];
    return json_pack(
        "{s:o, s:s, s:s, s:I, s:I, s:I, s:o, s:b, s:s}", "path", rp_cmd_json_text(file->path),
        "format", "column", "dtype", rp_sidefile_dtype_name(file->type.dtype), "values",
        (json_int_t)file->type.count, "entries", (json_int_t)file->entries, "bytes",
        (json_int_t)file->map.bytes, "tokenizer", rp_inspection_tokenizer(&file->tokenizer),
        "scanned", is_scanned, "content", rp_hash128_hex(file->content, hex));
}

int rp_cmd_inspect_column(const char *path, bool scan, bool json, json_t *list)
{
    struct rp_side_file file;
    struct rp_error error;
    int code = rp_sidefile_open_path(&file, path, &error);
    if (code == 0 && scan)
        code = rp_sidefile_verify(&file, &error);
    if (code == 0 && json)
        json_array_append_new(list, to_json(&file, scan));
    else if (code == 0)
        print(&file, scan);
    rp_sidefile_close(&file);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}
