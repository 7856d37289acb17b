/* SPDX-License-Identifier: Apache-2.0 */
/* landmarks.c — see landmarks.h. */
#include "explain/landmarks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "plan/token_records.h"

#define SPACING_ROWS 10000u
/* A token for so many rows takes at most this much, so a file of all landmarks stays small. */
#define SPACING_BYTES (64u << 10)

static char *directory_of(const struct rp_config *config)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (config->cache_dir)
        return rp_format("%s/landmarks", config->cache_dir);
    if (cache && cache[0] == '/')
        return rp_format("%s/ringpack/landmarks", cache);
    if (home && home[0] == '/')
        return rp_format("%s/.cache/ringpack/landmarks", home);
    return NULL;
}

static bool remember(struct rp_landmarks *landmarks, uint32_t bytes)
{
    if (landmarks->count == landmarks->capacity) {
        size_t capacity = 2 * landmarks->capacity + 64;
        struct rp_landmark *list = reallocarray(landmarks->list, capacity, sizeof *list);
        if (!list)
            return false;
        landmarks->list = list;
        landmarks->capacity = capacity;
    }
    landmarks->list[landmarks->count] = (struct rp_landmark){rp_landmarks_next_row(landmarks),
                                                             landmarks->end, bytes};
    landmarks->count++;
    landmarks->end += bytes;
    return true;
}

static bool has_digest(const void *token)
{
    struct rp_state_header header;
    memcpy(&header, token, sizeof header);
    return header.version == RP_TOKEN_VERSION_DIGEST;
}

/* Find the tokens. Only their headers are looked at: rp_plan_load checks the one that is used.
 * Tokens without a plan digest, of an older version, are made anew. */
static void survey(struct rp_landmarks *landmarks, const struct rp_map *map, size_t bytes_max)
{
    struct rp_state_header header;
    while (map->bytes - landmarks->end >= sizeof header) {
        memcpy(&header, map->data + landmarks->end, sizeof header);
        if (memcmp(header.magic, RP_TOKEN_MAGIC, sizeof header.magic) != 0 ||
            !has_digest(&header) || header.bytes < sizeof header || header.bytes > bytes_max ||
            header.bytes > map->bytes - landmarks->end ||
            header.next_row != rp_landmarks_next_row(landmarks) ||
            !remember(landmarks, header.bytes))
            return;
    }
}

void rp_landmarks_open(struct rp_landmarks *landmarks, const struct rp_config *config,
                       struct rp_hash128 identity, size_t state_bytes_max)
{
    char hex[RP_HASH_HEX_BYTES];
    char *directory = directory_of(config);
    *landmarks = (struct rp_landmarks){
        .fd = -1, .spacing = SPACING_ROWS * rp_div_up(state_bytes_max, SPACING_BYTES)};
    if (directory && rp_dir_make(directory, NULL) == 0)
        landmarks->path = rp_format("%s/%s", directory, rp_hash128_hex(identity, hex));
    free(directory);
    if (!landmarks->path)
        return;
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    landmarks->fd = open(landmarks->path, O_RDWR | O_CREAT | flags, 0600);
    landmarks->can_add = landmarks->fd >= 0 && flock(landmarks->fd, LOCK_EX | LOCK_NB) == 0;
    if (landmarks->fd < 0)
        landmarks->fd = open(landmarks->path, O_RDONLY | flags);
    struct stat info;
    struct rp_map map = {0};
    if (landmarks->fd < 0 || fstat(landmarks->fd, &info) < 0 || !S_ISREG(info.st_mode) ||
        rp_map_file(&map, landmarks->fd, (uint64_t)info.st_size, landmarks->path, NULL) < 0) {
        landmarks->can_add = false;
        return;
    }
    survey(landmarks, &map, state_bytes_max);
    rp_map_close(&map);
}

void rp_landmarks_close(struct rp_landmarks *landmarks)
{
    if (landmarks->fd >= 0)
        close(landmarks->fd);
    free(landmarks->path);
    free(landmarks->list);
    *landmarks = (struct rp_landmarks){.fd = -1};
}

void rp_landmarks_add(struct rp_landmarks *landmarks, const void *token, size_t bytes)
{
    struct stat info;
    if (!landmarks->can_add || !has_digest(token))
        return;
    /* What is behind the last token is the rest of one that was cut short. */
    bool is_cut = fstat(landmarks->fd, &info) == 0 && (uint64_t)info.st_size > landmarks->end &&
                  ftruncate(landmarks->fd, (off_t)landmarks->end) < 0;
    landmarks->can_add = !is_cut &&
                         rp_file_write_at(landmarks->fd, landmarks->path, token, bytes,
                                          landmarks->end, NULL) == 0 &&
                         remember(landmarks, (uint32_t)bytes);
    landmarks->added += landmarks->can_add;
}

bool rp_landmarks_read(const struct rp_landmarks *landmarks, size_t number, void *token)
{
    const struct rp_landmark *landmark = &landmarks->list[number];
    return rp_file_read_at(landmarks->fd, landmarks->path, token, landmark->bytes, landmark->at,
                           NULL) == 0;
}

void rp_landmarks_drop(struct rp_landmarks *landmarks, size_t number)
{
    RP_ASSERT(number < landmarks->count);
    landmarks->count = number;
    landmarks->end = landmarks->list[number].at;
}
