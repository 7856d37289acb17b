/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/landmarks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/out_dir.h"

/* Documents and rows from one landmark to the next. They are few, because a length costs a page
 * fault or three where the index of the corpus is large. */
#define SPACING 4096u
/* Most bytes of landmarks for each of them; an index of a corpus has 12 to 20. */
#define BYTES_MOST 2u
#define CHECK_ROWS 4u /* planned between two checks of how many documents were read */

static char *directory_of(const struct rp_config *config)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (config->cache_dir)
        return rp_asprintf("%s/landmarks", config->cache_dir);
    if (cache && cache[0] == '/')
        return rp_asprintf("%s/ringpack/landmarks", cache);
    if (home && home[0] == '/')
        return rp_asprintf("%s/.cache/ringpack/landmarks", home);
    return NULL;
}

static bool remember(struct rp_landmarks *landmarks, uint64_t row, uint64_t bytes)
{
    if (!RP_GROW(landmarks->list, landmarks->capacity, landmarks->count + 1))
        return false;
    landmarks->list[landmarks->count] = (struct rp_landmark){row, landmarks->end, bytes};
    landmarks->count++;
    landmarks->end += bytes;
    return true;
}

/* Take over the index, as far as its entries fit the file. */
static void read_index(struct rp_landmarks *landmarks, uint64_t file_bytes, size_t bytes_max)
{
    struct stat info;
    struct rp_map map = {0};
    if (landmarks->index_fd < 0 || fstat(landmarks->index_fd, &info) < 0 ||
        !S_ISREG(info.st_mode) ||
        rp_map_file(&map, landmarks->index_fd, (uint64_t)info.st_size, landmarks->path, NULL) < 0)
        return;
    for (size_t i = 0; i < map.bytes / sizeof(struct rp_landmark); i++) {
        struct rp_landmark entry;
        memcpy(&entry, map.data + i * sizeof entry, sizeof entry);
        if (entry.at != landmarks->end || entry.bytes < RP_STATE_HEAD_BYTES ||
            entry.bytes > bytes_max || entry.bytes > file_bytes - landmarks->end ||
            entry.row <= rp_landmarks_last_row(landmarks) ||
            !remember(landmarks, entry.row, entry.bytes))
            break;
    }
    landmarks->indexed = landmarks->count;
    rp_map_close(&map);
}

/* Find the tokens. Only their headers are read: rp_plan_load checks the one that is used.
 * Tokens without a plan digest, of an older version, are made again. */
static void survey(struct rp_landmarks *landmarks, const struct rp_map *map, size_t bytes_max)
{
    while (map->bytes - landmarks->end >= RP_STATE_HEAD_BYTES) {
        struct rp_state_head head = rp_state_head(map->data + landmarks->end);
        if (head.stream_version == 0 || !head.has_digest || head.bytes < RP_STATE_HEAD_BYTES ||
            head.bytes > bytes_max || head.bytes > map->bytes - landmarks->end ||
            head.next_row <= rp_landmarks_last_row(landmarks) ||
            !remember(landmarks, head.next_row, head.bytes))
            return;
    }
}

static uint64_t planned_by(const struct rp_plan *plan)
{
    return rp_plan_documents(plan) + rp_plan_row(plan);
}

static void forget_from(struct rp_landmarks *landmarks, size_t number)
{
    landmarks->count = number;
    landmarks->end = landmarks->list[number].at;
    landmarks->indexed = number < landmarks->indexed ? number : landmarks->indexed;
}

/* The next landmark is added after the last one, so the last one has to be a token. */
static void check_last(struct rp_landmarks *landmarks)
{
    struct rp_state_info info;
    landmarks->planned = 0;
    while (landmarks->count > 0) {
        size_t last = landmarks->count - 1;
        void *token = rp_calloc(1, landmarks->list[last].bytes);
        bool is_token = token && rp_landmarks_read(landmarks, last, token) &&
                        rp_state_info(token, landmarks->list[last].bytes, &info, NULL) == 0;
        free(token);
        if (is_token) {
            landmarks->planned = info.counts.documents + info.counts.passed_over + info.next_row;
            return;
        }
        forget_from(landmarks, last);
    }
}

static void open_files(struct rp_landmarks *landmarks)
{
    int flags = O_NOFOLLOW | O_NONBLOCK, read_only = O_RDONLY | flags | O_CLOEXEC;
    char *index = rp_asprintf("%s.index", landmarks->path);
    landmarks->fd = rp_out_file_open(landmarks->path, O_RDWR | O_CREAT | flags, 0600, NULL);
    landmarks->can_add = landmarks->fd >= 0 && flock(landmarks->fd, LOCK_EX | LOCK_NB) == 0;
    if (landmarks->fd < 0)
        landmarks->fd = open(landmarks->path, read_only);
    if (index && landmarks->fd >= 0)
        landmarks->index_fd = landmarks->can_add
                                  ? rp_out_file_open(index, O_RDWR | O_CREAT | flags, 0600, NULL)
                                  : open(index, read_only);
    free(index);
}

void rp_landmarks_open(struct rp_landmarks *landmarks, const struct rp_config *config,
                       struct rp_hash128 identity, size_t state_bytes_max)
{
    char hex[RP_HASH_HEX_BYTES];
    char *directory = directory_of(config);
    *landmarks = (struct rp_landmarks){.fd = -1, .index_fd = -1};
    if (directory && rp_dir_make(directory, NULL) == 0)
        landmarks->path = rp_asprintf("%s/%s", directory, rp_hash128_hex(identity, hex));
    free(directory);
    if (!landmarks->path)
        return;
    open_files(landmarks);
    struct stat info;
    struct rp_map map = {0};
    if (landmarks->fd < 0 || fstat(landmarks->fd, &info) < 0 || !S_ISREG(info.st_mode) ||
        rp_map_file(&map, landmarks->fd, (uint64_t)info.st_size, landmarks->path, NULL) < 0) {
        landmarks->can_add = false;
        return;
    }
    read_index(landmarks, map.bytes, state_bytes_max);
    survey(landmarks, &map, state_bytes_max);
    rp_map_close(&map);
    check_last(landmarks);
}

void rp_landmarks_close(struct rp_landmarks *landmarks)
{
    if (landmarks->fd >= 0)
        close(landmarks->fd);
    if (landmarks->index_fd >= 0)
        close(landmarks->index_fd);
    free(landmarks->path);
    free(landmarks->list);
    *landmarks = (struct rp_landmarks){.fd = -1, .index_fd = -1};
}

size_t rp_landmarks_until(const struct rp_landmarks *landmarks, uint64_t row)
{
    RP_ASSERT(landmarks->count <= UINT32_MAX);
    return RP_COUNT_UP_TO(landmarks->list, (uint32_t)landmarks->count, row, row);
}

bool rp_landmarks_want(const struct rp_landmarks *landmarks, const struct rp_plan *plan)
{
    uint64_t row = rp_plan_row(plan), spacing = SPACING;
    if (!landmarks->can_add || row % CHECK_ROWS != 0 || row <= rp_landmarks_last_row(landmarks))
        return false;
    if (landmarks->count > 0)
        spacing = rp_max_u64(spacing, landmarks->list[landmarks->count - 1].bytes / BYTES_MOST);
    return planned_by(plan) - landmarks->planned >= spacing;
}

/* Write at the end of a file, and cut off all bytes after it: the rest of an unfinished write. */
static bool put(int fd, const char *path, const void *data, size_t bytes, uint64_t at)
{
    struct stat info;
    bool is_longer = fstat(fd, &info) == 0 && (uint64_t)info.st_size > at;
    return !(is_longer && ftruncate(fd, (off_t)at) < 0) &&
           rp_file_write_at(fd, path, data, bytes, at, NULL) == 0;
}

/* Entries that the index lacks. Without an index the file does. */
static void put_index(struct rp_landmarks *landmarks)
{
    size_t size = sizeof *landmarks->list, lacking = landmarks->count - landmarks->indexed;
    if (landmarks->index_fd >= 0 &&
        put(landmarks->index_fd, landmarks->path, landmarks->list + landmarks->indexed,
            lacking * size, landmarks->indexed * size))
        landmarks->indexed = landmarks->count;
}

void rp_landmarks_add(struct rp_landmarks *landmarks, const struct rp_plan *plan, void *token)
{
    size_t bytes = rp_plan_save(plan, token);
    if (!landmarks->can_add || bytes == 0 || !rp_state_head(token).has_digest)
        return;
    landmarks->can_add = put(landmarks->fd, landmarks->path, token, bytes, landmarks->end) &&
                         remember(landmarks, rp_plan_row(plan), bytes);
    if (!landmarks->can_add)
        return;
    put_index(landmarks);
    landmarks->planned = planned_by(plan);
    landmarks->added++;
}

bool rp_landmarks_read(const struct rp_landmarks *landmarks, size_t number, void *token)
{
    const struct rp_landmark *landmark = &landmarks->list[number];
    if (rp_file_read_at(landmarks->fd, landmarks->path, token, landmark->bytes, landmark->at, NULL))
        return false;
    return rp_state_head(token).next_row == landmark->row;
}

void rp_landmarks_drop(struct rp_landmarks *landmarks, size_t number)
{
    RP_ASSERT(number < landmarks->count);
    forget_from(landmarks, number);
    check_last(landmarks);
}
