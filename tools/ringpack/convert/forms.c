/* SPDX-License-Identifier: Apache-2.0 */
/* forms.c — the table of forms. Those that a worker reads are in
 * tools/python/ringpack/_convert/readers.py under the same names. */
#include <string.h>

#include "base/bits.h"
#include "base/text.h"
#include "convert/convert.h"

#define PICKLE "a pickle runs whatever program it holds when it is loaded, so it never is"

static const struct rp_form forms[] = {
    {"text", RP_READ_TEXT, {NULL}, NULL, NULL},
    {"levanter", RP_READ_WORKER, {"_ledger.json"}, NULL, NULL}, /* its folder's, before .json */
    {"jsonl",
     RP_READ_JSONL,
     {".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst"},
     NULL,
     NULL},
    {"jsonl", RP_READ_JSON, {".json", ".json.gz", ".json.zst"}, NULL, NULL},
    {"megatron", RP_READ_MEGATRON, {".idx"}, NULL, NULL},
    {"parquet", RP_READ_WORKER, {".parquet", ".pq"}, NULL, NULL},
    {"arrow", RP_READ_WORKER, {".arrow", ".feather", ".ipc"}, NULL, NULL},
    {"mds",
     RP_READ_WORKER,
     {".mds", ".mds.zstd", ".mds.gz", ".mds.br", ".mds.snappy"},
     ".mds.zstd:", /* and the level */
     NULL},
    {"litdata", RP_READ_WORKER, {".zstd.bin", ".gzip.bin"}, NULL, NULL},
    {"hdf5", RP_READ_WORKER, {".h5", ".hdf5"}, NULL, NULL},
    {"tar", RP_READ_WORKER, {".tar", ".tar.gz", ".tgz"}, NULL, NULL},
    {"tfrecord",
     RP_READ_WORKER,
     {".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz"},
     ".tfrecord-",
     NULL},
    {"arrayrecord", RP_READ_WORKER, {".array_record", ".arrayrecord"}, ".array_record-", NULL},
    {"lance", RP_READ_WORKER, {".lance"}, NULL, NULL},
    {"pickle", RP_READ_REFUSED, {".pkl", ".pickle", ".pt", ".pth"}, NULL, PICKLE},
    {"npy",
     RP_READ_REFUSED,
     {".npy", ".npz"},
     NULL,
     "a .npy file of ids is read in place (`ringpack index FILE`), and one of Python objects is a "
     "pickle, which is never loaded"},
};

const struct rp_form *rp_form_of(const char *path)
{
    const char *name = rp_path_name(path);
    for (size_t i = 0; i < RP_ARRAY_COUNT(forms); i++) {
        const struct rp_form *form = &forms[i];
        for (size_t k = 0; k < RP_ARRAY_COUNT(form->suffixes) && form->suffixes[k]; k++)
            if (rp_text_has_suffix(name, form->suffixes[k]))
                return form;
        if (form->infix && strstr(name, form->infix))
            return form;
    }
    return &forms[0];
}

const struct rp_form *rp_form_named(const char *name)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(forms); i++)
        if (forms[i].reading != RP_READ_REFUSED && !strcmp(forms[i].name, name))
            return &forms[i];
    return NULL;
}
