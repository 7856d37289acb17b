/* SPDX-License-Identifier: Apache-2.0 */
/* eos_walk.h — files of nothing but tokens, in which a special token, EOS, separates the documents:
 * raw, npy and llm.c. */
#ifndef RP_CORPUS_READERS_EOS_WALK_H
#define RP_CORPUS_READERS_EOS_WALK_H

#include "corpus/readers.h"

/** Emit the documents of a file whose tokens lie from layout->token_offset to its end. Where EOS
 * trails, a document ends with EOS, which belongs to it; after the last EOS there may be one more
 * document that was never ended. Where EOS leads, a document begins with it; what stands before the
 * first EOS is the rest of a document that began in the shard before, and is a document of its own
 * here. Reads every token. */
RP_MUST_CHECK int rp_eos_walk(const struct rp_probe *probe, const struct rp_layout *layout,
                              bool eos_leads, const struct rp_reader_options *options,
                              struct rp_sink *sink, struct rp_error *error);

#endif
