/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/encoded.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"

static const struct rp_encoded forms[] = {
    {"parquet", "Parquet", {".parquet", ".pq"}, false},
    {"jsonl",
     "JSON lines",
     {".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst"},
     true},
    {"hdf5", "HDF5", {".h5", ".hdf5"}, false},
    {"tar", "WebDataset", {".tar", ".tar.gz", ".tgz"}, true},
    {"tfrecord", "TFRecord", {".tfrecord", ".tfrecords", ".tfrecord.gz"}, false},
    {"arrayrecord", "ArrayRecord", {".array_record", ".arrayrecord"}, false},
    {"lance", "Lance", {".lance"}, false},
    {"levanter", "a cache of levanter", {"_ledger.json"}, false},
    {"arrow", "Feather", {".feather"}, false},
    {"mds", "compressed MDS", {".mds.zstd", ".mds.gz", ".mds.br", ".mds.snappy"}, false},
};

const struct rp_encoded *rp_encoded_of(const char *path)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(forms); i++)
        for (const char *const *suffix = forms[i].suffixes; *suffix; suffix++)
            if (rp_text_has_suffix(path, *suffix))
                return &forms[i];
    return NULL;
}

const struct rp_encoded *rp_encoded_named(const char *name)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(forms); i++)
        if (!strcmp(forms[i].name, name))
            return &forms[i];
    return NULL;
}

void rp_encoded_hint(const struct rp_encoded *encoded, const char *path, char *hint, size_t bytes)
{
    snprintf(
        hint, bytes,
        encoded->has_text
            ? "convert it once (for text, add --tokenizer FILE): `ringpack convert -o PREFIX %s`"
            : "convert it once: `ringpack convert --no-append-eos -o PREFIX %s`, or with "
              "--eos ID where documents do not end with one; of text, with --tokenizer FOLDER and "
              "neither",
        RP_HINT_PATH(path));
}

int rp_encoded_refuse(const struct rp_encoded *encoded, const char *path, bool is_folder,
                      struct rp_error *error)
{
    char hint[sizeof error->hint];
    rp_encoded_hint(encoded, path, hint, sizeof hint);
    return rp_fail(error, -RP_E_FORMAT, hint,
                   "%s: expected %s of tokens that can be read in place, found %s", path,
                   is_folder ? "files" : "a file", encoded->title);
}
