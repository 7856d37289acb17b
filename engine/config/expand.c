/* SPDX-License-Identifier: Apache-2.0 */
/* expand.c — expand the patterns of a source to the paths of its shards.
 *
 * A path without wildcards is kept even if no such file exists, because a run that resumes from
 * contents may have lost its token files. For the same reason an index or a sidecar that matches a
 * pattern counts as its token file. The matches of a pattern are sorted bytewise, whatever the
 * locale; the patterns keep their order. The readers of corpus/ list the shards of a directory, in
 * their order.
 *
 * Errors: -RP_E_CONFIG if a pattern has no match or a shard is named twice. */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/key.h"
#include "corpus/folder.h"
#include "corpus/readers.h"
#include "corpus/index/index.h"
#include "object/fetch.h"
#include "object/remote.h"
#include "object/url.h"

#define BRACE_PATTERNS_MAX 65536u
#define GLOB_DEPTH_MAX 128u

int rp_first_twin(char *const *texts, size_t count, const char **twin_out, struct rp_error *error)
{
    *twin_out = NULL;
    char **sorted = rp_calloc(count, sizeof *sorted);
    if (!sorted)
        return rp_fail(error, -ENOMEM, NULL, "out of memory while comparing names");
    if (count)
        memcpy(sorted, texts, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, rp_text_compare);
    for (size_t i = 1; i < count && !*twin_out; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            *twin_out = sorted[i];
    free(sorted);
    return 0;
}

/* The token file of an index (NAME.idx -> NAME.bin) or a sidecar (PATH.rpi -> PATH), or the path
 * itself. */
static char *token_file(const char *path)
{
    int stem = (int)strlen(path) - 4;
    if (rp_text_has_suffix(path, ".idx"))
        return rp_asprintf("%.*s.bin", stem, path);
    return rp_folder_is_sidecar(path) ? rp_asprintf("%.*s", stem, path) : strdup(path);
}

/* A folder stands for the files of the dataset that it holds, in their order. */
static int expand_directory(struct rp_config_source *found, const char *path,
                            struct rp_error *error)
{
    struct rp_paths files = {0};
    int code = rp_readers_expand(path, &files, error);
    for (size_t i = 0; code == 0 && i < files.count; i++)
        code = rp_config_source_add_shard(found, NULL, files.paths[i], error);
    rp_paths_release(&files);
    return code;
}

static int fail_nothing(const char *pattern, bool wild, struct rp_key_place place,
                        struct rp_error *error)
{
    char hint[512] = "check the path: those in a config begin at its folder", below[256];
    if (wild)
        return rp_key_fail(place, "shards", hint, error, "%s: no file matches", pattern);
    if (rp_folder_below(pattern, below, sizeof below))
        snprintf(hint, sizeof hint, "name the folder of the files in it, for instance %s", below);
    size_t used = strlen(hint);
    used += (size_t)snprintf(hint + used, sizeof hint - used,
                             "; text: `ringpack convert --tokenizer FOLDER -o PREFIX DIR`; "
                             "a directory holds one of: ");
    rp_readers_folders(hint + used, sizeof hint - used);
    return rp_key_fail(place, "shards", hint, error, "%s: the directory holds no token files",
                       pattern);
}

/* Whether braces expand to at most BRACE_PATTERNS_MAX patterns. {a,b}{a,b}… doubles with every
 * pair, so a pattern of 200 bytes could take years. The estimate is the worst case: all pairs have
 * the same number of alternatives. */
static bool braces_are_few(const char *pattern)
{
    uint64_t braces = 0, commas = 0, patterns = 1;
    for (const char *at = pattern; *at; at++) {
        braces += *at == '{';
        commas += *at == ',';
    }
    for (uint64_t i = 0; i < braces && patterns <= BRACE_PATTERNS_MAX; i++)
        patterns *= 1 + rp_div_up(commas, braces);
    return patterns <= BRACE_PATTERNS_MAX;
}

/* glob(3) recurses for every slash and every brace, with a copy of the pattern on the stack, so a
 * few thousand of them would overflow the stack. */
static bool is_shallow(const char *pattern)
{
    unsigned depth = 0;
    for (const char *at = pattern; *at && depth <= GLOB_DEPTH_MAX; at++)
        depth += *at == '/' || *at == '{';
    return depth <= GLOB_DEPTH_MAX && strlen(pattern) < PATH_MAX;
}

/* The directory that glob could not read; its callback has no argument for a result. */
static _Thread_local char unread[512];
static _Thread_local int unread_errno;

static int note_unread(const char *path, int number)
{
    snprintf(unread, sizeof unread, "%s", path);
    unread_errno = number;
    return number != ENOENT && number != ENOTDIR; /* these have no match */
}

/* The index of a corpus may be in the directory of its shards, and is not a shard. */
static int add_token_file(struct rp_config_source *found, const char *path, struct rp_error *error)
{
    struct stat info;
    char *file = token_file(path);
    bool has_tokens = file && stat(file, &info) == 0 && !S_ISDIR(info.st_mode);
    int code = !file ? rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards")
               : strcmp(file, path) && !has_tokens && rp_index_is_of_corpus(path)
                   ? 0
                   : rp_config_source_add_shard(found, NULL, file, error);
    free(file);
    return code;
}

/* The pattern with its folders that exist by that very name escaped, as `run[1]` of
 * /data/run[1]/x.bin: neither is a folder of the config file one of the user's patterns. *is_wild:
 * a wildcard is left. The caller frees it; NULL when out of memory. */
static char *escape_folders(const char *pattern, bool *is_wild)
{
    size_t length = strlen(pattern), literal = 0, used = 0;
    char *escaped = rp_calloc(2 * length + 1, 1), *folder = strdup(pattern);
    struct stat info;
    for (size_t i = 1; escaped && folder && i < length; i++) {
        if (pattern[i] != '/')
            continue;
        folder[i] = '\0';
        if (stat(folder, &info) < 0 || !S_ISDIR(info.st_mode))
            break;
        folder[i] = '/';
        literal = i;
    }
    for (size_t i = 0; escaped && i < length; i++) {
        if (i < literal && strchr("*?[]{},\\", pattern[i]))
            escaped[used++] = '\\';
        escaped[used++] = pattern[i];
    }
    *is_wild = strpbrk(pattern + literal, "*?[{") != NULL;
    free(folder);
    return folder ? escaped : NULL;
}

static int expand_escaped(struct rp_config_source *found, const char *pattern, const char *escaped,
                          struct rp_error *error)
{
    glob_t matches;
    int outcome = glob(escaped, GLOB_NOSORT | GLOB_BRACE, note_unread, &matches);
    if (outcome == GLOB_NOMATCH)
        return 0;
    if (outcome == GLOB_ABORTED) {
        globfree(&matches);
        return rp_fail(error, -unread_errno,
                       "check its permissions, or write a pattern that leaves it out",
                       "%s: %s cannot be listed: %s", pattern, unread, strerror(unread_errno));
    }
    if (outcome != 0)
        return rp_fail(error, outcome == GLOB_NOSPACE ? -ENOMEM : -EIO, NULL,
                       "%s: the pattern cannot be expanded", pattern);
    int code = 0;
    for (size_t i = 0; code == 0 && i < matches.gl_pathc; i++) {
        struct stat info;
        bool directory = stat(matches.gl_pathv[i], &info) == 0 && S_ISDIR(info.st_mode);
        if (!directory)
            code = add_token_file(found, matches.gl_pathv[i], error);
    }
    globfree(&matches);
    return code;
}

/* Sort the shards from `first` on. Repetitions occur where an index and its token file both match.
 */
static void tidy_matches(struct rp_config_source *found, uint32_t first)
{
    uint32_t count = found->shard_count - first;
    if (count > 0)
        found->shard_count = first + (uint32_t)rp_text_sort(found->shards + first, count);
}

static int expand_glob(struct rp_config_source *found, const char *pattern, struct rp_error *error)
{
    bool is_wild;
    uint32_t first = found->shard_count;
    char *escaped = escape_folders(pattern, &is_wild);
    int code = !escaped  ? rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards")
               : is_wild ? expand_escaped(found, pattern, escaped, error)
                         : rp_config_source_add_shard(found, NULL, pattern, error);
    tidy_matches(found, first);
    free(escaped);
    return code;
}

/* Whether a path is the PREFIX of an existing Megatron dataset; it may contain wildcard characters.
 */
static bool is_prefix(const char *path)
{
    return rp_path_exists("%s.idx", path) || rp_path_exists("%s.bin", path);
}

/* The matches of a pattern of a bucket. */
struct objects {
    struct rp_config_source *found;
    struct rp_paths indexes; /* sidecars, or indexes of a corpus */
};

static int add_object(void *context, const char *url, struct rp_error *error)
{
    struct objects *objects = context;
    if (rp_url_has_suffix(url, RP_INDEX_SUFFIX))
        return rp_paths_add(&objects->indexes, url, error);
    char *file = rp_url_has_suffix(url, ".idx")                ? rp_url_companion(url, 4, ".bin")
                 : rp_url_has_suffix(url, RP_INDEX_SUFFIX_OLD) ? rp_url_companion(url, 4, "")
                                                               : strdup(url);
    int code = file ? rp_config_source_add_shard(objects->found, NULL, file, error)
                    : rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
    free(file);
    return code;
}

static bool is_index_of_corpus(const char *url)
{
    struct rp_index *index;
    struct rp_error ignored;
    bool is_open = rp_index_open_place(&index, url, NULL, &ignored) == 0;
    rp_index_close(index);
    return is_open;
}

/* The token files of sidecars that the bucket did not list. */
static int list_unlisted(const struct objects *objects, uint32_t first, struct rp_paths *files,
                         struct rp_paths *indexes, struct rp_error *error)
{
    const struct rp_config_source *found = objects->found;
    size_t listed = found->shard_count - first;
    int code = 0;
    for (size_t i = 0; code == 0 && i < objects->indexes.count; i++) {
        const char *index = objects->indexes.paths[i];
        char *file = rp_url_companion(index, strlen(RP_INDEX_SUFFIX), "");
        if (!file)
            code = rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
        else if (listed == 0 || !bsearch(&file, found->shards + first, listed,
                                         sizeof *found->shards, rp_text_compare))
            code = rp_paths_add(files, file, error);
        if (code == 0 && files->count > indexes->count)
            code = rp_paths_add(indexes, index, error);
        free(file);
    }
    return code;
}

/* As add_token_file: a sidecar counts as its token file, the index of a corpus as none. */
static int add_indexed(const struct objects *objects, uint32_t first, struct rp_error *error)
{
    struct rp_paths files = {0}, indexes = {0};
    int code = list_unlisted(objects, first, &files, &indexes, error);
    struct rp_remote_stat *stats = rp_calloc(files.count, sizeof *stats);
    if (code == 0 && !stats)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
    if (code == 0 && files.count)
        code = rp_fetch_stats((const char *const *)files.paths, files.count, true, stats, error);
    for (size_t i = 0; code == 0 && i < files.count; i++)
        if (stats[i].bytes > 0 || !is_index_of_corpus(indexes.paths[i]))
            code = rp_config_source_add_shard(objects->found, NULL, files.paths[i], error);
    rp_paths_release(&files);
    rp_paths_release(&indexes);
    free(stats);
    return code;
}

/* As a glob or a directory is expanded, with the objects of a bucket. */
static int expand_url(struct rp_config_source *found, const char *pattern,
                      struct rp_key_place place, struct rp_error *error)
{
    bool wild = rp_url_is_pattern(pattern);
    bool is_folder = !wild && rp_url_has_suffix(pattern, "/");
    if (!wild && !is_folder)
        return rp_config_source_add_shard(found, NULL, pattern, error);
    uint32_t first = found->shard_count;
    struct objects objects = {.found = found};
    int code = is_folder ? expand_directory(found, pattern, error)
                         : rp_remote_list(pattern, add_object, &objects, error);
    if (code == 0 && wild)
        tidy_matches(found, first);
    if (code == 0 && objects.indexes.count)
        code = add_indexed(&objects, first, error);
    rp_paths_release(&objects.indexes);
    if (code == 0 && found->shard_count == first) {
        char *name = rp_url_name(pattern);
        code = rp_key_fail(place, "shards", "check the bucket and the key", error,
                           "%s: no object matches", name ? name : "");
        free(name);
    }
    return code;
}

static int expand_pattern(struct rp_config_source *found, const char *pattern,
                          struct rp_key_place place, struct rp_error *error)
{
    struct stat info;
    if (rp_url_is(pattern))
        return expand_url(found, pattern, place, error);
    bool exists = stat(pattern, &info) == 0;
    bool wild = !exists && strpbrk(pattern, "*?[{") != NULL && !is_prefix(pattern);
    if (!wild && !(exists && S_ISDIR(info.st_mode)))
        return rp_config_source_add_shard(found, NULL, pattern, error);
    if (wild && !is_shallow(pattern))
        return rp_key_fail(place, "shards", "use `*`, or name a directory", error,
                           "%.200s: a pattern has at most %u slashes and braces, and %u bytes",
                           pattern, GLOB_DEPTH_MAX, PATH_MAX - 1);
    if (wild && !braces_are_few(pattern))
        return rp_key_fail(place, "shards", "use `*`, or name a directory", error,
                           "%.200s: its braces stand for more than %u patterns", pattern,
                           BRACE_PATTERNS_MAX);
    uint32_t first = found->shard_count;
    int code = wild ? expand_glob(found, pattern, error) : expand_directory(found, pattern, error);
    if (code == 0 && found->shard_count == first)
        code = fail_nothing(pattern, wild, place, error);
    return code;
}

int rp_config_source_expand(struct rp_config_source *source, struct rp_key_place place,
                            struct rp_error *error)
{
    struct rp_config_source found = {0};
    const char *twin = NULL;
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < source->shard_count; i++)
        code = expand_pattern(&found, source->shards[i], place, error);
    if (code == 0)
        code = rp_first_twin(found.shards, found.shard_count, &twin, error);
    if (code == 0 && twin) {
        char *name = rp_url_is(twin) ? rp_url_name(twin) : strdup(twin);
        code = rp_key_fail(place, "shards", "name every shard once; use weight for more of it",
                           error, "%s: the source has this shard twice", name ? name : "");
        free(name);
    }
    if (code < 0) {
        rp_config_source_free(&found);
        return code;
    }
    source->patterns = source->shards;
    source->pattern_count = source->shard_count;
    source->shards = found.shards;
    source->shard_count = found.shard_count;
    return 0;
}
