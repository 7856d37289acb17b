/* SPDX-License-Identifier: Apache-2.0 */
/* help.c — the end of `ringpack convert --help-all`. */
#include "convert/help.h"

const char rp_convert_forms[] =
    "The order of documents is that of the inputs, and within a directory that of its own list of "
    "files (MDS, litData, datasets), or bytewise by path. The result depends neither on the number "
    "of workers nor on the parts. An input may be the URL of an object, of a pattern, or of a "
    "folder, which ends with a slash; each object is kept next to PREFIX while it is read.\n\n"
    "  form         files                                     the Python package that reads it\n"
    "  text         any other file; .gz .zst; UTF-8           (.zst: zstandard)\n"
    "  jsonl        .jsonl .ndjson .json, also .gz .zst; a line has `text`, `tokens`,\n"
    "               `input_ids`, `prompt` and `completion`, or `messages`; a .json file that is\n"
    "               one value over many lines needs --as text     (messages: transformers)\n"
    "  megatron     .bin with its .idx, or the prefix\n"
    "  parquet      .parquet .pq; columns as in jsonl         pyarrow\n"
    "  arrow        .arrow .feather .ipc, save_to_disk        pyarrow\n"
    "  mds          .mds, also compressed; its directory      (zstandard, brotli, ...)\n"
    "  litdata      the directory with its index.json         (zstandard)\n"
    "  hdf5         .h5 .hdf5, Cerebras' layout too           h5py\n"
    "  tar          WebDataset: .npy, .json, .txt members\n"
    "  tfrecord     .tfrecord .tfrecords, also .gz            tfrecord\n"
    "  arrayrecord  .array_record .arrayrecord                array_record, tfrecord\n"
    "  lance        DIRECTORY.lance                           pylance\n"
    "  levanter     the directory with its shard_ledger.json  tensorstore\n\n"
    "Files are converted in groups, each to a part in PREFIX.parts (large JSONL and Parquet in "
    "pieces), and the parts are joined at the end. The disk needs room for the tokens twice. After "
    "an interruption, a part that is finished and unchanged is not made again.";
