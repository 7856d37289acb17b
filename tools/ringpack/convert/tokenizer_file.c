/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_file.c — the word of --tokenizer: a tokenizer.json, the folder that has it, or bytes.
 */
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

int rp_tokenizer_identify(const char *name, struct rp_tokenizer_id *id, struct rp_error *error)
{
    char *made, *title = NULL;
    struct rp_hashed_file file = {.hash = rp_hash128(name, strlen(name))}; /* of `bytes` */
    int code = rp_tokenizer_find(&name, &made, error);
    if (code == 0 && strcmp(name, "bytes"))
        code = rp_hash_file(name, &file, error);
    *id = (struct rp_tokenizer_id){.hash = file.hash};
    if (code == 0) {
        title = rp_tokenizer_title(name);
        code = title ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    }
    if (title)
        rp_text_make_utf8(title);
    snprintf(id->name, sizeof id->name, "%s", title ? title : "");
    free(title);
    free(made);
    return code;
}
