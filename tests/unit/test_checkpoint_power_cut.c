/* SPDX-License-Identifier: Apache-2.0 */
/* Power cuts: every possible state of the disk still holds the acknowledged checkpoints.
 *
 * A recording storage writes down each call of a few saves (prunes included). For every prefix of
 * that log all states are made that the rules allow: fsynced bytes are there; of the rest of a
 * file's writes any subset is, and any one may be torn at a sector; of the changes of the directory
 * since its last fsync any subset is. In each of them the newest checkpoint must verify and be no
 * older than the last save that had returned. The same search must find fault with a writer that
 * leaves an fsync out: else it would prove nothing. */
#include "checkpoint_sample.h"

#include <sys/stat.h>

#include "base/bits.h"
#include "storage_fakes.h"

#define SECTOR_BYTES 512u
#define CALLS_MAX 128u
#define FILES_MAX 64u
#define WRITES_MAX 12u  /* one file's */
#define PENDING_MAX 10u /* changes of the directory that no fsync covers yet */
#define FILE_BYTES_MAX 65536u

/* ---- the recording --------------------------------------------------------------------------- */

enum kind { CREATE, RESERVE, WRITE, SYNC, RENAME, UNLINK, SYNC_DIR, ACKNOWLEDGED };

struct call {
    enum kind kind;
    unsigned file; /* CREATE, RESERVE, WRITE, SYNC, RENAME */
    char name[96], target[96];
    uint64_t offset, bytes; /* a WRITE's; bytes of a RESERVE */
    uint8_t *data;
    uint64_t row; /* ACKNOWLEDGED */
};

struct recorder {
    struct rp_storage storage;
    struct call calls[CALLS_MAX];
    unsigned call_count, file_count;
    unsigned file_of_fd[256];
    bool forget_sync, forget_sync_dir; /* the broken writers */
};

static struct rp_storage base;

static struct call *record(struct rp_storage *storage, enum kind kind)
{
    struct recorder *recorder = (struct recorder *)storage;
    assert_true(recorder->call_count < CALLS_MAX);
    struct call *call = &recorder->calls[recorder->call_count++];
    call->kind = kind;
    return call;
}

static unsigned file_named(const struct recorder *recorder, const char *name)
{
    unsigned file = FILES_MAX;
    for (unsigned i = 0; i < recorder->call_count; i++)
        if ((recorder->calls[i].kind == CREATE && strcmp(recorder->calls[i].name, name) == 0) ||
            (recorder->calls[i].kind == RENAME && strcmp(recorder->calls[i].target, name) == 0))
            file = recorder->calls[i].file;
    assert_true(file < FILES_MAX);
    return file;
}

static int record_create(struct rp_storage *storage, int dir, const char *name)
{
    struct recorder *recorder = (struct recorder *)storage;
    int fd = base.create(&base, dir, name);
    assert_in_range(fd, 0, 255);
    assert_true(recorder->file_count < FILES_MAX);
    struct call *call = record(storage, CREATE);
    call->file = recorder->file_of_fd[fd] = recorder->file_count++;
    snprintf(call->name, sizeof call->name, "%s", name);
    return fd;
}
static int record_reserve(struct rp_storage *storage, int fd, uint64_t bytes)
{
    struct call *call = record(storage, RESERVE);
    call->file = ((struct recorder *)storage)->file_of_fd[fd];
    call->bytes = bytes;
    return base.reserve(&base, fd, bytes);
}
static ssize_t record_write(struct rp_storage *storage, int fd, const void *data, size_t bytes,
                            uint64_t offset)
{
    struct call *call = record(storage, WRITE);
    call->file = ((struct recorder *)storage)->file_of_fd[fd];
    call->offset = offset;
    call->bytes = bytes;
    call->data = malloc(bytes);
    memcpy(call->data, data, bytes);
    return base.write(&base, fd, data, bytes, offset);
}
static int record_sync(struct rp_storage *storage, int fd)
{
    struct recorder *recorder = (struct recorder *)storage;
    if (!recorder->forget_sync)
        record(storage, SYNC)->file = recorder->file_of_fd[fd];
    return 0;
}
static int record_rename(struct rp_storage *storage, int dir, const char *from, const char *to)
{
    int code = base.rename(&base, dir, from, to);
    if (code == 0) {
        unsigned file = file_named((struct recorder *)storage, from);
        struct call *call = record(storage, RENAME);
        call->file = file;
        snprintf(call->name, sizeof call->name, "%s", from);
        snprintf(call->target, sizeof call->target, "%s", to);
    }
    return code;
}
static int record_sync_dir(struct rp_storage *storage, int dir)
{
    (void)dir;
    if (!((struct recorder *)storage)->forget_sync_dir)
        record(storage, SYNC_DIR);
    return 0;
}
static int record_unlink(struct rp_storage *storage, int dir, const char *name)
{
    int code = base.unlink(&base, dir, name);
    if (code == 0)
        snprintf(record(storage, UNLINK)->name, 96, "%s", name);
    return code;
}

static void recorder_init(struct recorder *recorder)
{
    memset(recorder, 0, sizeof *recorder);
    base = fast_storage();
    recorder->storage = base;
    recorder->storage.create = record_create;
    recorder->storage.reserve = record_reserve;
    recorder->storage.write = record_write;
    recorder->storage.sync = record_sync;
    recorder->storage.rename = record_rename;
    recorder->storage.sync_dir = record_sync_dir;
    recorder->storage.unlink = record_unlink;
}

static void recorder_free(struct recorder *recorder)
{
    for (unsigned i = 0; i < recorder->call_count; i++)
        free(recorder->calls[i].data);
    free(recorder);
}

/* ---- one state of the disk ------------------------------------------------------------------- */

struct disk {
    struct {
        char name[96];
        unsigned file;
    } names[FILES_MAX];
    unsigned name_count;
};

static void disk_unlink(struct disk *disk, const char *name)
{
    for (unsigned i = 0; i < disk->name_count; i++)
        if (strcmp(disk->names[i].name, name) == 0)
            disk->names[i] = disk->names[--disk->name_count];
}

static void disk_change(struct disk *disk, const struct call *call)
{
    disk_unlink(disk, call->name);
    if (call->kind == UNLINK)
        return;
    const char *name = call->kind == RENAME ? call->target : call->name;
    disk_unlink(disk, name);
    assert_true(disk->name_count < FILES_MAX);
    snprintf(disk->names[disk->name_count].name, 96, "%s", name);
    disk->names[disk->name_count++].file = call->file;
}

static bool changes_directory(const struct call *call)
{
    return call->kind == CREATE || call->kind == RENAME || call->kind == UNLINK;
}

/* Which of the writes to a file the disk has: bit k = the k-th write. `torn` of them is there up to
 * `torn_bytes`. */
struct writes {
    unsigned mask, torn;
    uint64_t torn_bytes;
};

static unsigned count_writes(const struct recorder *recorder, unsigned cut, unsigned file,
                             bool *synced)
{
    unsigned count = 0;
    *synced = false;
    for (unsigned i = 0; i < cut; i++) {
        const struct call *call = &recorder->calls[i];
        if ((call->kind == WRITE || call->kind == SYNC) && call->file == file) {
            count += call->kind == WRITE;
            *synced = call->kind == SYNC;
        }
    }
    assert_true(count <= WRITES_MAX);
    return count;
}

static void put_file(const struct recorder *recorder, unsigned cut, unsigned file,
                     const struct writes *writes, const char *path)
{
    static uint8_t bytes[FILE_BYTES_MAX];
    uint64_t length = 0;
    unsigned number = 0;
    memset(bytes, 0, sizeof bytes);
    for (unsigned i = 0; i < cut; i++) {
        const struct call *call = &recorder->calls[i];
        if (call->file != file || (call->kind != WRITE && call->kind != RESERVE))
            continue;
        assert_true(call->offset + call->bytes <= sizeof bytes);
        if (call->kind == RESERVE) {
            length = rp_max_u64(length, call->bytes);
            continue;
        }
        uint64_t part = writes->mask >> number & 1 ? call->bytes : 0;
        if (part && writes->torn == number)
            part = rp_min_u64(writes->torn_bytes, part);
        memcpy(bytes + call->offset, call->data, part);
        length = rp_max_u64(length, call->offset + part);
        number++;
    }
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0 && pwrite(fd, bytes, length, 0) == (ssize_t)length);
    close(fd);
}

/* ---- the search ------------------------------------------------------------------------------ */

struct search {
    const struct recorder *recorder;
    unsigned cut;
    uint64_t acknowledged;
    unsigned states, bad;
};

static void judge(struct search *search)
{
    struct rp_error error;
    struct rp_checkpoint *checkpoint = NULL;
    int code = rp_checkpoint_newest(&checkpoint, "disk", false, &error);
    uint64_t row = 0;
    if (code == 1)
        row = rp_checkpoint_info(checkpoint)->next_row;
    search->states++;
    search->bad += code < 0 || row < search->acknowledged;
    rp_checkpoint_close(checkpoint);
}

/* All contents that a file without fsync may have, then the verdict on each. */
static void judge_unsynced(struct search *search, unsigned file, const char *path, unsigned count)
{
    for (unsigned mask = 0; mask < 1u << count; mask++) {
        struct writes writes = {.mask = mask, .torn = WRITES_MAX};
        put_file(search->recorder, search->cut, file, &writes, path);
        judge(search);
    }
    for (unsigned torn = 0; torn < count; torn++) {
        for (uint64_t bytes = SECTOR_BYTES; bytes < 8192; bytes += SECTOR_BYTES) {
            struct writes writes = {(1u << count) - 1, torn, bytes};
            put_file(search->recorder, search->cut, file, &writes, path);
            judge(search);
        }
    }
}

static void judge_disk(struct search *search, const struct disk *disk)
{
    unsigned unsynced = FILES_MAX, unsynced_writes = 0;
    char path[256], unsynced_path[256] = "";
    remove_directory("disk");
    assert_int_equal(mkdir("disk", 0700), 0);
    for (unsigned i = 0; i < disk->name_count; i++) {
        bool synced;
        if (disk->names[i].name[0] == '.')
            continue; /* temporary, without a reader */
        unsigned file = disk->names[i].file;
        unsigned count = count_writes(search->recorder, search->cut, file, &synced);
        struct writes all = {.mask = (1u << count) - 1, .torn = WRITES_MAX};
        snprintf(path, sizeof path, "disk/%s", disk->names[i].name);
        put_file(search->recorder, search->cut, file, &all, path);
        if (!synced) { /* the newest of them: older ones are taken as written back meanwhile */
            unsynced = file;
            unsynced_writes = count;
            snprintf(unsynced_path, sizeof unsynced_path, "%s", path);
        }
    }
    if (unsynced == FILES_MAX)
        judge(search);
    else
        judge_unsynced(search, unsynced, unsynced_path, unsynced_writes);
}

static void search_prefix(struct search *search)
{
    const struct recorder *recorder = search->recorder;
    const struct call *pending[PENDING_MAX];
    unsigned pending_count = 0, durable = 0;
    struct disk settled = {0};
    for (unsigned i = 0; i < search->cut; i++)
        if (recorder->calls[i].kind == SYNC_DIR)
            durable = i;
    search->acknowledged = 0;
    for (unsigned i = 0; i < search->cut; i++) {
        const struct call *call = &recorder->calls[i];
        if (call->kind == ACKNOWLEDGED)
            search->acknowledged = call->row;
        if (!changes_directory(call))
            continue;
        /* A full list (a writer that never syncs): the oldest has come to the disk by itself. */
        if (i < durable) {
            disk_change(&settled, call);
        } else if (pending_count == PENDING_MAX) {
            disk_change(&settled, pending[0]);
            memmove(pending, pending + 1, (PENDING_MAX - 1) * sizeof *pending);
            pending[PENDING_MAX - 1] = call;
        } else {
            pending[pending_count++] = call;
        }
    }
    for (unsigned mask = 0; mask < 1u << pending_count; mask++) {
        struct disk disk = settled;
        for (unsigned k = 0; k < pending_count; k++)
            if (mask >> k & 1)
                disk_change(&disk, pending[k]);
        judge_disk(search, &disk);
    }
}

static struct search run(bool forget_sync, bool forget_sync_dir, unsigned saves)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct recorder *recorder = malloc(sizeof *recorder);
    recorder_init(recorder);
    recorder->forget_sync = forget_sync;
    recorder->forget_sync_dir = forget_sync_dir;
    assert_int_equal(sample_open_with(&dir, "real", 2, NULL, &recorder->storage, 8192, &error), 0);
    for (unsigned i = 1; i <= saves; i++) {
        struct sample sample;
        sample_make(&sample, i * 10);
        assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, NULL, &error), 0);
        record(&recorder->storage, ACKNOWLEDGED)->row = i * 10;
        assert_int_equal(rp_checkpoint_read_back_save(dir, &error), 0);
        rp_checkpoint_prune(dir);
    }
    rp_checkpoint_dir_close(dir);
    assert_int_equal(count_names("real", "checkpoint-"), 2); /* so there was pruning */
    remove_directory("real");

    struct search search = {.recorder = recorder};
    assert_int_equal(mkdir("disk", 0700), 0);
    /* The first bad state is enough. */
    for (search.cut = 0; search.cut <= recorder->call_count && !search.bad; search.cut++)
        search_prefix(&search);
    remove_directory("disk");
    printf("  %u calls, %u states of the disk, %u bad\n", recorder->call_count, search.states,
           search.bad);
    recorder_free(recorder);
    search.recorder = NULL;
    return search;
}

static void test_every_power_cut_keeps_what_was_acknowledged(void **state)
{
    (void)state;
    struct search search = run(false, false, 8);
    assert_true(search.states > 200);
    assert_int_equal(search.bad, 0);
}

static void test_a_writer_without_fsync_is_caught(void **state)
{
    (void)state;
    assert_true(run(true, false, 3).bad > 0);
}

static void test_a_writer_without_fsync_of_the_directory_is_caught(void **state)
{
    (void)state;
    assert_true(run(false, true, 3).bad > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_power_cut_keeps_what_was_acknowledged),
        cmocka_unit_test(test_a_writer_without_fsync_is_caught),
        cmocka_unit_test(test_a_writer_without_fsync_of_the_directory_is_caught),
    };
    return cmocka_run_group_tests_name("checkpoint_power_cut", tests, sample_enter_memory,
                                       sample_leave);
}
