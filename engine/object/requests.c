/* SPDX-License-Identifier: Apache-2.0 */
/* requests.c — the states of a request:
 *
 *   start ──► ASKED ──► the reply's headers are judged ──► body into the buffer ──► DONE
 *               ▲                 │                              │
 *               │ pause is over   ▼ busy, broken, silent         ▼ half a body
 *               └────────────── PAUSED ◄─────────────────────────┘
 *
 * After half a body only the rest is requested. */
#include "object/requests.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "object/profile.h"
#include "object/curl.h"
#include "object/outcome.h"

#define MS 1000000ull
#define CONNECT_MS 10000L
#define STALL_BYTES 1024L              /* a second */
#define BODY_BUFFER_BYTES (512L << 10) /* libcurl takes no more */
#define PROGRESS_BYTES (64u << 10)     /* less progress does not restart give_up_s */
#define POLL_MS 100
#define QUIET_NS (10ull * 1000 * MS)  /* between two lines in the log */
#define SWALLOW_BYTES_MAX (64u << 10) /* bytes of a refusal, so that its connection can be kept */

enum exchange_state { FREE, ASKED, PAUSED, DONE };

struct exchange {
    struct rp_requests *owner;
    struct rp_object_request *request;
    enum exchange_state state;
    CURL *easy;
    struct rp_ask ask;
    struct rp_object_reply reply;
    char detail[CURL_ERROR_SIZE]; /* libcurl's text for the failure */
    enum rp_verdict verdict;
    bool is_judged;
    bool was_refused;    /* once already: the second refusal is the last */
    uint32_t begin;      /* request->arrived when this try began */
    uint64_t swallowed;  /* bytes of an unwanted body */
    unsigned tries;      /* that failed in a row */
    uint64_t failing_ns; /* when the first of them began; 0 = none */
    uint64_t due_ns;     /* PAUSED: until then */
};

struct rp_requests {
    const struct rp_curl *curl;
    CURLM *multi;
    struct rp_patience patience;
    struct exchange *exchanges; /* [depth] */
    uint32_t depth, in_flight, done;
    uint64_t random, retries, said_ns;
};

/* ---- one exchange ---------------------------------------------------------------------------- */

static size_t take_header(char *line, size_t size, size_t count, void *context)
{
    struct exchange *x = context;
    rp_reply_header(&x->reply, line, size * count);
    return size * count;
}

static struct rp_expected expected_of(const struct exchange *x)
{
    const struct rp_object_request *r = x->request;
    bool is_range = r->kind == RP_REQUEST_RANGE;
    return (struct rp_expected){.name = rp_object_name(r->object),
                                .is_page = r->kind == RP_REQUEST_PAGE,
                                .is_head = r->kind == RP_REQUEST_HEAD,
                                .first = r->offset + x->begin,
                                .last = r->offset + r->bytes - 1,
                                .total = is_range ? r->total : RP_SIZE_UNKNOWN,
                                .identity = is_range && r->expected[0] ? r->expected : NULL,
                                .keys_place = x->ask.place};
}

static void judge(struct exchange *x)
{
    struct rp_object_request *r = x->request;
    struct rp_expected expected = expected_of(x);
    if (x->is_judged)
        return;
    x->is_judged = true;
    x->verdict = rp_reply_judge(&x->reply, &expected, &r->error);
    if (x->verdict == RP_REPLY_GOOD && r->next)
        memcpy(r->next, x->reply.next, sizeof x->reply.next);
    if (x->verdict != RP_REPLY_GOOD || r->kind != RP_REQUEST_HEAD)
        return;
    r->total = x->reply.has_range ? x->reply.total : x->reply.length;
    snprintf(r->identity, sizeof r->identity, "%s", rp_reply_identity(&x->reply));
}

/* libcurl ends the transfer if this returns less than the size of the data. */
static size_t take_body(char *data, size_t size, size_t count, void *context)
{
    struct exchange *x = context;
    struct rp_object_request *r = x->request;
    size_t bytes = size * count;
    if (x->reply.status < 200 || x->reply.status > 299) { /* the reason is in the body */
        size_t room = sizeof x->reply.body - x->reply.body_bytes;
        memcpy(x->reply.body + x->reply.body_bytes, data, rp_min_u64(room, bytes));
        x->reply.body_bytes += rp_min_u64(room, bytes);
        x->swallowed += bytes;
        return x->swallowed > SWALLOW_BYTES_MAX ? 0 : bytes;
    }
    judge(x);
    if (x->verdict != RP_REPLY_GOOD)
        return 0;
    size_t taken = rp_min_u64(bytes, r->bytes - r->arrived);
    memcpy(r->buffer + r->arrived, data, taken);
    r->arrived += (uint32_t)taken;
    return taken;
}

static void set_options(struct exchange *x)
{
    const struct rp_curl *curl = x->owner->curl;
    const struct rp_object_request *r = x->request;
    char range[64];
    bool is_safe = !strncmp(x->ask.url, "https:", 6); /* and then a redirect must be as well */
    curl->easy_reset(x->easy);
    curl->easy_setopt(x->easy, CURLOPT_URL, x->ask.url);
    curl->easy_setopt(x->easy, CURLOPT_PATH_AS_IS, 1L);
    curl->easy_setopt(x->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl->easy_setopt(x->easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl->easy_setopt(x->easy, CURLOPT_REDIR_PROTOCOLS,
                      is_safe ? (long)CURLPROTO_HTTPS : (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl->easy_setopt(x->easy, CURLOPT_FOLLOWLOCATION, 1L);
    curl->easy_setopt(x->easy, CURLOPT_MAXREDIRS, RP_REDIRECTS_MAX);
    curl->easy_setopt(x->easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(x->easy, CURLOPT_USERAGENT, "ringpack/" RP_VERSION);
    curl->easy_setopt(x->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl->easy_setopt(x->easy, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES);
    curl->easy_setopt(x->easy, CURLOPT_LOW_SPEED_TIME, (long)x->owner->patience.stall_s);
    curl->easy_setopt(x->easy, CURLOPT_BUFFERSIZE, BODY_BUFFER_BYTES);
    curl->easy_setopt(x->easy, CURLOPT_ACCEPT_ENCODING, "identity");
    curl->easy_setopt(x->easy, CURLOPT_HTTP_CONTENT_DECODING, 0L);
    curl->easy_setopt(x->easy, CURLOPT_HEADERFUNCTION, take_header);
    curl->easy_setopt(x->easy, CURLOPT_HEADERDATA, x);
    curl->easy_setopt(x->easy, CURLOPT_WRITEFUNCTION, take_body);
    curl->easy_setopt(x->easy, CURLOPT_WRITEDATA, x);
    curl->easy_setopt(x->easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl->easy_setopt(x->easy, CURLOPT_ERRORBUFFER, x->detail);
    curl->easy_setopt(x->easy, CURLOPT_PRIVATE, x);
    const char *authorities = rp_environment_authorities();
    if (authorities)
        curl->easy_setopt(x->easy, CURLOPT_CAINFO, authorities);
    if (x->ask.bearer) { /* libcurl sends it to no other host */
        curl->easy_setopt(x->easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl->easy_setopt(x->easy, CURLOPT_XOAUTH2_BEARER, x->ask.bearer);
    }
    if (r->kind != RP_REQUEST_PAGE) {
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, r->offset + x->begin,
                 r->offset + r->bytes - 1);
        curl->easy_setopt(x->easy, CURLOPT_RANGE, range);
    }
}

/* ---- pauses ---------------------------------------------------------------------------------- */

static void finish(struct exchange *x)
{
    x->state = DONE;
    x->owner->done++;
}

static uint64_t draw_below(struct rp_requests *requests, uint64_t limit)
{
    uint64_t x = requests->random; /* xorshift64: it need not be good, only different elsewhere */
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    requests->random = x;
    return limit ? x % limit : 0;
}

/* Log why no request advances, at most once in QUIET_NS. */
static void tell(struct rp_requests *requests, const struct rp_object_request *r, uint64_t now)
{
    if (now - requests->said_ns < QUIET_NS)
        return;
    requests->said_ns = now;
    rp_log(RP_LOG_WARNING, "%s; trying again for %u s", r->error.message,
           requests->patience.give_up_s);
}

static void pause_or_give_up(struct exchange *x)
{
    struct rp_requests *requests = x->owner;
    const struct rp_patience *p = &requests->patience;
    struct rp_object_request *r = x->request;
    uint64_t now = rp_now_ns();
    if (r->arrived - x->begin >= PROGRESS_BYTES) {
        x->tries = 0;
        x->failing_ns = 0;
    }
    if (x->failing_ns == 0)
        x->failing_ns = now;
    if (now - x->failing_ns >= p->give_up_s * 1000 * MS) {
        char why[sizeof r->error.message];
        snprintf(why, sizeof why, "%s", r->error.message);
        (void)rp_fail(&r->error, -RP_E_TIMEOUT,
                      "delivered and saved rows are valid; check the network and the store, and "
                      "start again",
                      "%s; given up after %u s", why, p->give_up_s);
        finish(x);
        return;
    }
    uint64_t most = (uint64_t)p->pause_ms << rp_min_u64(x->tries++, 20);
    uint64_t pause = draw_below(requests, rp_min_u64(most, p->pause_max_ms) * MS);
    pause = rp_max_u64(pause, rp_min_u64(x->reply.retry_after_s * 1000, p->pause_max_ms) * MS);
    x->due_ns = now + pause;
    x->state = PAUSED;
    requests->retries++;
    if (x->tries > 3)
        tell(requests, r, now);
}

static void ask(struct exchange *x)
{
    struct rp_object_request *r = x->request;
    rp_ask_free(&x->ask);
    rp_reply_begin(&x->reply);
    if (r->kind != RP_REQUEST_RANGE)
        r->arrived = 0;
    x->begin = r->arrived;
    x->is_judged = false;
    x->detail[0] = '\0';
    x->swallowed = 0;
    r->error.code = 0;
    int asked = rp_object_ask(r->object, r->query, &x->owner->patience, &x->ask, &r->error);
    if (asked == -RP_E_TIMEOUT) /* keys are unavailable for now */
        pause_or_give_up(x);
    else if (asked < 0)
        finish(x);
    if (asked < 0)
        return;
    set_options(x);
    x->state = ASKED;
    CURLMcode code = x->owner->curl->multi_add_handle(x->owner->multi, x->easy);
    RP_ASSERT(code == CURLM_OK || code == CURLM_OUT_OF_MEMORY);
    if (code != CURLM_OK) {
        (void)rp_fail(&r->error, -ENOMEM, NULL, "out of memory for a request");
        finish(x);
    }
}

/* ---- what became of it ----------------------------------------------------------------------- */

static bool is_whole(const struct rp_object_request *r)
{
    uint64_t wanted = r->bytes;
    if (r->kind == RP_REQUEST_HEAD)
        wanted = rp_min_u64(wanted, r->total);
    return r->kind == RP_REQUEST_PAGE || r->arrived == wanted;
}

/* The outcome of a transfer that libcurl has ended. */
static struct rp_outcome outcome_of(const struct exchange *x, CURLcode code)
{
    const struct rp_curl *curl = x->owner->curl;
    struct rp_outcome outcome = {.name = rp_object_name(x->request->object),
                                 .url = x->ask.url,
                                 .said = curl->easy_strerror(code),
                                 .detail = x->detail,
                                 .code = code,
                                 .bytes = x->request->bytes};
    curl->easy_getinfo(x->easy, CURLINFO_HTTP_CONNECTCODE, &outcome.connect_status);
    return outcome;
}

/* The next step of a request whose transfer has ended. */
enum step { FINISH, ASK, PAUSE };

static enum step judge_outcome(struct exchange *x, const struct rp_outcome *outcome)
{
    return rp_outcome_judge(outcome, &x->request->error) ? PAUSE : FINISH;
}

/* The reply is good. The transfer may have ended early, or with bytes left. */
static enum step take_good(struct exchange *x, const struct rp_outcome *outcome)
{
    struct rp_object_request *r = x->request;
    bool is_page = r->kind == RP_REQUEST_PAGE;
    char *moved = NULL;
    long redirects = 0;
    if (!is_whole(r) || (is_page && outcome->code != CURLE_OK))
        return judge_outcome(x, outcome);
    x->owner->curl->easy_getinfo(x->easy, CURLINFO_REDIRECT_COUNT, &redirects);
    x->owner->curl->easy_getinfo(x->easy, CURLINFO_EFFECTIVE_URL, &moved);
    if (redirects > 0 && moved && !is_page)
        rp_object_moved(r->object, moved);
    r->error.code = 0;
    return FINISH;
}

static enum step next_step(struct exchange *x, const struct rp_outcome *outcome)
{
    /* A redirect without a target, which libcurl cannot follow, is final: S3's names the region. */
    bool is_last = outcome->code == CURLE_OK || x->reply.status >= 400;
    if (x->reply.status >= 200 && is_last && !rp_outcome_is_proxys(outcome))
        judge(x);
    if (!x->is_judged)
        return judge_outcome(x, outcome);
    switch (x->verdict) {
    case RP_REPLY_GOOD:
        return take_good(x, outcome);
    case RP_REPLY_AGAIN:
        return PAUSE;
    case RP_REPLY_REFUSED: /* once: other keys may have been written meanwhile */
        if (x->was_refused)
            return FINISH;
        x->was_refused = true;
        rp_object_refused(x->request->object, x->ask.url);
        return ASK;
    case RP_REPLY_WRONG:
        return FINISH;
    }
    return FINISH;
}

static void conclude(struct exchange *x, CURLcode code)
{
    struct rp_outcome outcome = outcome_of(x, code);
    switch (next_step(x, &outcome)) {
    case FINISH:
        finish(x);
        break;
    case ASK:
        ask(x);
        break;
    case PAUSE:
        pause_or_give_up(x);
        break;
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

int rp_requests_open(struct rp_requests **requests_out, uint32_t depth,
                     const struct rp_patience *patience, struct rp_error *error)
{
    *requests_out = NULL;
    const struct rp_curl *curl = rp_curl_load(error);
    if (!curl)
        return -RP_E_RESOURCE;
    struct rp_requests *requests = rp_calloc(1, sizeof *requests);
    if (!requests)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for requests");
    requests->curl = curl;
    requests->patience = *patience;
    requests->random = rp_now_ns() | 1;
    requests->exchanges = rp_calloc(depth, sizeof *requests->exchanges);
    requests->multi = requests->exchanges ? curl->multi_init() : NULL;
    bool works = requests->multi != NULL;
    for (uint32_t i = 0; i < depth && works; i++) {
        struct exchange *x = &requests->exchanges[i];
        x->owner = requests;
        x->easy = curl->easy_init();
        works = x->easy != NULL;
        requests->depth = i + 1;
    }
    if (!works) {
        rp_requests_close(requests);
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u requests", depth);
    }
    curl->multi_setopt(requests->multi, CURLMOPT_MAXCONNECTS, (long)depth);
    curl->multi_setopt(requests->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    *requests_out = requests;
    return 0;
}

void rp_requests_close(struct rp_requests *requests)
{
    if (!requests)
        return;
    for (uint32_t i = 0; i < requests->depth; i++) {
        struct exchange *x = &requests->exchanges[i];
        if (x->state == ASKED)
            requests->curl->multi_remove_handle(requests->multi, x->easy);
        if (x->easy)
            requests->curl->easy_cleanup(x->easy);
        rp_ask_free(&x->ask);
    }
    if (requests->multi)
        requests->curl->multi_cleanup(requests->multi);
    free(requests->exchanges);
    free(requests);
}

void rp_requests_start(struct rp_requests *requests, struct rp_object_request *request)
{
    RP_ASSERT(requests->in_flight < requests->depth);
    RP_ASSERT(request->bytes > 0 && (request->kind != RP_REQUEST_RANGE || request->expected));
    struct exchange *x = requests->exchanges;
    while (x->state != FREE)
        x++;
    requests->in_flight++;
    request->arrived = 0;
    x->request = request;
    x->tries = 0;
    x->failing_ns = 0;
    x->was_refused = false;
    ask(x);
}

static void take_messages(struct rp_requests *requests)
{
    CURLMsg *message;
    int left;
    while ((message = requests->curl->multi_info_read(requests->multi, &left))) {
        struct exchange *x = NULL;
        CURLcode code = message->data.result;
        requests->curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &x);
        requests->curl->multi_remove_handle(requests->multi, x->easy);
        conclude(x, code);
    }
}

/* Retry requests whose pause is over. Returns milliseconds until the next one is due. */
static uint64_t serve_pauses(struct rp_requests *requests)
{
    uint64_t now = rp_now_ns(), next = now + POLL_MS * MS;
    for (uint32_t i = 0; i < requests->depth; i++) {
        struct exchange *x = &requests->exchanges[i];
        if (x->state != PAUSED)
            continue;
        if (x->due_ns <= now)
            ask(x);
        else
            next = rp_min_u64(next, x->due_ns);
    }
    return (next - now) / MS;
}

static unsigned take_done(struct rp_requests *requests, struct rp_object_request **done,
                          unsigned max)
{
    unsigned taken = 0;
    for (uint32_t i = 0; i < requests->depth && taken < max && requests->done; i++) {
        struct exchange *x = &requests->exchanges[i];
        if (x->state != DONE)
            continue;
        done[taken++] = x->request;
        x->state = FREE;
        requests->done--;
        requests->in_flight--;
    }
    return taken;
}

unsigned rp_requests_wait(struct rp_requests *requests, struct rp_object_request **done,
                          unsigned max, const struct rp_requests_wait *wait)
{
    uint64_t wait_min = rp_min_u64(wait->wait_min, requests->in_flight);
    uint64_t end = wait->most_ms ? rp_now_ns() + wait->most_ms * MS : UINT64_MAX;
    for (;;) {
        int running;
        uint64_t pause_ms = serve_pauses(requests);
        CURLMcode code = requests->curl->multi_perform(requests->multi, &running);
        RP_ASSERT(code == CURLM_OK || code == CURLM_OUT_OF_MEMORY);
        take_messages(requests);
        if (requests->done >= wait_min || rp_now_ns() >= end ||
            (wait->is_stopping && wait->is_stopping(wait->context)))
            break;
        if (wait->most_ms)
            pause_ms = rp_min_u64(pause_ms, wait->most_ms);
        (void)requests->curl->multi_poll(requests->multi, NULL, 0, (int)pause_ms, NULL);
    }
    return take_done(requests, done, max);
}

uint64_t rp_requests_retries(const struct rp_requests *requests)
{
    return requests->retries;
}
