/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h — the files that AWS's tools are configured by: ~/.aws/credentials and ~/.aws/config,
 * or those that AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name, and in them the profile that
 * AWS_PROFILE names, or `default`. And the environment. */
#ifndef RP_OBJECT_PROFILE_H
#define RP_OBJECT_PROFILE_H

#include <stdbool.h>

/** A value of the environment, or NULL if it is not there or empty. */
const char *rp_environment(const char *name);

/** A value of the profile. The caller frees it; NULL: it has none. */
char *rp_profile_value(const char *key);

/** Does either file have the profile? */
bool rp_profile_exists(void);

#endif
