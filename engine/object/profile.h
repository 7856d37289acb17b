/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h — the files that AWS's tools are configured by: ~/.aws/credentials and ~/.aws/config,
 * or those that AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name, and in them the profile that
 * AWS_PROFILE or AWS_DEFAULT_PROFILE names, or `default`. And the environment. */
#ifndef RP_OBJECT_PROFILE_H
#define RP_OBJECT_PROFILE_H

#include <stdbool.h>

#include "base/fail.h"

/** A value of the environment, or NULL if it is not there or empty. */
const char *rp_environment(const char *name);

/** A variable that says yes or no: true, 1, yes, on; false, 0, no, off; false if it is not there.
 * Any other word is an error. */
RP_MUST_CHECK int rp_environment_flag(const char *name, bool *value, struct rp_error *error);

/** The file of certificates that the environment names in the place of the machine's, as AWS's
 * tools and curl are told of it; NULL: none. */
const char *rp_environment_authorities(void);

/** Can the files be read, where they are there, and is it clear which profile is meant? What a file
 * says that cannot be read would be missed, and a broader right be used. */
RP_MUST_CHECK int rp_profile_check(struct rp_error *error);

/** The name of the profile. */
const char *rp_profile_name(void);

/** A value of the profile; of "s3/KEY" that which is indented below `s3 =`. The caller frees it;
 * NULL: it has none. */
char *rp_profile_value(const char *key);

/** A value of "[services NAME]", which the profile names by `services`; else as rp_profile_value.
 */
char *rp_profile_service_value(const char *key);

/* Keys of one file. */
struct rp_profile_keys {
    char *key_id, *secret, *session_token; /* NULL: the file has none */
};
/** Those of the first file that has one of them. The caller frees each, with rp_free_secret. */
void rp_profile_keys(struct rp_profile_keys *keys);

/** Does either file have the profile? */
bool rp_profile_exists(void);

#endif
