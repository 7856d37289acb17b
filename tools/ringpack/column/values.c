/* SPDX-License-Identifier: Apache-2.0 */
#include "column/values.h"

#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "convert/convert.h"

int rp_values_open(struct rp_values *values, const char *path,
                   const struct rp_values_choice *choice, struct rp_error *error)
{
    const struct rp_form *form = rp_form_of(path);
    bool is_table = !strcmp(form->name, "parquet") || !strcmp(form->name, "arrow") ||
                    !strcmp(form->name, "lance");
    bool is_lines = form->reading == RP_READ_JSONL || form->reading == RP_READ_JSON;
    *values = (struct rp_values){.path = path, .fd = -1};
    if (is_table || is_lines)
        return rp_values_open_lists(values, is_table ? form->name : "jsonl", choice, error);
    if (choice->type)
        return rp_fail(error, -RP_E_USAGE, "leave --type out",
                       "%s: expected a file of lists, as its values have a type", path);
    if (rp_text_has_suffix(path, ".npy"))
        return rp_values_open_npy(values, choice->bf16, error);
    if (rp_text_has_suffix(path, ".safetensors"))
        return rp_values_open_safetensors(values, choice->field, error);
    return rp_fail(error, -RP_E_FORMAT, "write the values as one of these",
                   "%s: expected a name that ends in .npy, .safetensors, .parquet, .arrow, .lance "
                   "or .jsonl (.gz, .zst)",
                   path);
}

void rp_values_close(struct rp_values *values)
{
    if (values->fd >= 0)
        close(values->fd);
    values->fd = -1;
}
