/* SPDX-License-Identifier: Apache-2.0 */
/* eos_walk.h — files of only tokens, whose documents are separated by a special token, EOS: raw,
 * npy and llm.c. */
#ifndef RP_CORPUS_READERS_EOS_WALK_H
#define RP_CORPUS_READERS_EOS_WALK_H

#include "corpus/reader.h"

/** Emit the documents of a file whose tokens fill it from layout->token_offset to its end. Reads
 * every token. A trailing EOS belongs to the document that it ends; tokens after the last EOS are
 * one more document. With eos_leads an EOS begins a document; tokens before the first EOS are the
 * rest of a document of the shard before, and are a document of their own here. */
RP_MUST_CHECK int rp_eos_walk(const struct rp_probe *probe, const struct rp_layout *layout,
                              bool eos_leads, const struct rp_reader_options *options,
                              struct rp_sink *sink, struct rp_error *error);

#endif
