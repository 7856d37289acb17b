/* SPDX-License-Identifier: Apache-2.0 */
/* feed_ahead.h — batches of items that a feed reads ahead (feed.h): which items a pass takes, and
 * their lengths. */
#ifndef RP_PLAN_V2_FEED_AHEAD_H
#define RP_PLAN_V2_FEED_AHEAD_H

#include "plan/v2/feed.h"

/** Read the batch of a source that follows its position. Fails if its first item is damaged: error
 * of the view's counts. */
RP_MUST_CHECK int rp_feed_read_ahead(const struct rp_feed *feed, struct rp_feed_source *own,
                                     struct rp_error *error);
/** Find the plain items of the batch again, after limits or `without` have changed. */
void rp_feed_update_plain(struct rp_feed_source *own);

#endif
