/* SPDX-License-Identifier: Apache-2.0 */
/* outcome.c — turn libcurl's code for a failed transfer into a cause and a hint. */
#include "object/outcome.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/text.h"
#include "object/profile.h"
#include "object/requests.h"

/* HOST[:PORT] of the proxy that libcurl uses, without its user and password. */
static void name_proxy(const char *url, char *text, size_t bytes)
{
    static const char *const of_https[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    static const char *const of_http[] = {"http_proxy", NULL, "all_proxy", "ALL_PROXY"};
    bool is_https = !strncasecmp(url, "https:", 6);
    const char *variable = NULL, *given = NULL;
    for (size_t i = 0; i < RP_ARRAY_COUNT(of_https) && !given; i++) {
        variable = is_https ? of_https[i] : of_http[i];
        given = variable ? rp_environment(variable) : NULL;
    }
    const char *host = given ? strstr(given, "://") : NULL;
    host = host ? host + 3 : given ? given : "";
    size_t length = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', length);
    size_t skipped = at ? (size_t)(at + 1 - host) : 0;
    snprintf(text, bytes, "%.*s%s%s%s", (int)rp_min_u64(length - skipped, 100), host + skipped,
             given ? " (" : "", given ? variable : "", given ? ")" : "");
    rp_text_make_utf8(text);
}

bool rp_outcome_is_proxys(const struct rp_outcome *outcome)
{
    return outcome->code != CURLE_OK && outcome->connect_status != 0 &&
           (outcome->connect_status < 200 || outcome->connect_status > 299);
}

static bool judge_proxy(const struct rp_outcome *t, struct rp_error *error)
{
    char proxy[160];
    long status = t->connect_status;
    bool is_busy = status >= 500 && status != 501 && status != 505;
    name_proxy(t->url, proxy, sizeof proxy);
    (void)rp_fail(error, is_busy ? -RP_E_TIMEOUT : -RP_E_PROTOCOL,
                  status == 407
                      ? "put its user and password into https_proxy, or name the "
                        "store in no_proxy"
                      : "have the store allowed there, or name it in no_proxy; no request "
                        "has reached the store",
                  "%s: the proxy %s refuses to connect to the store: HTTP status %ld", t->name,
                  proxy, status);
    return is_busy;
}

/* Each TLS library that libcurl is built with has its own error texts. */
static int fail_certificate(const struct rp_outcome *t, struct rp_error *error)
{
    static const struct {
        const char *words[3], *what, *hint;
    } reasons[] = {
        {{"expired", "expiration date has passed", NULL},
         "has expired",
         "renew it on the server; if it is new, check this machine's clock (`date`)"},
        {{"not yet valid", "not activated", NULL},
         "is not valid yet",
         "check this machine's clock (`date`), and the dates of the certificate"},
        {{"subject name", "host name", "hostname"},
         "is one of another host",
         "write the name that is in the certificate into the URL or the endpoint, or give the "
         "server a certificate of this name"},
        {{"revoked", NULL, NULL}, "has been revoked", "renew it on the server"},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(reasons); i++)
        for (size_t j = 0; j < RP_ARRAY_COUNT(reasons[i].words) && reasons[i].words[j]; j++)
            if (strcasestr(t->detail, reasons[i].words[j]))
                return rp_fail(error, -RP_E_PROTOCOL, reasons[i].hint,
                               "%s: the server's certificate %s", t->name, reasons[i].what);
    return rp_fail(error, -RP_E_PROTOCOL,
                   "install the authority's certificate (`update-ca-certificates`), or name it "
                   "by SSL_CERT_FILE",
                   "%s: the server's certificate is not trusted: its authority is unknown here",
                   t->name);
}

bool rp_outcome_judge(const struct rp_outcome *t, struct rp_error *error)
{
    if (rp_outcome_is_proxys(t))
        return judge_proxy(t, error);
    switch (t->code) {
    case CURLE_TOO_MANY_REDIRECTS:
        (void)rp_fail(error, -RP_E_PROTOCOL, "check the URL",
                      "%s: more than %ld redirects, perhaps in a circle", t->name,
                      RP_REDIRECTS_MAX);
        return false;
    case CURLE_PEER_FAILED_VERIFICATION:
        (void)fail_certificate(t, error);
        return false;
    case CURLE_SSL_CACERT_BADFILE:
        (void)rp_fail(error, -RP_E_CONFIG,
                      "check AWS_CA_BUNDLE, CURL_CA_BUNDLE and SSL_CERT_FILE, or install "
                      "ca-certificates",
                      "%s: the file of trusted certificates cannot be read", t->name);
        return false;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
        (void)rp_fail(error, -RP_E_CONFIG, "check the URL", "%s: it cannot be requested", t->name);
        return false;
    case CURLE_WRITE_ERROR: /* we ended it: the page or the body is too long */
        (void)rp_fail(error, -RP_E_PROTOCOL, "check the server",
                      "%s: the answer is longer than %u bytes", t->name, t->bytes);
        return false;
    default:
        (void)rp_fail(error, -RP_E_TIMEOUT, NULL, "%s: %s", t->name,
                      t->code == CURLE_OK ? "the body ended too soon" : t->said);
        return true;
    }
}
