/* SPDX-License-Identifier: Apache-2.0 */
/* contract_sample.h — a contract with every field, and another value of each. */
#ifndef RP_TESTS_CONTRACT_SAMPLE_H
#define RP_TESTS_CONTRACT_SAMPLE_H

#include <stddef.h>

enum sample_freedom {
    BOUND,    /* differs at no moment */
    EXTEND,   /* differs if a run continues with other epochs */
    REWEIGHT, /* may differ at a resume that accepts other weights */
    FREE,     /* may differ at every resume */
    LABEL,    /* may differ always */
};

/* In the order of the text, which is by name. `called`: how messages name it. */
static const struct sample_field {
    const char *name, *value, *other;
    enum sample_freedom freedom;
    char sign;
    const char *called;
} sample_fields[] = {
    {"block_documents", "7", "8", BOUND, '=', "block_documents"},
    {"corpus_full", "00000000000000040000000000000003", "00000000000000040000000000000009", BOUND,
     '~', "full fingerprint of the corpus"},
    {"corpus_sampled", "00000000000000020000000000000001", "00000000000000020000000000000009",
     BOUND, '=', "sampled fingerprint of the corpus"},
    {"fill", "pad", "split", BOUND, '=', "row_gap"},
    {"lanes", "1", "2", BOUND, '=', "plan_partitions"},
    {"long_doc", "split", "drop", BOUND, '=', "long_doc"},
    {"max_docs_per_row", "6", "5", BOUND, '=', "max_docs_per_row"},
    {"num_epochs", "2", "0", EXTEND, '=', "num_epochs"},
    {"packing", "lookahead", "concat", BOUND, '=', "packing"},
    {"seed", "18446744073709551615", "7", BOUND, '=', "seed"},
    {"seq_len", "48", "49", BOUND, '=', "seq_len"},
    {"shuffle", "block", "none", BOUND, '=', "shuffle"},
    {"source[0000].documents", "100", "101", BOUND, '=', "documents of source books"},
    {"source[0000].name", "books", "papers", LABEL, ':', NULL},
    {"source[0000].weight", "3", "1", REWEIGHT, '=', "weight of source books"},
    {"source[0001].documents", "50", "51", BOUND, '=', "documents of source 1"},
    {"source[0001].weight", "1", "4", REWEIGHT, '=', "weight of source 1"},
    {"sources", "2", "3", BOUND, '=', "number of sources"},
    {"stream_version", "1", "2", BOUND, '=', "stream_version"},
    {"tokenizer", "00000000000000060000000000000005", "00000000000000060000000000000009", BOUND,
     '~', "tokenizer"},
    {"window", "8", "9", BOUND, '=', "packing_buffer"},
    {"window_blocks", "3", "4", BOUND, '=', "window_blocks"},
    {NULL, NULL, NULL, BOUND, 0, NULL}, /* the delivery follows */
    {"batch_size", "3", "4", FREE, '=', "batch_size"},
    {"dp_world_size", "2", "1", FREE, '=', "dp_world_size"},
    {"drop_last", "false", "true", FREE, '=', "drop_last"},
    {"global_batch_size", "6", "12", FREE, '=', "global_batch_size"},
    {"label_mode", "shifted", "aligned", FREE, '=', "label_mode"},
    {"pad_id", "0", "9", FREE, '=', "pad_id"},
    {"sections", "rows,doc_lens,input_ids", "rows,doc_lens,input_ids,labels", FREE, '=',
     "sections"},
    {"token_dtype", "i32", "i64", FREE, '=', "token_dtype"},
};
#define SAMPLE_FIELDS (sizeof sample_fields / sizeof *sample_fields)

#endif
