/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.c — see snapshot.h. Snapshots are stored one after the other, each as its pieces. */
#include "snapshot.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SNAPSHOTS 4096u
#define BYTES (1u << 30) /* address space: as much memory as is used */

struct piece { /* its bytes come after it */
    void *at;
    size_t bytes;
};

static struct {
    unsigned choice;
    size_t begin;
} snapshots[SNAPSHOTS];
static unsigned count;
static uint8_t *stored;
static size_t used;
static bool is_full;

bool snapshot_begin(unsigned choice)
{
    stored = stored ? stored : malloc(BYTES);
    if (!stored || is_full || count == SNAPSHOTS)
        return false;
    snapshots[count].choice = choice;
    snapshots[count++].begin = used;
    return true;
}

/* A snapshot that does not fit is removed. */
void snapshot_add(void *at, size_t bytes)
{
    struct piece piece = {at, bytes};
    size_t room = sizeof piece + (bytes + 7) / 8 * 8;
    is_full = is_full || room > BYTES - used;
    if (is_full)
        return;
    memcpy(stored + used, &piece, sizeof piece);
    memcpy(stored + used + sizeof piece, at, bytes);
    used += room;
}

static void remove_newest(void)
{
    used = snapshots[--count].begin;
    is_full = false;
}

bool snapshot_find(unsigned last, unsigned *choice)
{
    if (is_full)
        remove_newest();
    while (count > 0 && snapshots[count - 1].choice > last)
        remove_newest();
    if (count > 0)
        *choice = snapshots[count - 1].choice;
    return count > 0;
}

void snapshot_restore(void)
{
    for (size_t at = snapshots[count - 1].begin; at < used;) {
        struct piece piece;
        memcpy(&piece, stored + at, sizeof piece);
        memcpy(piece.at, stored + at + sizeof piece, piece.bytes);
        at += sizeof piece + (piece.bytes + 7) / 8 * 8;
    }
}

void snapshot_clear(void)
{
    count = 0;
    used = 0;
    is_full = false;
}
