/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_file.c — what --tokenizer names: a tokenizer.json, the folder that has it, or bytes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "convert/convert.h"

int rp_tokenizer_find(const char **name, char **made, struct rp_error *error)
{
    struct stat info;
    *made = NULL;
    if (!strcmp(*name, "bytes") || stat(*name, &info) < 0 || !S_ISDIR(info.st_mode))
        return 0;
    size_t length = strlen(*name);
    while (length > 1 && (*name)[length - 1] == '/')
        length--;
    *made = rp_asprintf("%.*s/tokenizer.json", (int)length, *name);
    if (!*made)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    *name = *made;
    if (access(*made, F_OK) == 0)
        return 0;
    return rp_fail(error, -errno, "save_pretrained() of a fast tokenizer writes it",
                   "%s: expected the folder of a tokenizer, found no tokenizer.json", *made);
}

char *rp_tokenizer_title(const char *path)
{
    const char *end = path + strlen(path), *usual = "/tokenizer.json";
    if (rp_text_has_suffix(path, usual) && end - path > (ptrdiff_t)strlen(usual))
        end -= strlen(usual);
    const char *begin = end;
    while (begin > path && begin[-1] != '/')
        begin--;
    return rp_asprintf("%.*s", (int)(end - begin), begin);
}
