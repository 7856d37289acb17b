/* SPDX-License-Identifier: Apache-2.0 */
/* sign.c — presign URLs, and percent-encode text. */
#include "object/sign.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"

char *rp_percent_encode(const char *text, bool keep_slashes)
{
    static const char digits[] = "0123456789ABCDEF";
    char *encoded = rp_calloc(strlen(text) + 1, 3), *to = encoded;
    for (const char *at = text; encoded && *at; at++) {
        unsigned char c = (unsigned char)*at;
        bool is_plain = (c < 128 && isalnum(c)) || strchr("-._~", c) || (c == '/' && keep_slashes);
        if (is_plain) {
            *to++ = (char)c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[c >> 4];
        *to++ = digits[c & 15];
    }
    return encoded;
}

static int digit_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    int letter = tolower((unsigned char)digit);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

char *rp_percent_decode(const char *text)
{
    char *decoded = strdup(text), *to = decoded;
    for (const char *at = text; decoded && *at; at++) {
        int high = *at == '%' ? digit_value(at[1]) : -1;
        int low = high >= 0 ? digit_value(at[2]) : -1;
        bool is_code = low >= 0 && (high | low); /* %00 is no code: it would end the text */
        *to++ = is_code ? (char)(16 * high + low) : *at;
        at += is_code ? 2 : 0;
    }
    if (decoded)
        *to = '\0';
    return decoded;
}

/* The signing key: the account's key, narrowed to one day, region and service. */
static void derive_key(const struct rp_signer *signer, const char day[9],
                       uint8_t key[RP_SHA256_BYTES])
{
    const char *const parts[] = {day, signer->region, "s3", "aws4_request"};
    char *first = rp_asprintf("AWS4%s", signer->secret);
    const void *with = first ? first : "";
    size_t bytes = first ? strlen(first) : 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        uint8_t made[RP_SHA256_BYTES];
        rp_hmac_sha256(with, bytes, parts[i], strlen(parts[i]), made);
        memcpy(key, made, sizeof made);
        with = key;
        bytes = RP_SHA256_BYTES;
    }
    if (first)
        explicit_bzero(first, strlen(first));
    free(first);
}

/* All parameters but the signature, in bytewise order: names in lower case come last. */
static char *make_query(const struct rp_signer *signer, const char *scope, const char *moment,
                        const char *query, uint32_t lifetime_s)
{
    char *credential = rp_asprintf("%s/%s", signer->key_id, scope);
    char *encoded = credential ? rp_percent_encode(credential, false) : NULL;
    char *token = rp_percent_encode(signer->session_token ? signer->session_token : "", false);
    char *made = NULL;
    if (encoded && token)
        made = rp_asprintf("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s&X-Amz-Date=%s"
                           "&X-Amz-Expires=%u%s%s&X-Amz-SignedHeaders=host%s%s",
                           encoded, moment, lifetime_s, *token ? "&X-Amz-Security-Token=" : "",
                           token, query ? "&" : "", query ? query : "");
    free(credential);
    free(encoded);
    rp_free_secret(token);
    return made;
}

char *rp_sign_url(const struct rp_signer *signer, const struct rp_url *url, const char *query,
                  time_t now, uint32_t lifetime_s)
{
    struct tm utc;
    char moment[32], day[9], hex[2 * RP_SHA256_BYTES + 1];
    uint8_t key[RP_SHA256_BYTES], digest[RP_SHA256_BYTES];
    gmtime_r(&now, &utc);
    strftime(moment, sizeof moment, "%Y%m%dT%H%M%SZ", &utc);
    strftime(day, sizeof day, "%Y%m%d", &utc);
    char *scope = rp_asprintf("%s/%s/s3/aws4_request", day, signer->region);
    char *all = scope ? make_query(signer, scope, moment, query, lifetime_s) : NULL;
    char *canonical = all ? rp_asprintf("GET\n%s\n%s\nhost:%s\n\nhost\nUNSIGNED-PAYLOAD", url->path,
                                        all, url->host)
                          : NULL;
    char *to_sign = NULL, *made = NULL;
    if (canonical) {
        rp_sha256(canonical, strlen(canonical), digest);
        rp_sha256_hex(digest, hex);
        to_sign = rp_asprintf("AWS4-HMAC-SHA256\n%s\n%s\n%s", moment, scope, hex);
    }
    if (to_sign) {
        derive_key(signer, day, key);
        rp_hmac_sha256(key, sizeof key, to_sign, strlen(to_sign), digest);
        rp_sha256_hex(digest, hex);
        made = rp_asprintf("%s://%s%s?%s&X-Amz-Signature=%s", url->scheme, url->host, url->path,
                           all, hex);
    }
    explicit_bzero(key, sizeof key);
    free(scope);
    free(all);
    free(canonical);
    free(to_sign);
    return made;
}
