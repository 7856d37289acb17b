/* SPDX-License-Identifier: Apache-2.0 */
/* list.c — the objects of a bucket that match a pattern: ListObjectsV2 of S3, List Blobs of Azure,
 * or the tree of a repository of the Hugging Face Hub, page by page.
 *
 * Of each reply only keys and the token of the next page are used. S3 and Azure answer with XML,
 * the Hub with JSON and the next page in a header. */
#include <errno.h>
#include <expat.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "object/remote.h"
#include "object/requests.h"
#include "object/sign.h"
#include "object/url.h"

#define PAGE_BYTES (8u << 20)
#define KEYS_MAX 10000000u /* more are no corpus, but a mistake */
/* A server may name a next page without end, and never the same. S3 has up to 1000 keys in a page,
 * and some empty pages after many objects were removed. */
#define PAGES_MAX 100000u
#define EMPTY_PAGES_MAX 1000u /* in a row */
#define ASK "contact the operators of the server"

/* The query for a page of a store, and the elements of its reply. The Hub's reply has no elements:
 * its page is an array of objects with a `type` and a `path`. */
struct dialect {
    const char *query, *marker; /* before the prefix; of a page after the first */
    const char *root, *key, *next;
};
static const struct dialect s3 = {"list-type=2&prefix=", "continuation-token=", "ListBucketResult",
                                  "Key", "NextContinuationToken"};
static const struct dialect azure = {
    "restype=container&comp=list&prefix=", "marker=", "EnumerationResults", "Name", "NextMarker"};
static const struct dialect hub = {.query = NULL};

struct listing {
    const struct dialect *dialect;
    char *base;               /* URLs of the objects up to the key */
    const char *query;        /* and after the key; NULL: none */
    struct rp_object *object; /* the bucket */
    char *prefix;             /* prefix of the keys: the pattern up to its first wildcard */
    bool encodes;             /* keys are percent-encoded in URLs */
    bool is_deep;             /* Hub: folders below the prefix count as well */
    const char *pattern;      /* NULL: all keys directly below the prefix */
    char *page;               /* [PAGE_BYTES] */
    char *next;               /* token of the next page; NULL = no next page */
    char *mark;               /* token of page mark_page; later tokens are compared with it */
    uint64_t page_count, mark_page;
    uint32_t empty_pages; /* up to the last one: they have neither keys nor folders */
    bool has_entries;     /* the current page has keys or folders */
    char **keys;
    size_t count;
};

static int fail_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory for a listing");
}

/* As a glob pattern of files: only a dot matches the dot at the beginning of a name. */
static bool matches_pattern(const char *pattern, const char *key)
{
    return fnmatch(pattern, key, FNM_PATHNAME | FNM_PERIOD) == 0;
}

static int keep_key(struct listing *l, const char *key, struct rp_error *error)
{
    /* Only keys with the requested prefix are taken, whatever the server sends. */
    size_t prefix = strlen(l->prefix);
    bool matches = !strncmp(key, l->prefix, prefix);
    l->has_entries = true;
    if (matches)
        matches = l->pattern ? matches_pattern(l->pattern, key)
                             : key[prefix] && key[prefix] != '.' && !strchr(key + prefix, '/');
    if (!matches)
        return 0;
    if (l->count == KEYS_MAX)
        return rp_fail(error, -RP_E_USAGE, "name a narrower pattern",
                       "%s: expected at most %u objects, found more", rp_object_name(l->object),
                       KEYS_MAX);
    char **added = RP_APPEND(l->keys, l->count);
    if (!added)
        return fail_memory(error);
    *added = strdup(key);
    return *added ? 0 : fail_memory(error);
}

/* Take the token of the next page. Pages that lead back to an earlier page would be requested
 * without end, so each token is compared with a marked earlier one. The mark moves to pages 1, 2,
 * 4, 8, …: at last it is in the circle, and the next mark is farther than the circle is long
 * (Brent). */
static int take_next(struct listing *l, char *next, struct rp_error *error)
{
    if (next && !*next) { /* Azure marks the last page so */
        free(next);
        next = NULL;
    }
    free(l->next);
    l->next = next;
    l->empty_pages = l->has_entries ? 0 : l->empty_pages + 1;
    l->has_entries = false;
    if (!next)
        return 0;
    if (l->mark && !strcmp(next, l->mark))
        return rp_fail(error, -RP_E_PROTOCOL, ASK,
                       "%s: a list of objects: expected another page, found the same again",
                       rp_object_name(l->object));
    if (l->empty_pages > EMPTY_PAGES_MAX)
        return rp_fail(error, -RP_E_PROTOCOL, ASK,
                       "%s: a list of objects: expected at most %u pages in a row without an "
                       "object, found more",
                       rp_object_name(l->object), EMPTY_PAGES_MAX);
    if (l->page_count == PAGES_MAX)
        return rp_fail(error, -RP_E_USAGE,
                       "name a narrower pattern; if the list should be short, " ASK,
                       "%s: a list of objects: expected at most %u pages, found more",
                       rp_object_name(l->object), PAGES_MAX);
    if (++l->page_count < 2 * l->mark_page)
        return 0;
    free(l->mark);
    l->mark = strdup(next);
    l->mark_page = l->page_count;
    return l->mark ? 0 : fail_memory(error);
}

static int take_json(struct listing *l, size_t bytes, struct rp_error *error)
{
    json_t *page = json_loadb(l->page, bytes, 0, NULL), *entry;
    size_t i;
    l->has_entries = json_array_size(page) > 0;
    int code = json_is_array(page)
                   ? 0
                   : rp_fail(error, -RP_E_PROTOCOL, "check HF_ENDPOINT: it is not one of the Hub",
                             "%s: expected a list of files, found something else",
                             rp_object_name(l->object));
    json_array_foreach(page, i, entry)
    {
        const char *type = json_string_value(json_object_get(entry, "type"));
        const char *path = json_string_value(json_object_get(entry, "path"));
        if (code == 0 && path && type && !strcmp(type, "file"))
            code = keep_key(l, path, error);
    }
    json_decref(page);
    return code;
}

/* A page of XML: the text of the current element, and the values of earlier ones. */
struct page {
    struct listing *l;
    struct rp_error *error;
    int code;
    bool is_list, is_encoded, is_truncated;
    char *text; /* [PAGE_BYTES + 1] */
    size_t bytes;
    char *next;
};

static void XMLCALL begin_element(void *context, const char *name, const char **attributes)
{
    struct page *page = context;
    const struct dialect *dialect = page->l->dialect;
    page->bytes = 0;
    page->is_list |= !strcmp(name, dialect->root);
    page->is_encoded |= dialect == &azure && attributes[0] && !strcmp(name, dialect->key);
}

/* Only a page with entities made to grow has more text than bytes: the text is cut. */
static void XMLCALL add_text(void *context, const char *text, int bytes)
{
    struct page *page = context;
    size_t taken = (size_t)rp_min_u64((uint64_t)bytes, PAGE_BYTES - page->bytes);
    memcpy(page->text + page->bytes, text, taken);
    page->bytes += taken;
}

static void XMLCALL end_element(void *context, const char *name)
{
    struct page *page = context;
    page->text[page->bytes] = '\0';
    page->bytes = 0;
    if (page->code == 0 && !strcmp(name, page->l->dialect->key))
        page->code = keep_key(page->l, page->text, page->error);
    else if (!page->next && !strcmp(name, page->l->dialect->next))
        page->code = (page->next = strdup(page->text)) ? page->code : fail_memory(page->error);
    else if (!strcmp(name, "IsTruncated"))
        page->is_truncated = !strcmp(page->text, "true");
}

/* A truncated page would leave objects out: a body without a length may end anywhere. */
static int check_page(const struct page *page, XML_Parser parser, struct rp_error *error)
{
    const struct dialect *dialect = page->l->dialect;
    const char *name = rp_object_name(page->l->object);
    enum XML_Error reason = XML_GetErrorCode(parser);
    if (page->code < 0)
        return page->code;
    if (!page->is_list)
        return rp_fail(error, -RP_E_PROTOCOL, "check the endpoint: it is not one of S3 or Azure",
                       "%s: expected a list of objects, found something else", name);
    if (page->is_encoded || reason == XML_ERROR_BAD_CHAR_REF)
        return rp_fail(error, -RP_E_PROTOCOL, "name each object, or rename those",
                       "%s: an object has a name that XML cannot hold", name);
    if (reason != XML_ERROR_NONE)
        return rp_fail(error, -RP_E_PROTOCOL, "try again; if it stays so, " ASK,
                       "%s: a list of objects: expected XML with </%s> at its end, found %s at "
                       "byte %ld",
                       name, dialect->root, XML_ErrorString(reason),
                       (long)XML_GetCurrentByteIndex(parser));
    if (!page->is_truncated || (page->next && *page->next))
        return 0;
    /* A server that does not know the second version of the request names no next page. */
    return rp_fail(error, -RP_E_PROTOCOL, "name each object, or " ASK,
                   "%s: a list of objects: expected a <%s> of a list that continues, found none",
                   name, dialect->next);
}

static int take_page(struct listing *l, size_t bytes, struct rp_error *error)
{
    struct page page = {.l = l, .error = error, .text = malloc(PAGE_BYTES + 1)};
    XML_Parser parser = page.text ? XML_ParserCreate("UTF-8") : NULL;
    int code = parser ? 0 : fail_memory(error);
    if (parser) {
        XML_SetUserData(parser, &page);
        XML_SetElementHandler(parser, begin_element, end_element);
        XML_SetCharacterDataHandler(parser, add_text);
        (void)XML_Parse(parser, l->page, (int)bytes, XML_TRUE);
        code = check_page(&page, parser, error);
        XML_ParserFree(parser);
    }
    free(page.text);
    if (code == 0)
        return take_next(l, page.next, error);
    free(page.next);
    return code;
}

/* The next page of the Hub has a query of its own; other stores take a token in addition to the
 * query. */
static char *query_of(const struct listing *l)
{
    if (l->dialect == &hub)
        return l->next ? strdup(l->next)
                       : rp_asprintf("expand=false&recursive=%s", l->is_deep ? "true" : "false");
    char *token = rp_percent_encode(l->next ? l->next : "", false);
    char *prefix = rp_percent_encode(l->prefix, false);
    char *query = token && prefix
                      ? rp_asprintf("%s%s%s%s%s", l->next ? l->dialect->marker : "", token,
                                    l->next ? "&" : "", l->dialect->query, prefix)
                      : NULL;
    free(token);
    free(prefix);
    return query;
}

static int ask_for_page(struct listing *l, struct rp_error *error)
{
    char *query = query_of(l), next[RP_NEXT_BYTES] = "";
    if (!query)
        return fail_memory(error);
    struct rp_object_request request = {.kind = RP_REQUEST_PAGE,
                                        .object = l->object,
                                        .query = query,
                                        .bytes = PAGE_BYTES,
                                        .buffer = (uint8_t *)l->page,
                                        .next = next};
    int code = rp_requests_do(&request, 1, 1, error);
    free(query);
    if (code == 0 && request.error.code < 0) {
        code = request.error.code;
        if (error)
            *error = request.error;
    }
    if (code < 0 || l->dialect != &hub)
        return code == 0 ? take_page(l, request.arrived, error) : code;
    code = take_json(l, request.arrived, error);
    return code == 0 ? take_next(l, strdup(next), error) : code;
}

/* A key may be in two pages: objects written in between move the keys after them. */
static int tell_keys(struct listing *l, int (*add)(void *, const char *, struct rp_error *),
                     void *context, struct rp_error *error)
{
    int code = 0;
    if (l->count)
        qsort(l->keys, l->count, sizeof *l->keys, rp_text_compare);
    for (size_t i = 0; i < l->count && code == 0; i++) {
        if (i > 0 && !strcmp(l->keys[i], l->keys[i - 1]))
            continue;
        char *encoded = l->encodes ? rp_percent_encode(l->keys[i], true) : NULL;
        char *text = rp_asprintf("%s%s%s%s", l->base, encoded ? encoded : l->keys[i],
                                 l->query ? "?" : "", l->query ? l->query : "");
        free(encoded);
        code = text ? add(context, text, error) : fail_memory(error);
        free(text);
    }
    return code;
}

/* Read all pages of the object that is the list of `bucket`. */
static int read_pages(struct listing *l, const char *bucket, struct rp_error *error)
{
    l->page = malloc(PAGE_BYTES);
    int code = l->page ? rp_object_open(&l->object, bucket, error) : fail_memory(error);
    do {
        if (code == 0)
            code = ask_for_page(l, error);
    } while (code == 0 && l->next);
    return code;
}

/* `bucket` is the URL of the bucket, and `key` the part after it in the pattern. */
static int list_all(struct listing *l, const char *bucket, const char *key, struct rp_error *error)
{
    size_t plain = strcspn(key, l->dialect == &azure ? "*[" : "*?[");
    l->pattern = key[plain] ? key : NULL;
    l->prefix = rp_asprintf("%.*s", (int)plain, key);
    return l->prefix ? read_pages(l, bucket, error) : fail_memory(error);
}

static int list_bucket(struct listing *l, const struct rp_url *url, struct rp_error *error)
{
    l->dialect = &s3;
    l->base = rp_asprintf("%s://%s/", url->store == RP_STORE_S3 ? "s3" : "gs", url->bucket);
    return l->base ? list_all(l, l->base, url->key, error) : fail_memory(error);
}

/* https://ACCOUNT.blob.core.windows.net/CONTAINER/PATTERN?SAS: the SAS goes with every request. */
static int list_container(struct listing *l, const struct rp_url *url, struct rp_error *error)
{
    int container = (int)strcspn(url->path + 1, "/") + 1;
    char *key = rp_percent_decode(url->path + container + (url->path[container] == '/'));
    const char *mark = url->query ? "?" : "", *query = url->query ? url->query : "";
    char *bucket = rp_asprintf("%s://%s%.*s%s%s", url->scheme, url->host, container, url->path,
                               mark, query);
    l->dialect = &azure;
    l->encodes = true;
    l->base = rp_asprintf("%s://%s%.*s/", url->scheme, url->host, container, url->path);
    l->query = url->query;
    int code = bucket && key && l->base ? list_all(l, bucket, key, error) : fail_memory(error);
    l->pattern = NULL; /* it is in `key` */
    free(bucket);
    free(key);
    return code;
}

/* A pattern of files of a repository of the Hub, from either of its spellings. */
struct hub_place {
    char *key;     /* in the repository, decoded */
    size_t plain;  /* bytes of the key before its first wildcard */
    size_t folder; /* bytes of the folder that holds all matches, with its last slash */
    size_t base;   /* bytes of the URL before the key: names of objects begin with them */
};

/* hf://REPOSITORY/PATTERN, or https://HOST/REPOSITORY/resolve/REVISION/PATTERN, in which `?` begins
 * the query and is no wildcard. The caller frees place->key. */
static int find_hub_place(const struct rp_url *url, struct hub_place *place, struct rp_error *error)
{
    const char *key = url->key, *wildcards = "*?[";
    if (url->store == RP_STORE_HTTP) {
        const char *resolve = strstr(url->path, "/resolve/");
        const char *slash = resolve ? strchr(resolve + strlen("/resolve/"), '/') : NULL;
        if (!slash)
            return rp_fail(error, -RP_E_CONFIG, "write …/resolve/REVISION/FOLDER/",
                           "%s: expected a folder of a repository", url->name);
        key = slash + 1;
        wildcards = "*[";
    }
    place->base = strlen(url->name) - strlen(key);
    place->key = url->store == RP_STORE_HTTP ? rp_percent_decode(key) : strdup(key);
    if (!place->key)
        return fail_memory(error);
    place->plain = place->folder = strcspn(place->key, wildcards);
    while (place->folder > 0 && place->key[place->folder - 1] != '/')
        place->folder--;
    return 0;
}

/* The URL of the Hub's API for the folder in which the search begins; the caller frees it. `url`
 * leads to https://HOST/BASE/REPOSITORY/resolve/REVISION/KEY, in which a model's repository has no
 * word for its kind. NULL when out of memory. */
static char *tree_url(const struct rp_url *url, const struct hub_place *place)
{
    size_t base, folder = place->folder ? place->folder - 1 : 0;
    const char *given = rp_url_hub_base(&base);
    if (strncmp(url->path, given, base) != 0)
        base = 0; /* the Hub itself, although HF_ENDPOINT is another host */
    const char *resolve = strstr(url->path, "/resolve/");
    const char *repository = url->path + base, *revision = resolve + strlen("/resolve/");
    bool is_model = strncmp(repository, "/datasets/", 10) != 0 &&
                    strncmp(repository, "/spaces/", 8) != 0;
    char *plain = rp_asprintf("%.*s", (int)folder, place->key);
    char *encoded = plain ? rp_percent_encode(plain, true) : NULL;
    char *made = encoded ? rp_asprintf("%s://%s%.*s/api%s%.*s/tree/%.*s%s%s", url->scheme,
                                       url->host, (int)base, url->path, is_model ? "/models" : "",
                                       (int)(resolve - repository), repository,
                                       (int)strcspn(revision, "/"), revision, folder ? "/" : "",
                                       encoded)
                         : NULL;
    free(plain);
    free(encoded);
    return made;
}

static int list_hub(struct listing *l, const struct rp_url *url, struct rp_error *error)
{
    struct hub_place place = {0};
    int code = find_hub_place(url, &place, error);
    if (code < 0)
        return code;
    l->dialect = &hub;
    l->encodes = url->store == RP_STORE_HTTP;
    l->query = url->query;
    l->is_deep = strchr(place.key + place.plain, '/');
    l->pattern = place.key[place.plain] ? place.key : NULL;
    l->prefix = rp_asprintf("%.*s", (int)place.plain, place.key);
    l->base = rp_asprintf("%.*s", (int)place.base, url->name);
    char *tree = tree_url(url, &place);
    code = tree && l->base && l->prefix ? read_pages(l, tree, error) : fail_memory(error);
    l->pattern = NULL; /* it is in place.key */
    free(place.key);
    free(tree);
    return code < 0 ? rp_fail_context(error, code, "%s", url->name) : 0;
}

int rp_remote_list(const char *pattern,
                   int (*add)(void *context, const char *url, struct rp_error *error),
                   void *context, struct rp_error *error)
{
    struct rp_url url;
    struct listing l = {0};
    int code = rp_url_parse(&url, pattern, error);
    if (code < 0)
        return code;
    if (!rp_url_can_list(pattern))
        code = rp_fail(error, -RP_E_CONFIG, "name each object, or use the store's s3 or gs URL",
                       "%s: http servers have no lists of objects", url.name);
    else if (url.store == RP_STORE_HUB ||
             (url.store == RP_STORE_HTTP && !rp_url_is_azure_host(url.host)))
        code = list_hub(&l, &url, error);
    else if (url.store == RP_STORE_HTTP)
        code = list_container(&l, &url, error);
    else
        code = list_bucket(&l, &url, error);
    if (code == 0)
        code = tell_keys(&l, add, context, error);
    free(l.base);
    for (size_t i = 0; i < l.count; i++)
        free(l.keys[i]);
    free(l.keys);
    free(l.prefix);
    free(l.page);
    free(l.next);
    free(l.mark);
    rp_object_close(l.object);
    rp_url_free(&url);
    return code;
}
