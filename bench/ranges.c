/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.c — one object by plain libcurl, in ranges, some at a time: the limit that remote.py
 * compares the engine with.
 *
 *     ringpack_ranges URL BYTES RANGE_BYTES DEPTH
 *
 * One thread and one multi handle. Each of DEPTH connections is kept, and has a buffer of its own,
 * without a reader: its bytes are copied there as they arrive. Prints JSON. */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct lane {
    CURL *handle;
    char *buffer; /* [range_bytes] */
    size_t room, arrived;
};

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static size_t take(char *data, size_t size, size_t count, void *context)
{
    struct lane *lane = context;
    size_t bytes = size * count;
    if (bytes > lane->room - lane->arrived)
        return 0;
    memcpy(lane->buffer + lane->arrived, data, bytes);
    lane->arrived += bytes;
    return bytes;
}

/* Request the next range, if there is one. Returns its bytes. */
static size_t ask(CURLM *multi, struct lane *lane, uint64_t *offset, uint64_t bytes, size_t most)
{
    char range[64];
    if (*offset == bytes)
        return 0;
    lane->room = bytes - *offset < most ? (size_t)(bytes - *offset) : most;
    lane->arrived = 0;
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, *offset, *offset + lane->room - 1);
    *offset += lane->room;
    curl_easy_setopt(lane->handle, CURLOPT_RANGE, range);
    curl_multi_add_handle(multi, lane->handle);
    return lane->room;
}

static struct lane *open_lanes(const char *url, size_t depth, size_t range_bytes)
{
    struct lane *lanes = calloc(depth, sizeof *lanes);
    for (size_t i = 0; lanes && i < depth; i++) {
        lanes[i].handle = curl_easy_init();
        lanes[i].buffer = malloc(range_bytes);
        if (!lanes[i].handle || !lanes[i].buffer)
            return NULL;
        memset(lanes[i].buffer, 0, range_bytes); /* its pages are there before the clock runs */
        curl_easy_setopt(lanes[i].handle, CURLOPT_URL, url);
        curl_easy_setopt(lanes[i].handle, CURLOPT_WRITEFUNCTION, take);
        curl_easy_setopt(lanes[i].handle, CURLOPT_WRITEDATA, &lanes[i]);
        curl_easy_setopt(lanes[i].handle, CURLOPT_PRIVATE, &lanes[i]);
        curl_easy_setopt(lanes[i].handle, CURLOPT_BUFFERSIZE, 512L << 10);
        curl_easy_setopt(lanes[i].handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    }
    return lanes;
}

/* 0, or libcurl's code of the first range that failed. */
static CURLcode fetch(CURLM *multi, struct lane *lanes, size_t depth, uint64_t bytes, size_t most)
{
    uint64_t offset = 0, done = 0;
    for (size_t i = 0; i < depth; i++)
        ask(multi, &lanes[i], &offset, bytes, most);
    while (done < bytes) {
        int running, left;
        curl_multi_perform(multi, &running);
        for (CURLMsg *said; (said = curl_multi_info_read(multi, &left));) {
            struct lane *lane;
            CURLcode code = said->data.result;
            curl_easy_getinfo(said->easy_handle, CURLINFO_PRIVATE, (char **)&lane);
            curl_multi_remove_handle(multi, lane->handle);
            if (code != CURLE_OK || lane->arrived != lane->room)
                return code != CURLE_OK ? code : CURLE_PARTIAL_FILE;
            done += lane->room;
            ask(multi, lane, &offset, bytes, most);
        }
        if (running && done < bytes)
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    return CURLE_OK;
}

int main(int count, char **arguments)
{
    if (count != 5) {
        fprintf(stderr, "usage: ringpack_ranges URL BYTES RANGE_BYTES DEPTH\n");
        return 2;
    }
    uint64_t bytes = strtoull(arguments[2], NULL, 10);
    size_t most = (size_t)strtoull(arguments[3], NULL, 10);
    size_t depth = (size_t)strtoull(arguments[4], NULL, 10);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURLM *multi = curl_multi_init();
    struct lane *lanes = most && depth ? open_lanes(arguments[1], depth, most) : NULL;
    if (!multi || !lanes) {
        fprintf(stderr, "ringpack_ranges: no memory for %zu ranges\n", depth);
        return 1;
    }
    double begin = seconds_now(), cpu = cpu_seconds();
    CURLcode code = fetch(multi, lanes, depth, bytes, most);
    if (code != CURLE_OK) {
        fprintf(stderr, "ringpack_ranges: %s\n", curl_easy_strerror(code));
        return 1;
    }
    printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", seconds_now() - begin,
           cpu_seconds() - cpu);
    return 0;
}
