/* SPDX-License-Identifier: Apache-2.0 */
/* url.h — the URLs that a corpus may have in the place of paths.
 *
 *   s3://BUCKET/KEY      AWS, or AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL if set (R2, MinIO …)
 *   gs://BUCKET/KEY      Google Cloud Storage, by its XML API
 *   hf://datasets/OWNER/NAME[@REVISION]/KEY   a file of the Hugging Face Hub, or of HF_ENDPOINT;
 *   hf://OWNER/NAME[@REVISION]/KEY            as huggingface_hub writes them
 *   https://HOST/PATH    any server that serves ranges; for Azure and the Hub see object.h
 *   http://HOST/PATH     the same, for private networks
 *
 * The query of an https URL may hold a secret (SAS): it is sent, and never shown. */
#ifndef RP_OBJECT_URL_H
#define RP_OBJECT_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"

enum rp_store { RP_STORE_HTTP, RP_STORE_S3, RP_STORE_GS, RP_STORE_HUB };

struct rp_url {
    enum rp_store store;
    char *name;   /* the URL for messages: without user, password and query */
    char *scheme; /* on the wire: http or https */
    char *host;   /* on the wire, with a port if it has one */
    char *path;   /* on the wire: percent-encoded, with a leading slash; without the query */
    char *query;  /* https URLs: the text after the question mark; NULL = none */
    char *bucket; /* S3 and GS; of the Hub the path before the key on the wire; else NULL */
    char *key;    /* for these stores: not encoded; may be "" or a pattern */
};

/** Is this a URL, and no path? rp_url_parse checks if it can be read. */
bool rp_url_is(const char *text);

/** Can the objects below it be listed: is it in a bucket, a container of Azure, or on the Hub? */
bool rp_url_can_list(const char *text);

/** Is it a pattern of such objects? In the URL of a container a question mark begins the query. */
bool rp_url_is_pattern(const char *text);

/** Is this the host of a storage account of Azure? */
bool rp_url_is_azure_host(const char *host);

/** The path of HF_ENDPOINT, without a slash at its end; "" without a path. */
const char *rp_url_hub_base(size_t *bytes);
/** May the Hub's token be sent to this URL? To a host of the Hub by https; by http only to the host
 * of an HF_ENDPOINT that has the scheme http itself. */
bool rp_url_may_have_hub_token(const struct rp_url *url);

/** Split a URL and find its host. -RP_E_CONFIG: the URL is invalid; *error has the reason. */
RP_MUST_CHECK int rp_url_parse(struct rp_url *url, const char *text, struct rp_error *error);
void rp_url_free(struct rp_url *url);

/** The URL with another last name: `suffix` at the end of its path, in the place of the last `cut`
 * bytes. The caller frees it; NULL when out of memory. */
char *rp_url_companion(const char *text, size_t cut, const char *suffix);

/** Does the path of the URL, without its query, end with `suffix`? */
bool rp_url_has_suffix(const char *text, const char *suffix);

/** The SAS that the environment has for the URL (AZURE_STORAGE_SAS_TOKEN): by https only, and if
 * AZURE_STORAGE_ACCOUNT_NAME is set, for that account only. NULL: it has none, or the URL has a
 * query of its own. */
const char *rp_url_sas(const struct rp_url *url);

/** The region of S3: from the environment or the profile, else us-east-1. The caller frees it. */
char *rp_s3_region(void);

/** The domain of AWS's services in the partition of a region: amazonaws.com, or China's … */
const char *rp_aws_domain(const char *region);

/** The URL for messages. The caller frees it; NULL when out of memory. */
char *rp_url_name(const char *text);

/** The id of the object, without secrets, as keys of files: the name, and, if the query has
 * parameters other than the right to read (`?versionId=2`, `?file=a`), a hash of these. Every
 * signature gives the same id. The caller frees it; NULL when out of memory. */
char *rp_url_id(const char *text);

#endif
