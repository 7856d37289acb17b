/* SPDX-License-Identifier: Apache-2.0 */
/* state_zip.c — zip files: npz of numpy, and the files of torch.save.
 *
 * Both store the bytes of each array as a member of its own: NAME.npy, which begins with a header,
 * or ARCHIVE/data/N. A member whose bytes are a state token is taken; the rest of the file, a
 * pickle among it, is not read. np.savez_compressed deflates its members: the one with the state's
 * name is inflated. All numbers are little-endian; sizes and places of 0xffffffff are in the
 * "zip64" field of an entry. Written is an npz with one stored member, as np.savez writes it.
 *
 * libzip was tried in its place: it loads libcrypto, so each start of the program took 5.3 ms and
 * not 0.9, and it reads the whole archive: 370 ms and not 0.13 for a large torch.save. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/bits.h"
#include "plan/token_records.h"
#include "state/state_search.h"

#define ENTRY_BYTES 46u
#define LOCAL_BYTES 30u
#define END_BYTES 22u
#define END64_BYTES 56u
#define LOCATOR64_BYTES 20u
#define COMMENT_MAX 65535u
#define IN_ZIP64 UINT32_MAX
#define NPY_MAGIC "\x93NUMPY"

static bool has_magic(const uint8_t *at, const char *magic)
{
    return memcmp(at, magic, 4) == 0;
}

static bool claim_zip(const uint8_t *data, uint64_t bytes)
{
    return bytes >= END_BYTES && has_magic(data, "PK\3\4");
}

static int fail_damaged(const struct rp_saved_search *search, const char *what,
                        struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                   "%s: a damaged zip file: %s", search->path, what);
}

/* ---- the directory of a zip ------------------------------------------------------------------ */

struct directory {
    uint64_t at, end; /* range of its entries in the file */
};

/* Where many members, or large ones, need it, a second record is before the last one. */
static int find_directory64(const struct rp_saved_search *search, uint64_t last,
                            struct directory *directory, struct rp_error *error)
{
    if (last < LOCATOR64_BYTES || !has_magic(search->data + last - LOCATOR64_BYTES, "PK\6\7"))
        return fail_damaged(search, "its zip64 record is missing", error);
    uint64_t at = rp_load_u64(search->data + last - LOCATOR64_BYTES + 8);
    if (!rp_range_inside(at, END64_BYTES, search->bytes) || !has_magic(search->data + at, "PK\6\6"))
        return fail_damaged(search, "its zip64 record is not where the file says", error);
    directory->end = rp_load_u64(search->data + at + 40);
    directory->at = rp_load_u64(search->data + at + 48);
    return 0;
}

static int find_directory(const struct rp_saved_search *search, struct directory *directory,
                          struct rp_error *error)
{
    uint64_t lowest = search->bytes - rp_min_u64(search->bytes, END_BYTES + COMMENT_MAX);
    uint64_t last = search->bytes - END_BYTES;
    while (last > lowest && !has_magic(search->data + last, "PK\5\6"))
        last--;
    if (!has_magic(search->data + last, "PK\5\6"))
        return fail_damaged(search, "it has no directory: is its end cut off?", error);
    directory->end = rp_load_u32(search->data + last + 12);
    directory->at = rp_load_u32(search->data + last + 16);
    int code = 0;
    if (directory->end == IN_ZIP64 || directory->at == IN_ZIP64)
        code = find_directory64(search, last, directory, error);
    if (code == 0 && (!rp_range_inside(directory->at, directory->end, search->bytes)))
        code = fail_damaged(search, "its directory is not within the file", error);
    directory->end += directory->at;
    return code;
}

struct member {
    const char *name; /* not terminated */
    uint32_t name_bytes;
    uint32_t method; /* 0 stored, 8 deflated */
    uint64_t packed, bytes, at;
};

/* Take the numbers, of three, that did not fit into the entry. False if one is missing. */
static bool read_zip64(struct member *member, const uint8_t *extra, uint64_t left)
{
    uint64_t *const numbers[] = {&member->bytes, &member->packed, &member->at};
    while (left >= 4 && left - 4 >= rp_load_u16(extra + 2)) {
        uint64_t length = rp_load_u16(extra + 2), used = 0;
        for (size_t i = 0; i < RP_ARRAY_COUNT(numbers) && rp_load_u16(extra) == 1; i++) {
            if (*numbers[i] != IN_ZIP64)
                continue;
            if (length - used < sizeof(uint64_t))
                return false;
            *numbers[i] = rp_load_u64(extra + 4 + used);
            used += sizeof(uint64_t);
        }
        extra += 4 + length;
        left -= 4 + length;
    }
    return true;
}

/* Read the entry at directory->at, and go past it. Returns 1, or 0 at the end. */
static int next_member(const struct rp_saved_search *search, struct directory *directory,
                       struct member *member, struct rp_error *error)
{
    uint64_t left = directory->end - directory->at;
    const uint8_t *entry = search->data + directory->at;
    if (left == 0)
        return 0;
    if (left < ENTRY_BYTES || !has_magic(entry, "PK\1\2"))
        return fail_damaged(search, "an entry of its directory", error);
    uint64_t name = rp_load_u16(entry + 28), extra = rp_load_u16(entry + 30);
    uint64_t length = ENTRY_BYTES + name + extra + rp_load_u16(entry + 32);
    if (length > left)
        return fail_damaged(search, "the end of its directory", error);
    *member = (struct member){.name = (const char *)entry + ENTRY_BYTES,
                              .name_bytes = (uint32_t)name,
                              .method = rp_load_u16(entry + 10),
                              .packed = rp_load_u32(entry + 20),
                              .bytes = rp_load_u32(entry + 24),
                              .at = rp_load_u32(entry + 42)};
    if (!read_zip64(member, entry + ENTRY_BYTES + name, extra))
        return fail_damaged(search, "a zip64 field", error);
    directory->at += length;
    return 1;
}

/* ---- members --------------------------------------------------------------------------------- */

static bool name_has(const struct member *member, const char *part)
{
    return memmem(member->name, member->name_bytes, part, strlen(part)) != NULL;
}

/* Take the bytes of an array, if they are a state token. */
static int take_array(struct rp_saved_search *search, const uint8_t *data, uint64_t bytes,
                      struct rp_error *error)
{
    if (bytes >= 12 && memcmp(data, NPY_MAGIC, 6) == 0) {
        uint64_t header = data[6] == 1 ? 10u + rp_load_u16(data + 8) : 12u + rp_load_u32(data + 8);
        if (header > bytes)
            return 0;
        data += header;
        bytes -= header;
    }
    if (bytes < sizeof RP_TOKEN_MAGIC || memcmp(data, RP_TOKEN_MAGIC, sizeof RP_TOKEN_MAGIC) != 0)
        return 0;
    return rp_saved_take(search, data, (size_t)rp_min_u64(bytes, RP_SAVED_BYTES_MAX), error);
}

/* Room of the members that follow, so that a forged directory costs no more than a file of
 * its size: members do not overlap, and the inflated bytes have room for one token of any size. */
struct allowance {
    uint64_t stored, inflated; /* bytes */
};

static int take_deflated(struct rp_saved_search *search, const struct member *member,
                         const uint8_t *packed, struct allowance *left, struct rp_error *error)
{
    if (member->bytes > RP_SAVED_BYTES_MAX || member->packed > RP_SAVED_BYTES_MAX)
        return 0;
    if (member->bytes > left->inflated)
        return rp_fail(error, -RP_E_CORRUPT, "give a file with one state",
                       "%s: its members named %s have more than %u bytes together", search->path,
                       RP_STATE_KEY, RP_SAVED_BYTES_MAX);
    left->inflated -= member->bytes;
    uint8_t *data = malloc((size_t)member->bytes + 1);
    if (!data)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a member", search->path);
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)packed,
                       .avail_in = (uInt)member->packed,
                       .next_out = data,
                       .avail_out = (uInt)member->bytes};
    int result = inflateInit2(&stream, -MAX_WBITS);
    if (result == Z_OK) {
        result = inflate(&stream, Z_FINISH);
        inflateEnd(&stream);
    }
    int code = result == Z_STREAM_END && stream.avail_out == 0
                   ? take_array(search, data, member->bytes, error)
                   : fail_damaged(search, "a member cannot be inflated", error);
    free(data);
    return code;
}

static int take_member(struct rp_saved_search *search, const struct member *member,
                       struct allowance *left, struct rp_error *error)
{
    if (!rp_range_inside(member->at, LOCAL_BYTES, search->bytes) ||
        !has_magic(search->data + member->at, "PK\3\4"))
        return fail_damaged(search, "a member is not where its directory says", error);
    const uint8_t *local = search->data + member->at;
    uint64_t at = member->at + LOCAL_BYTES + rp_load_u16(local + 26) + rp_load_u16(local + 28);
    if (!rp_range_inside(at, member->packed, search->bytes))
        return fail_damaged(search, "a member is not within the file", error);
    if (LOCAL_BYTES + member->packed > left->stored)
        return fail_damaged(search, "its members overlap", error);
    left->stored -= LOCAL_BYTES + member->packed;
    if (member->method == 0)
        return take_array(search, search->data + at, member->packed, error);
    if (member->method == 8 && name_has(member, RP_STATE_KEY))
        return take_deflated(search, member, search->data + at, left, error);
    return 0;
}

static int read_zip(struct rp_saved_search *search, struct rp_error *error)
{
    struct directory directory = {0};
    struct allowance left = {search->bytes, RP_SAVED_BYTES_MAX};
    struct member member;
    bool has_pickle = false;
    int code = find_directory(search, &directory, error), more = code == 0;
    while (code == 0 && more == 1) {
        more = next_member(search, &directory, &member, error);
        if (more == 1) {
            has_pickle = has_pickle || name_has(&member, "data.pkl");
            code = take_member(search, &member, &left, error);
        }
    }
    code = more < 0 ? more : code;
    if (code < 0 || search->token || !has_pickle)
        return code;
    return rp_fail(
        error, -RP_E_CORRUPT,
        "write it with `ringpack.export_state(loader.state_dict(), \"FILE.pt\")`, which "
        "saves a tensor: torch.save puts arrays of numpy, text and objects into its pickle",
        "%s: no tensor of it is a state token; its pickle is not read", search->path);
}

/* ---- writing --------------------------------------------------------------------------------- */

#define MEMBER RP_STATE_KEY ".npy"
#define NPY_BYTES 128u /* numpy pads its header to a multiple of 64 */
#define DATE 0x0021u   /* 1980-01-01, the first that a zip can have: equal tokens, equal files */

struct zip {
    uint8_t *at;
};

static void put(struct zip *zip, const void *data, size_t bytes)
{
    memcpy(zip->at, data, bytes);
    zip->at += bytes;
}

static void put_u16(struct zip *zip, uint32_t value)
{
    uint16_t word = (uint16_t)value;
    put(zip, &word, sizeof word);
}

static void put_u32(struct zip *zip, uint32_t value)
{
    put(zip, &value, sizeof value);
}

/* The fields that the entry of a member and the head before its bytes share. */
static void put_common(struct zip *zip, uint32_t crc, uint32_t bytes)
{
    put_u16(zip, 20); /* version that is needed: 2.0 */
    put_u16(zip, 0);
    put_u16(zip, 0); /* stored */
    put_u16(zip, 0);
    put_u16(zip, DATE);
    put_u32(zip, crc);
    put_u32(zip, bytes);
    put_u32(zip, bytes);
    put_u16(zip, sizeof MEMBER - 1);
    put_u16(zip, 0);
}

static void put_directory(struct zip *zip, uint32_t crc, uint32_t bytes)
{
    uint32_t at = LOCAL_BYTES + sizeof MEMBER - 1 + bytes;
    put(zip, "PK\1\2\24\0", 6);
    put_common(zip, crc, bytes);
    put(zip, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 14); /* no comment; the member is at 0 */
    put(zip, MEMBER, sizeof MEMBER - 1);
    put(zip, "PK\5\6\0\0\0\0\1\0\1\0", 12);
    put_u32(zip, ENTRY_BYTES + sizeof MEMBER - 1);
    put_u32(zip, at);
    put_u16(zip, 0);
}

static void put_npy_header(uint8_t header[NPY_BYTES], size_t count)
{
    memset(header, ' ', NPY_BYTES);
    memcpy(header, NPY_MAGIC "\1\0\166\0", 10); /* version 1.0, 118 bytes follow */
    int used = snprintf((char *)header + 10, NPY_BYTES - 10,
                        "{'descr': '|u1', 'fortran_order': False, 'shape': (%zu,), }", count);
    header[10 + used] = ' ';
    header[NPY_BYTES - 1] = '\n';
}

static int write_zip(const void *token, size_t bytes, uint8_t **file_out, size_t *file_bytes,
                     struct rp_error *error)
{
    size_t fixed = LOCAL_BYTES + ENTRY_BYTES + END_BYTES + 2 * (sizeof MEMBER - 1);
    RP_ASSERT(bytes <= RP_SAVED_BYTES_MAX);
    *file_bytes = fixed + NPY_BYTES + bytes;
    uint8_t *file = malloc(*file_bytes),
            *array = file ? file + LOCAL_BYTES + sizeof MEMBER - 1 : NULL;
    if (!file)
        return rp_fail(error, -ENOMEM, NULL, "no memory to write a state token");
    uint32_t array_bytes = (uint32_t)(NPY_BYTES + bytes);
    put_npy_header(array, bytes);
    memcpy(array + NPY_BYTES, token, bytes);
    uint32_t crc = (uint32_t)crc32(0, array, array_bytes);
    struct zip zip = {file};
    put(&zip, "PK\3\4", 4);
    put_common(&zip, crc, array_bytes);
    put(&zip, MEMBER, sizeof MEMBER - 1);
    zip.at += array_bytes;
    put_directory(&zip, crc, array_bytes);
    RP_ASSERT(zip.at == file + *file_bytes);
    *file_out = file;
    return 0;
}

const struct rp_saved_form rp_saved_form_zip = {".npz", "a zip file", claim_zip, read_zip,
                                                write_zip};
