/* SPDX-License-Identifier: Apache-2.0 */
/* cached.h — whether the page cache holds the corpus at a start.
 *
 * Invariant: a check does not change the answer of the next one. If files can only be probed, which
 * may make the kernel read (page_cache.h), each check probes other places. */
#ifndef RP_FLOW_CACHED_H
#define RP_FLOW_CACHED_H

#include "corpus/corpus.h"
#include "flow/page_cache.h"

/** Does the page cache hold (nearly) all files of the corpus? 64 places of every file are sampled;
 * with more than 1024 files, of 1024 of them. If a corpus has an index and more than
 * RP_FILES_AT_START shards, which are opened as they are used, the answer is no, and none is
 * opened.
 */
bool rp_cached_is_whole(const struct rp_corpus *corpus, const struct rp_page_cache *page_cache);

#endif
