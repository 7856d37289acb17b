/* SPDX-License-Identifier: Apache-2.0 */
/* families.h — which metrics there are: one line for each, with the key of the engine's answer that
 * it shows.
 *
 * A name is `ringpack_`, the counted quantity, and its unit; a counter's samples end with `_total`.
 * A name is never given another meaning, because dashboards and alerts of users hold it. */
#ifndef RP_TOOLS_FAMILIES_H
#define RP_TOOLS_FAMILIES_H

#include <stddef.h>

enum rp_family_type { RP_GAUGE, RP_COUNTER };

struct rp_family {
    const char *name; /* without `ringpack_` and `_total` */
    enum rp_family_type type;
    const char *unit; /* NULL = none; otherwise the name ends with it */
    const char *key;  /* key in the object; a dot joins the keys of nested objects */
    const char *help;
};

#define RP_LABELS_MAX 3u

/* Families whose samples have `run` and the same other labels. */
struct rp_family_group {
    const char *array; /* key of an array of objects, with a sample for each; NULL = the answer */
    const char *labels[RP_LABELS_MAX]; /* keys of the objects; NULL = no further ones */
    const struct rp_family *families;
    size_t count;
};

extern const struct rp_family_group rp_family_groups[];
extern const size_t rp_family_group_count;

#endif
