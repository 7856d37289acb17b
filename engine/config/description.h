/* SPDX-License-Identifier: Apache-2.0 */
/* description.h — a config's side of a contract (base/contract.h), without opening the corpus: a
 * trainer that has the config sends it when it attaches, and the engine compares it with its own
 * contract.
 *
 * A description has the fields that follow from the config without the corpus. For the corpus it
 * has
 *
 *     corpus_files~  a hash of the path, length and time of every shard, and of the keys by which
 *                    they are read: equal hashes mean equal corpora
 *     corpus_paths:  a hash of only the paths, the same on nodes that share them: it names runs
 *
 * Different files may hold one corpus, so a difference only in corpus_files is not final: the
 * trainer then opens its corpus, and sends the whole contract (rp_stream_make_contract). */
#ifndef RP_CONFIG_DESCRIPTION_H
#define RP_CONFIG_DESCRIPTION_H

#include "base/fail.h"
#include "base/hash.h"
#include "base/record.h"
#include "config/config.h"

/** The description of a finished config: the two records of a contract, as text that the caller
 * frees. */
RP_MUST_CHECK int rp_config_describe(char **text_out, const struct rp_config *config,
                                     struct rp_error *error);

/** Add the sizes of batches that stages set, as fields of the delivery. */
void rp_config_add_batches(struct rp_record_writer *writer, const struct rp_config *config);

/** Its corpus_files, as hexadecimal text. -ENOMEM. */
RP_MUST_CHECK int rp_config_describe_files(char text[RP_HASH_HEX_BYTES],
                                           const struct rp_config *config, struct rp_error *error);

#endif
