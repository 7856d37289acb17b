/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/wanted.h"

#include <string.h>

#include "cmd.h"
#include "corpus/side_file.h"

bool rp_wanted_take(struct rp_column_wanted *wanted, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || equals[1] == 0)
        return false;
    wanted->name = strdup(text);
    if (!wanted->name)
        return false;
    wanted->place = wanted->name + (equals - text) + 1;
    wanted->place[-1] = 0;
    return true;
}

void rp_wanted_cut(struct rp_column_wanted *wanted)
{
    char *colon = strrchr(wanted->place, ':');
    if (!colon || colon == wanted->place || colon[1] == 0)
        return;
    *colon = 0;
    wanted->detail = colon + 1;
}

int rp_wanted_check_name(const char *verb, const char *name)
{
    if (rp_sidefile_is_name(name))
        return RP_EXIT_FINE;
    return rp_cmd_misuse(verb,
                         "column `%.60s`: expected a small letter or `_`, then small letters, "
                         "digits or `_`, at most 31 bytes, and no name of a section or of a "
                         "profile's field",
                         name);
}

uint32_t rp_wanted_dtype(const char *type)
{
    static const uint32_t dtypes[] = {RP_DTYPE_U8,  RP_DTYPE_I8,  RP_DTYPE_U16,
                                      RP_DTYPE_I16, RP_DTYPE_I32, RP_DTYPE_I64,
                                      RP_DTYPE_F16, RP_DTYPE_F32, RP_DTYPE_F64};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(type, rp_sidefile_dtype_name(dtypes[i])))
            return dtypes[i];
    return RP_DTYPE_NONE;
}
