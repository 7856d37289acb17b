/* SPDX-License-Identifier: Apache-2.0 */
/* cached.h — whether the page cache holds the corpus at a start.
 *
 * Invariant: a check leaves the answer of the next as it is. Where files can only be probed, which
 * may make the kernel read (page_cache.h), each check is at other places. */
#ifndef RP_FLOW_CACHED_H
#define RP_FLOW_CACHED_H

#include "corpus/corpus.h"
#include "flow/page_cache.h"

/** Whether the page cache holds (nearly) all files of the corpus: 64 places of every one are
 * sampled, or of 1024 of them. Shards of a corpus index are opened as they are used,
 * so with more than RP_FILES_AT_START of them the answer is no, and none is opened. */
bool rp_cached_is_whole(const struct rp_corpus *corpus, const struct rp_page_cache *page_cache);

#endif
