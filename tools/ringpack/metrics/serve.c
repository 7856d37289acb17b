/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/serve.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "cmd.h"
#include "interrupt.h"
#include "metrics/microhttpd.h"
#include "metrics/page.h"
#include "metrics/text.h"

#define READER_NS UINT64_C(10000000000) /* a connection's whole life */
#define CROWDED_NS UINT64_C(1000000000) /* the same, while there is no room for others */
#define READER_SECONDS 10u
#define READER_MEMORY_BYTES ((size_t)16384) /* a request, and the head of its answer */
#define TICK_MS 250

struct reader {
    int fd; /* -1: free */
    uint64_t since_ns;
};

struct server {
    const struct rp_microhttpd *httpd;
    struct rp_watch *watch;
    bool is_loopback;
    uint64_t polled_ns; /* 0: never */
    char trouble[256];  /* why the last poll failed; "" = it did not */
    struct reader readers[RP_SERVE_READERS_MAX];
};

/* ---- the answers ----------------------------------------------------------------------------- */

static void poll_runs(struct server *server)
{
    struct rp_error error = {0};
    uint64_t now = rp_now_ns();
    bool is_fresh = server->polled_ns && now - server->polled_ns < RP_SERVE_FRESH_NS;
    if (is_fresh)
        return;
    int code = rp_watch_poll(server->watch, RP_SERVE_PATIENCE_NS, &error);
    snprintf(server->trouble, sizeof server->trouble, "%s",
             code < 0 ? error.message[0] ? error.message : rp_strerror(code) : "");
    server->polled_ns = rp_now_ns();
}

static unsigned say_metrics(struct server *server, FILE *out)
{
    poll_runs(server);
    rp_metrics_text(out, server->watch, RP_METRICS_OPEN);
    return MHD_HTTP_OK;
}

static unsigned say_health(struct server *server, FILE *out)
{
    poll_runs(server);
    bool is_well = rp_metrics_health(out, server->watch) && !server->trouble[0];
    if (server->trouble[0])
        fprintf(out, "%s\n", server->trouble);
    fputs(is_well ? "ok\n" : "", out);
    return is_well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
}

static unsigned say_stat(struct server *server, FILE *out)
{
    poll_runs(server);
    uint64_t now = rp_now_ns();
    json_t *engines = json_array();
    for (size_t i = 0; i < server->watch->count; i++)
        json_array_append_new(engines, rp_watch_json(&server->watch->runs[i], now));
    json_t *all = json_pack("{s:o, s:o}", "engines", engines, "trouble",
                            rp_cmd_json_text(server->trouble));
    if (all)
        json_dumpf(all, out, JSON_COMPACT);
    json_decref(all);
    return MHD_HTTP_OK;
}

static unsigned say_page(struct server *server, FILE *out)
{
    (void)server;
    fwrite(rp_metrics_page, 1, rp_metrics_page_bytes, out);
    return MHD_HTTP_OK;
}

static const struct place {
    const char *path, *type;
    unsigned (*say)(struct server *server, FILE *out);
} places[] = {
    {"/metrics", RP_METRICS_CONTENT_TYPE, say_metrics},
    {"/healthz", "text/plain; charset=utf-8", say_health},
    {"/stat.json", "application/json", say_stat},
    {"/", "text/html; charset=utf-8", say_page},
};

/* ---- answers --------------------------------------------------------------------------------- */

/* Takes the text, which was malloc'ed. */
static enum MHD_Result answer(const struct server *server, struct MHD_Connection *connection,
                              unsigned status, const char *type, char *text, size_t bytes)
{
    static const char *const headers[][2] = {
        {"Connection", "close"},
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src "
                                    "'unsafe-inline'; connect-src 'self'; img-src data:; "
                                    "frame-ancestors 'none'"}};
    struct MHD_Response *response = server->httpd->create_response_from_buffer(
        bytes, text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    enum MHD_Result result = server->httpd->add_response_header(response,
                                                                MHD_HTTP_HEADER_CONTENT_TYPE, type);
    for (size_t i = 0; i < RP_ARRAY_COUNT(headers); i++)
        if (server->httpd->add_response_header(response, headers[i][0], headers[i][1]) != MHD_YES)
            result = MHD_NO;
    if (result == MHD_YES)
        result = server->httpd->queue_response(connection, status, response);
    server->httpd->destroy_response(response);
    return result;
}

static enum MHD_Result refuse(const struct server *server, struct MHD_Connection *connection,
                              unsigned status, const char *why)
{
    char *text = strdup(why);
    return text
               ? answer(server, connection, status, "text/plain; charset=utf-8", text, strlen(text))
               : MHD_NO;
}

/* A page of a stranger in a browser of this machine may lead a name of its own to 127.0.0.1, and
 * would then read the answers. Such a request has that name as its host. */
static bool is_host_of_loopback(const char *host)
{
    char name[64];
    struct in_addr address;
    if (!host)
        return true; /* HTTP/1.0 */
    if (!strncmp(host, "[::1]", 5) && (host[5] == '\0' || host[5] == ':'))
        return true;
    snprintf(name, sizeof name, "%.*s", (int)rp_min_u64(strcspn(host, ":"), sizeof name - 1), host);
    return !strcasecmp(name, "localhost") ||
           (inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

static enum MHD_Result serve(void *context, struct MHD_Connection *connection, const char *url,
                             const char *method, const char *version, const char *upload,
                             size_t *upload_bytes, void **request)
{
    static const char listing[] = "expected /metrics, /healthz, /stat.json or /\n";
    struct server *server = context;
    (void)version;
    (void)upload;
    (void)upload_bytes;
    (void)request;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return refuse(server, connection, MHD_HTTP_METHOD_NOT_ALLOWED, "expected GET or HEAD\n");
    if (server->is_loopback && !is_host_of_loopback(server->httpd->lookup_connection_value(
                                   connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST)))
        return refuse(server, connection, MHD_HTTP_FORBIDDEN, "expected localhost as the host\n");
    for (size_t i = 0; i < RP_ARRAY_COUNT(places); i++) {
        char *text = NULL;
        size_t bytes = 0;
        if (strcmp(url, places[i].path) != 0)
            continue;
        FILE *out = open_memstream(&text, &bytes);
        unsigned status = out ? places[i].say(server, out) : MHD_HTTP_INTERNAL_SERVER_ERROR;
        if (out && fclose(out) == 0)
            return answer(server, connection, status, places[i].type, text, bytes);
        free(text);
        return MHD_NO;
    }
    return refuse(server, connection, MHD_HTTP_NOT_FOUND, listing);
}

/* ---- readers --------------------------------------------------------------------------------- */

static void note_reader(void *context, struct MHD_Connection *connection, void **own,
                        enum MHD_ConnectionNotificationCode event)
{
    struct server *server = context;
    const union MHD_ConnectionInfo *info = server->httpd->get_connection_info(
        connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (event == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct reader *reader = *own;
        if (reader)
            reader->fd = -1;
        return;
    }
    for (size_t i = 0; info && i < RP_SERVE_READERS_MAX; i++)
        if (server->readers[i].fd < 0) {
            server->readers[i] = (struct reader){info->connect_fd, rp_now_ns()};
            *own = &server->readers[i];
            return;
        }
}

/* libmicrohttpd's own limit begins again with each byte, so whoever sends one now and then would
 * keep a connection for ever. */
static void cut_off_slow_readers(struct server *server)
{
    uint64_t now = rp_now_ns();
    size_t count = 0;
    for (size_t i = 0; i < RP_SERVE_READERS_MAX; i++)
        count += server->readers[i].fd >= 0;
    uint64_t most = count == RP_SERVE_READERS_MAX ? CROWDED_NS : READER_NS;
    for (size_t i = 0; i < RP_SERVE_READERS_MAX; i++)
        if (server->readers[i].fd >= 0 && now - server->readers[i].since_ns > most)
            shutdown(server->readers[i].fd, SHUT_RDWR);
}

static int run(struct server *server, struct MHD_Daemon *daemon, struct rp_error *error)
{
    const union MHD_DaemonInfo *info = server->httpd->get_daemon_info(daemon,
                                                                      MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return rp_fail(error, -RP_E_RESOURCE, NULL, "libmicrohttpd was built without epoll");
    while (!rp_interrupted()) {
        MHD_UNSIGNED_LONG_LONG wanted_ms;
        bool is_limited = server->httpd->get_timeout(daemon, &wanted_ms) == MHD_YES;
        struct pollfd entry = {.fd = info->epoll_fd, .events = POLLIN};
        (void)poll(&entry, 1, is_limited ? (int)rp_min_u64(wanted_ms, TICK_MS) : TICK_MS);
        cut_off_slow_readers(server);
        if (server->httpd->run(daemon) != MHD_YES)
            return rp_fail(error, -RP_E_RESOURCE, NULL, "libmicrohttpd cannot continue");
    }
    return 0;
}

int rp_serve_run(struct rp_watch *watch, const struct rp_serve_place *place, int fd,
                 struct rp_error *error)
{
    struct server server = {
        .watch = watch, .is_loopback = place->is_loopback, .httpd = rp_microhttpd_load(error)};
    for (size_t i = 0; i < RP_SERVE_READERS_MAX; i++)
        server.readers[i].fd = -1;
    struct MHD_Daemon *daemon = server.httpd
                                    ? server.httpd->start_daemon(
                                          MHD_USE_EPOLL, 0, NULL, NULL, serve, &server,
                                          MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                                          RP_SERVE_READERS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                                          READER_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                          READER_MEMORY_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
                                          note_reader, &server, MHD_OPTION_END)
                                    : NULL;
    if (!daemon) {
        close(fd);
        return server.httpd ? rp_fail(error, -RP_E_RESOURCE, NULL, "libmicrohttpd cannot start")
                            : -RP_E_RESOURCE;
    }
    int code = run(&server, daemon, error);
    server.httpd->stop_daemon(daemon); /* closes fd */
    return code;
}
