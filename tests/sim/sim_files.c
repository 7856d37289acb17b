/* SPDX-License-Identifier: Apache-2.0 */
/* sim_files.c — a file system in memory with power cuts: each write since the last fsync of a file
 * may be lost or torn, and each change of a directory since its last fsync may be undone.
 *
 * Paths are absolute or relative to a directory descriptor; there are no links and no modes. */
#include "sim_wrap.h"

#include <string.h>
#include <unistd.h>

#include "sim_files.h"

#define TORN_BYTES 512u
#define NODES_MAX 4096

static struct sim_node *root;
static struct sim_node *nodes[NODES_MAX]; /* all files and directories, for power cuts */
static uint32_t node_count;
static uint64_t numbers;
static struct sim_descriptor descriptors[SIM_FDS_MAX];

void sim_maps_reset(void);
void sim_maps_close(const struct sim_process *process);

/* ---- nodes ----------------------------------------------------------------------------------- */

struct sim_node *sim_node_new(enum sim_kind kind)
{
    struct sim_node *node = sim_take(sizeof *node, 16);
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->number = ++numbers;
    node->lock_fd = -1;
    if (kind == SIM_FILE || kind == SIM_DIRECTORY) {
        if (node_count == NODES_MAX)
            sim_fail("more than %d files", NODES_MAX);
        nodes[node_count++] = node;
    }
    return node;
}

/* Files and directories are kept, because a power cut may restore an old name of theirs. */
void sim_node_unref(struct sim_node *node)
{
    if (node->descriptors || node->maps || node->names || node->kind == SIM_FILE ||
        node->kind == SIM_DIRECTORY)
        return;
    if (node->data)
        sim_give(node->data);
    sim_give(node);
}

void sim_node_resize(struct sim_node *node, uint64_t bytes)
{
    if (bytes > node->capacity) {
        uint64_t capacity = node->kind == SIM_MEMORY ? bytes : 2 * bytes + 4096;
        uint8_t *data = sim_take(capacity, 4096);
        if (node->bytes)
            memcpy(data, node->data, node->bytes);
        if (node->data && node->maps == 0)
            sim_give(node->data);
        node->data = data;
        node->capacity = capacity;
    }
    if (bytes > node->bytes)
        memset(node->data + node->bytes, 0, bytes - node->bytes);
    node->bytes = bytes;
    node->bytes_changed = true;
}

/* ---- directories ----------------------------------------------------------------------------- */

static int find(const struct sim_entries *entries, const char *name)
{
    for (uint32_t i = 0; i < entries->count; i++)
        if (!strcmp(entries->list[i].name, name))
            return (int)i;
    return -1;
}

static void add(struct sim_entries *entries, const char *name, struct sim_node *node)
{
    if (entries->count == entries->capacity) {
        uint32_t capacity = entries->capacity ? 2 * entries->capacity : 8;
        struct sim_entry *list = sim_take(capacity * sizeof *list, 16);
        if (entries->count)
            memcpy(list, entries->list, entries->count * sizeof *list);
        if (entries->list)
            sim_give(entries->list);
        entries->list = list;
        entries->capacity = capacity;
    }
    struct sim_entry *entry = &entries->list[entries->count++];
    strncpy(entry->name, name, sizeof entry->name - 1);
    entry->name[sizeof entry->name - 1] = 0;
    entry->node = node;
}

static void drop(struct sim_entries *entries, uint32_t index)
{
    entries->count--;
    memmove(&entries->list[index], &entries->list[index + 1],
            (entries->count - index) * sizeof *entries->list);
}

static void copy_entries(struct sim_entries *to, const struct sim_entries *from)
{
    to->count = 0;
    for (uint32_t i = 0; i < from->count; i++)
        add(to, from->list[i].name, from->list[i].node);
}

void sim_entry_add(struct sim_node *directory, const char *name, struct sim_node *node)
{
    add(&directory->entries, name, node);
    node->names++;
}

struct sim_node *sim_entry_find(const struct sim_node *directory, const char *name)
{
    int index = find(&directory->entries, name);
    return index < 0 ? NULL : directory->entries.list[index].node;
}

bool sim_entry_drop(struct sim_node *directory, const char *name)
{
    int index = find(&directory->entries, name);
    if (index < 0)
        return false;
    struct sim_node *node = directory->entries.list[index].node;
    drop(&directory->entries, (uint32_t)index);
    node->names--;
    sim_node_unref(node);
    return true;
}

struct sim_node *sim_walk(int at, const char *path, char name_out[64])
{
    struct sim_node *directory = path[0] == '/' ? root : sim_node_of(at);
    char part[64];
    name_out[0] = 0;
    while (directory) {
        path += strspn(path, "/");
        size_t length = strcspn(path, "/");
        if (length >= sizeof part)
            return NULL;
        memcpy(part, path, length);
        part[length] = 0;
        path += length;
        if (!path[strspn(path, "/")]) {
            strcpy(name_out, part);
            return directory;
        }
        directory = sim_entry_find(directory, part);
    }
    errno = ENOENT;
    return NULL;
}

struct sim_node *sim_look(int at, const char *path)
{
    char name[64];
    struct sim_node *directory = sim_walk(at, path, name);
    if (!directory)
        return NULL;
    struct sim_node *node = !name[0] || !strcmp(name, ".") ? directory
                                                           : sim_entry_find(directory, name);
    if (!node)
        errno = ENOENT;
    return node;
}

struct sim_node *sim_lookup(const char *path)
{
    return sim_look(-1, path);
}

static struct sim_node *directory_put(const char *path)
{
    char name[64];
    struct sim_node *parent = sim_walk(-1, path, name);
    struct sim_node *node = sim_entry_find(parent, name);
    if (node)
        return node;
    node = sim_node_new(SIM_DIRECTORY);
    sim_entry_add(parent, name, node);
    copy_entries(&parent->old_entries, &parent->entries);
    return node;
}

void sim_file_put(const char *path, const void *data, uint64_t bytes)
{
    char parent[64], name[64];
    if (!root)
        root = sim_node_new(SIM_DIRECTORY);
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
    struct sim_node *directory = parent[0] ? directory_put(parent) : root;
    (void)sim_walk(-1, path, name);
    struct sim_node *node = sim_node_new(SIM_FILE);
    sim_node_resize(node, bytes);
    memcpy(node->data, data, bytes);
    sim_sync(node);
    sim_entry_add(directory, name, node);
    copy_entries(&directory->old_entries, &directory->entries);
}

void sim_files_reset(void)
{
    root = NULL;
    node_count = 0;
    numbers = 0;
    memset(descriptors, 0, sizeof descriptors);
    sim_maps_reset();
    sim_watches_reset();
}

/* ---- durability ------------------------------------------------------------------------------ */

void sim_note_write(struct sim_node *node, uint64_t offset, uint64_t bytes)
{
    struct sim_write *write = sim_take(sizeof *write, 16);
    *write = (struct sim_write){offset, bytes, node->writes};
    node->writes = write;
}

static void forget_writes(struct sim_node *node)
{
    while (node->writes) {
        struct sim_write *next = node->writes->next;
        sim_give(node->writes);
        node->writes = next;
    }
    node->bytes_changed = false;
}

void sim_sync(struct sim_node *node)
{
    if (node->kind == SIM_DIRECTORY) {
        copy_entries(&node->old_entries, &node->entries);
        return;
    }
    if (node->durable)
        sim_give(node->durable);
    node->durable = sim_take(node->bytes, 16);
    node->durable_bytes = node->bytes;
    if (node->bytes)
        memcpy(node->durable, node->data, node->bytes);
    forget_writes(node);
}

static void cut_file(struct sim_node *node)
{
    if (!node->writes && !node->bytes_changed)
        return;
    uint64_t bytes = sim_chance(&sim.random, 500) ? node->bytes : node->durable_bytes;
    uint8_t *data = sim_take(node->capacity + 1, 4096);
    memset(data, 0, node->capacity);
    if (node->durable)
        memcpy(data, node->durable, node->durable_bytes);
    for (struct sim_write *write = node->writes; write; write = write->next) {
        uint64_t kept = sim_below(&sim.random, 3) * write->bytes / 2; /* none, half, all */
        kept -= kept % TORN_BYTES;
        if (kept && write->offset + kept <= bytes)
            memcpy(data + write->offset, node->data + write->offset, kept);
    }
    node->data = data;
    node->bytes = bytes;
    sim_sync(node);
}

/* Each name that was added or removed since the last fsync is there or not, by chance. */
static void cut_directory(struct sim_node *node)
{
    struct sim_entries left = {0};
    for (uint32_t i = 0; i < node->entries.count; i++) {
        struct sim_entry *entry = &node->entries.list[i];
        bool safe = find(&node->old_entries, entry->name) >= 0;
        if (entry->node->kind != SIM_SOCKET_NAME && (safe || sim_chance(&sim.random, 500)))
            add(&left, entry->name, entry->node);
    }
    for (uint32_t i = 0; i < node->old_entries.count; i++) {
        struct sim_entry *entry = &node->old_entries.list[i];
        bool stays = find(&node->entries, entry->name) >= 0;
        if (!stays && sim_chance(&sim.random, 500))
            add(&left, entry->name, entry->node);
    }
    copy_entries(&node->entries, &left);
    copy_entries(&node->old_entries, &left);
}

void sim_power_cut(void)
{
    sim_trace("the power fails");
    for (uint32_t i = 0; i < node_count; i++) {
        if (nodes[i]->kind == SIM_DIRECTORY) {
            cut_directory(nodes[i]);
            continue;
        }
        cut_file(nodes[i]);
        sim_pages_drop(nodes[i]);
    }
}

bool sim_rot(const char *path, const char *prefix)
{
    const struct sim_node *directory = sim_lookup(path);
    struct sim_node *files[16];
    uint32_t count = 0;
    for (uint32_t i = 0; directory && i < directory->entries.count && count < 16; i++)
        if (!strncmp(directory->entries.list[i].name, prefix, strlen(prefix)))
            files[count++] = directory->entries.list[i].node;
    if (count < 2)
        return false;
    struct sim_node *node = files[sim_below(&sim.random, count)];
    uint64_t at = sim_below(&sim.random, node->bytes);
    sim_trace("a bit of a checkpoint flips, at %u of %u", (unsigned)at, (unsigned)node->bytes);
    node->data[at] ^= (uint8_t)(1u << sim_below(&sim.random, 8));
    sim_sync(node);
    return true;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

struct sim_descriptor *sim_descriptor_of(int fd)
{
    int index = fd - SIM_FD_FIRST;
    const struct sim_process *process = sim.current->process,
                             *owner = process->parent ? process->parent : process;
    bool ours = index >= 0 && index < SIM_FDS_MAX && descriptors[index].process == owner;
    if (!ours)
        errno = EBADF;
    return ours ? &descriptors[index] : NULL;
}

struct sim_node *sim_node_of(int fd)
{
    struct sim_descriptor *descriptor = sim_descriptor_of(fd);
    return descriptor ? descriptor->node : NULL;
}

int sim_descriptor_new(struct sim_node *node, int flags)
{
    for (int i = 0; i < SIM_FDS_MAX; i++) {
        if (descriptors[i].process)
            continue;
        descriptors[i] = (struct sim_descriptor){node, sim.current->process, flags, 0};
        node->descriptors++;
        return SIM_FD_FIRST + i;
    }
    return fail_with(EMFILE);
}

void sim_node_close(struct sim_node *node)
{
    if (--node->descriptors == 0) {
        if (node->channel)
            sim_channel_close(node);
        sim_watches_forget(node);
    }
    sim_node_unref(node);
}

static void close_descriptor(int index)
{
    struct sim_node *node = descriptors[index].node;
    descriptors[index].process = NULL;
    if (node->lock_fd == SIM_FD_FIRST + index) {
        node->lock_fd = -1;
        node->lock_holder = NULL;
    }
    sim_node_close(node);
}

void sim_close_all(struct sim_process *process)
{
    for (int i = 0; i < SIM_FDS_MAX; i++)
        if (descriptors[i].process == process)
            close_descriptor(i);
    sim_maps_close(process);
}

void sim_hang_up(struct sim_process *process)
{
    sim_trace("the connection of %s breaks", process->name);
    for (int i = 0; i < SIM_FDS_MAX; i++)
        if (descriptors[i].process == process && descriptors[i].node->kind == SIM_CONNECTION)
            sim_connection_break(descriptors[i].node);
    sim_poke();
}

WRAP(int, close, int fd)
{
    if (!sim.current)
        return __real_close(fd);
    sim_step();
    if (!sim_descriptor_of(fd))
        return -1;
    close_descriptor(fd - SIM_FD_FIRST);
    sim_poke();
    return 0;
}
