/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h — the configuration files of AWS's tools, and the environment. The files are
 * ~/.aws/credentials and ~/.aws/config, or the targets of AWS_SHARED_CREDENTIALS_FILE and
 * AWS_CONFIG_FILE. AWS_PROFILE or AWS_DEFAULT_PROFILE names the profile in them, else it is
 * `default`. */
#ifndef RP_OBJECT_PROFILE_H
#define RP_OBJECT_PROFILE_H

#include <stdbool.h>

#include "base/fail.h"

/** A value of the environment, or NULL if it is missing or empty. */
const char *rp_environment(const char *name);

/** A boolean variable: true, 1, yes, on; false, 0, no, off; false if it is missing. Any other word
 * is an error. */
RP_MUST_CHECK int rp_environment_flag(const char *name, bool *value, struct rp_error *error);

/** The file of certificates that the environment sets in place of the machine's, by the variables
 * of AWS's tools and curl; NULL: none. */
const char *rp_environment_authorities(void);

/** Check that the files, if they exist, are readable, and that the profile is unambiguous. Settings
 * of an unreadable file would be missed, and a broader right be used. */
RP_MUST_CHECK int rp_profile_check(struct rp_error *error);

/** The name of the profile. */
const char *rp_profile_name(void);

/** A value of the profile; "s3/KEY" is the KEY that is indented below `s3 =`. The caller frees it;
 * NULL: the profile has none. */
char *rp_profile_value(const char *key);

/** A value of "[services NAME]", where `services` of the profile is NAME; else as rp_profile_value.
 */
char *rp_profile_service_value(const char *key);

/* Keys of one file. */
struct rp_profile_keys {
    char *key_id, *secret, *session_token; /* NULL: the file has none */
};
/** Find the keys in the first file that has any. The caller frees each with rp_free_secret. */
void rp_profile_keys(struct rp_profile_keys *keys);

/** Does either file have the profile? */
bool rp_profile_exists(void);

#endif
