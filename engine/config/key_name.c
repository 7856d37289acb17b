/* SPDX-License-Identifier: Apache-2.0 */
/* key_name.c — find a key by the name that a user typed, or by a name that it had before. */
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "config/key_name.h"

#define CORPUS "corpus"
#define OLDER_SIZE "window" /* the size of each packing */
#define SECOND_SIZE "open_bins"

/* A key may be typed batch-size or batch_size. */
static void undashed(char out[RP_TEXT_WORD_MAX], const char *name)
{
    size_t i = 0;
    for (; name[i] && i + 1 < RP_TEXT_WORD_MAX; i++)
        out[i] = name[i] == '-' ? '_' : name[i];
    out[i] = '\0';
}

const struct rp_config_older_name rp_config_older_names[] = {
    {"num_workers", "readers"},
    {"direct", "o_direct"},
    {"run_record_dir", "mount_guard_dir"},
    {"checkpoint_copy_dir", "checkpoint_mirror_dir"},
    {"drop_unmasked", "drop_untrained"},
    {"replicas", "consumers_per_rank"},
    {"fill", "row_gap"},
    {"lanes", "plan_partitions"},
    {OLDER_SIZE, "packing_buffer"}, /* and the key SECOND_SIZE */
    {NULL, NULL},
};

/* `name`, or the present name of the key; `corpus` is another name of `sources`, as in Python. */
static const char *newer(const char *name)
{
    if (!strcmp(name, CORPUS))
        return "sources";
    for (const struct rp_config_older_name *entry = rp_config_older_names; entry->older; entry++)
        if (!strcmp(entry->older, name))
            return entry->name;
    return name;
}

void rp_key_tell_older(const struct rp_config *config, const struct rp_key *key, const char *name)
{
    char wanted[RP_TEXT_WORD_MAX];
    undashed(wanted, name);
    const char *more = strcmp(wanted, OLDER_SIZE) ? ""
                                                  : ", or, with packing: best_fit, `" SECOND_SIZE
                                                    "`";
    if (strcmp(wanted, key->name) != 0 && strcmp(wanted, CORPUS) != 0 && !config->is_kept)
        rp_log(RP_LOG_WARNING,
               "config: `%s` is now `%s`%s; the next version does not read the older name", wanted,
               key->name, more);
}

size_t rp_key_index(const struct rp_key_list *list, const char *name)
{
    size_t i = 0;
    while (i < list->count && strcmp(list->keys[i].name, name) != 0)
        i++;
    return i;
}

const struct rp_key *rp_key_twin(const struct rp_key_list *list, const char *name)
{
    size_t i = rp_key_index(list, SECOND_SIZE);
    return i < list->count && !strcmp(name, OLDER_SIZE) ? &list->keys[i] : NULL;
}

int rp_key_find(const struct rp_key_list *list, const char *name, struct rp_key_place place,
                const struct rp_key **key_out, struct rp_error *error)
{
    char wanted[RP_TEXT_WORD_MAX];
    undashed(wanted, name);
    size_t found = rp_key_index(list, wanted);
    if (found == list->count)
        found = rp_key_index(list, newer(wanted));
    *key_out = &list->keys[found];
    if (found < list->count)
        return 0;
    struct rp_text_near near = {.word = wanted};
    for (size_t i = 0; i < list->count; i++)
        rp_text_offer(&near, list->keys[i].name);
    if (near.best)
        return rp_key_fail(place, name, "`ringpack config keys` lists the keys", error,
                           "unknown key; did you mean `%s`?", near.best);
    return rp_key_fail(place, name,
                       "`ringpack config keys` lists the keys of this version, " RP_VERSION
                       "; a config of a newer version may have others",
                       error, "unknown key");
}
