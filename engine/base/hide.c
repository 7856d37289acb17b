/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hide.h"

#include <string.h>
#include <strings.h>

/* The next URL of http or https, or NULL. */
static char *find_url(char *text)
{
    static const char https[] = "https://";
    for (char *at = strchr(text, ':'); at; at = strchr(at + 1, ':'))
        for (size_t with_s = 0; with_s < 2; with_s++) {
            size_t before = 4 + with_s;
            if (!strncmp(at, "://", 3) && at >= text + before &&
                !strncasecmp(at - before, https, before))
                return at - before;
        }
    return NULL;
}

static void mask_text(char *begin, const char *end)
{
    memset(begin, '*', (size_t)(end - begin));
}

/* Hide in the URL, which ends at `end`. */
static bool hide_in_url(char *url, char *end)
{
    char *host = strstr(url, "://") + 3;
    char *slash = host + strcspn(host, "/?# "), *query = memchr(url, '?', (size_t)(end - url));
    char *at = slash < end ? memrchr(host, '@', (size_t)(slash - host))
                           : memrchr(host, '@', (size_t)(end - host));
    if (at)
        mask_text(host, at);
    if (query && query + 1 < end)
        mask_text(query + 1, end);
    return at || (query && query + 1 < end);
}

bool rp_hide_in_value(char *value)
{
    bool is_hidden = false;
    for (char *url = find_url(value); url; url = find_url(strstr(url, "://") + 3))
        is_hidden |= hide_in_url(url, url + strlen(url));
    return is_hidden;
}

void rp_hide_in_sentence(char *text)
{
    char *end = text;
    for (char *url = find_url(text); url; url = find_url(end)) {
        bool is_quoted = url > text && strchr("`\"'", url[-1]);
        char *mark = is_quoted ? strrchr(url, url[-1]) : strstr(url + strcspn(url, "/"), ": ");
        end = mark ? mark : url + strlen(url);
        (void)hide_in_url(url, end);
    }
}
