/* SPDX-License-Identifier: Apache-2.0 */
/* key_name.h — keys by the name that a user typed. Private to engine/config. */
#ifndef RP_CONFIG_KEY_NAME_H
#define RP_CONFIG_KEY_NAME_H

#include "config/key.h"

/** Find the key of that name, or of an older name; dashes count as underscores. An unknown name is
 * an error that names the nearest key. */
RP_MUST_CHECK int rp_key_find(const struct rp_key_list *list, const char *name,
                              struct rp_key_place place, const struct rp_key **key_out,
                              struct rp_error *error);

/** The other key that a name sets: `window` was the size of both packings. NULL: none. */
const struct rp_key *rp_key_twin(const struct rp_key_list *list, const char *name);

/** Log the name of a key that was found by an older one. */
void rp_key_tell_older(const struct rp_config *config, const struct rp_key *key, const char *name);

#endif
