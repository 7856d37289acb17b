/* SPDX-License-Identifier: Apache-2.0 */
/* format.c — see format.h and FORMAT.md.
 *
 * Invariants
 *
 *   F1  The lengths of the sections fix the offset of each section and the length of the file. So
 *       offsets are computed and compared, never trusted.
 *
 *   F2  The hash of the head is checked before any field but the magic is used. XXH3 is no
 *       signature: a head with the right hash may still be forged, so every later check treats it
 *       as hostile.
 *
 *   F3  The offset and size of the head, and the offset of its hash, are the same in all versions,
 *       so a file that is too new is not reported as damaged. */
#include "checkpoint/format.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/file.h"

static const char head_magic[8] = {'R', 'P', 'C', 'H', 'E', 'C', 'K', 0};
static const char footer_magic[8] = {'R', 'P', 'C', 'K', 'E', 'N', 'D', 0};

#define FLAG_CRITICAL 1u

struct head_fields {
    char magic[8];
    uint32_t version, head_bytes;
    uint64_t file_bytes;
    uint64_t sequence, next_row, contents_end_row;
    struct rp_hash128 identity;
    uint32_t world, rows;
    uint32_t section_count, zero;
    char run[72];
    char version_text[32];
    uint8_t zeros[328];
};
struct head_entry {
    uint32_t type, flags;
    uint64_t offset, bytes;
    struct rp_hash128 hash;
    uint8_t zeros[24];
};
struct head_bytes {
    struct head_fields fields;
    struct head_entry table[RP_CHECKPOINT_SECTIONS_MAX];
    uint8_t zeros[3568];
    struct rp_hash128 hash; /* over every byte before it */
};
struct footer_bytes {
    char magic[8];
    uint32_t version, zero;
    uint64_t file_bytes, sequence;
    struct rp_hash128 head_hash;
    uint8_t zeros[4032];
    struct rp_hash128 hash; /* over every byte before it */
};
RP_STATIC_ASSERT(sizeof(struct head_fields) == 512, "FORMAT.md, head");
RP_STATIC_ASSERT(sizeof(struct head_entry) == 64, "FORMAT.md, table");
RP_STATIC_ASSERT(sizeof(struct head_bytes) == RP_CHECKPOINT_HEAD_BYTES, "FORMAT.md, head");
RP_STATIC_ASSERT(sizeof(struct footer_bytes) == RP_CHECKPOINT_FOOTER_BYTES, "FORMAT.md, footer");

const char rp_checkpoint_damaged_hint[] =
    "an earlier checkpoint is taken instead where there is one: see `ringpack checkpoint list DIR`";

#define fail_damaged(error, path, offset, format, ...)                                             \
    rp_fail(error, -RP_E_CORRUPT, rp_checkpoint_damaged_hint,                                      \
            "%s: damaged at byte %" PRIu64 ": " format, path, (uint64_t)(offset), __VA_ARGS__)

bool rp_checkpoint_is_file(const char *path)
{
    return rp_file_begins(path, head_magic, sizeof head_magic);
}

static bool all_zero(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    return bytes == 0 || (at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0);
}

/* Texts are printed on terminals and in JSON, so they must be printable ASCII with a zero at the
 * end. */
static bool text_fits(const char *text, size_t bytes)
{
    size_t length = strnlen(text, bytes);
    for (size_t i = 0; i < length; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    return length < bytes;
}

/* ---- laying out ------------------------------------------------------------------------------ */

static bool type_critical(uint32_t type)
{
    return type == RP_CHECKPOINT_STATE || type == RP_CHECKPOINT_CONFIG;
}

/* F1. False if the end does not fit into a file. */
static bool next_offset(uint64_t offset, uint64_t bytes, uint64_t *next)
{
    uint64_t end;
    if (!rp_add_u64(offset, bytes, &end) || end > INT64_MAX - 2 * RP_CHECKPOINT_PAGE_BYTES)
        return false;
    *next = rp_align_up(end, RP_CHECKPOINT_PAGE_BYTES);
    return true;
}

const struct rp_checkpoint_format_section *rp_checkpoint_find(const struct rp_checkpoint_head *head,
                                                              uint32_t type)
{
    for (uint32_t i = 0; i < head->section_count; i++)
        if (head->sections[i].type == type)
            return &head->sections[i];
    return NULL;
}

static int check_info(const struct rp_checkpoint_head *head, struct rp_error *error)
{
    const struct rp_checkpoint_info *info = &head->info;
    if (!text_fits(info->run, sizeof info->run) || !text_fits(info->version, sizeof info->version))
        return rp_fail(
            error, -RP_E_USAGE, NULL,
            "checkpoint: run name and version must be printable ASCII and end inside their fields");
    if (info->contents_end_row < info->next_row)
        return rp_fail(error, -RP_E_USAGE, NULL,
                       "checkpoint: contents end at row %" PRIu64 ", before the next row %" PRIu64,
                       info->contents_end_row, info->next_row);
    if (info->contents_end_row != info->next_row &&
        !rp_checkpoint_find(head, RP_CHECKPOINT_CONTENTS))
        return rp_fail(error, -RP_E_USAGE, NULL,
                       "checkpoint: contents up to row %" PRIu64
                       " are announced, but there are none",
                       info->contents_end_row);
    return 0;
}

int rp_checkpoint_layout(struct rp_checkpoint_head *head, struct rp_error *error)
{
    uint64_t offset = RP_CHECKPOINT_HEAD_BYTES;
    uint32_t last_type = 0;
    if (head->section_count > RP_CHECKPOINT_SECTIONS_MAX)
        return rp_fail(error, -RP_E_USAGE, NULL, "checkpoint: %" PRIu32 " sections, at most %u",
                       head->section_count, RP_CHECKPOINT_SECTIONS_MAX);
    for (uint32_t i = 0; i < head->section_count; i++) {
        struct rp_checkpoint_format_section *section = &head->sections[i];
        if (section->type <= last_type)
            return rp_fail(error, -RP_E_USAGE, NULL,
                           "checkpoint: section types must ascend: %" PRIu32 " after %" PRIu32,
                           section->type, last_type);
        last_type = section->type;
        section->critical = type_critical(section->type);
        section->offset = offset;
        if (!next_offset(offset, section->bytes, &offset))
            return rp_fail(error, -RP_E_USAGE, NULL,
                           "checkpoint: section %" PRIu32 " has %" PRIu64
                           " bytes: too many for a file",
                           section->type, section->bytes);
    }
    head->file_bytes = offset + RP_CHECKPOINT_FOOTER_BYTES;
    const struct rp_checkpoint_format_section *state = rp_checkpoint_find(head,
                                                                          RP_CHECKPOINT_STATE);
    if (!state || state->bytes == 0)
        return rp_fail(error, -RP_E_USAGE, NULL, "checkpoint: there is no state token to save");
    return check_info(head, error);
}

/* ---- encoding -------------------------------------------------------------------------------- */

void rp_checkpoint_encode_head(struct rp_checkpoint_head *head, void *bytes)
{
    struct head_bytes *out = bytes;
    const struct rp_checkpoint_info *info = &head->info;
    memset(out, 0, sizeof *out);
    memcpy(out->fields.magic, head_magic, sizeof head_magic);
    out->fields.version = RP_CHECKPOINT_VERSION;
    out->fields.head_bytes = RP_CHECKPOINT_HEAD_BYTES;
    out->fields.file_bytes = head->file_bytes;
    out->fields.sequence = info->sequence;
    out->fields.next_row = info->next_row;
    out->fields.contents_end_row = info->contents_end_row;
    out->fields.identity = info->identity;
    out->fields.world = info->dp_world_size;
    out->fields.rows = info->batch_size;
    out->fields.section_count = head->section_count;
    memcpy(out->fields.run, info->run, strlen(info->run));
    memcpy(out->fields.version_text, info->version, strlen(info->version));
    for (uint32_t i = 0; i < head->section_count; i++) {
        const struct rp_checkpoint_format_section *section = &head->sections[i];
        out->table[i].type = section->type;
        out->table[i].flags = section->critical ? FLAG_CRITICAL : 0;
        out->table[i].offset = section->offset;
        out->table[i].bytes = section->bytes;
        out->table[i].hash = section->hash;
    }
    out->hash = head->hash = rp_hash128(out, offsetof(struct head_bytes, hash));
}

void rp_checkpoint_encode_footer(const struct rp_checkpoint_head *head, void *bytes)
{
    struct footer_bytes *out = bytes;
    memset(out, 0, sizeof *out);
    memcpy(out->magic, footer_magic, sizeof footer_magic);
    out->version = RP_CHECKPOINT_VERSION;
    out->file_bytes = head->file_bytes;
    out->sequence = head->info.sequence;
    out->head_hash = head->hash;
    out->hash = rp_hash128(out, offsetof(struct footer_bytes, hash));
}

/* ---- parsing --------------------------------------------------------------------------------- */

static int parse_frame(const struct head_bytes *in, uint64_t file_bytes, const char *path,
                       struct rp_error *error)
{
    const struct head_fields *fields = &in->fields;
    if (memcmp(fields->magic, head_magic, sizeof head_magic) != 0)
        return rp_fail(error, -RP_E_FORMAT,
                       "give a file that `ringpack serve` wrote, named checkpoint-*.rpc",
                       "%s: not a checkpoint: expected the magic RPCHECK at byte 0", path);
    if (!rp_hash128_equal(in->hash, rp_hash128(in, offsetof(struct head_bytes, hash)))) /* F2 */
        return fail_damaged(error, path, 0, "the hash of the head (%u bytes) does not match",
                            RP_CHECKPOINT_HEAD_BYTES);
    if (fields->version != RP_CHECKPOINT_VERSION)
        return rp_fail(
            error, -RP_E_VERSION,
            "use the ringpack that wrote it, or a newer one; the file is intact",
            "%s: written in format %" PRIu32 " by ringpack %.31s; this one reads format %u", path,
            fields->version, text_fits(fields->version_text, 32) ? fields->version_text : "?",
            RP_CHECKPOINT_VERSION);
    if (fields->head_bytes != RP_CHECKPOINT_HEAD_BYTES || fields->zero != 0 ||
        !all_zero(fields->zeros, sizeof fields->zeros) || !all_zero(in->zeros, sizeof in->zeros))
        return fail_damaged(error, path, 12, "reserved fields of the %s are not zero", "head");
    if (fields->file_bytes != file_bytes)
        return fail_damaged(error, path, rp_min_u64(fields->file_bytes, file_bytes),
                            "expected %" PRIu64 " bytes, found %" PRIu64, fields->file_bytes,
                            file_bytes);
    if (fields->section_count > RP_CHECKPOINT_SECTIONS_MAX)
        return fail_damaged(error, path, offsetof(struct head_fields, section_count),
                            "%" PRIu32 " sections, at most %u", fields->section_count,
                            RP_CHECKPOINT_SECTIONS_MAX);
    return 0;
}

static int parse_table(struct rp_checkpoint_head *head, const struct head_bytes *in,
                       const char *path, struct rp_error *error)
{
    uint64_t offset = RP_CHECKPOINT_HEAD_BYTES;
    uint32_t last_type = 0;
    for (uint32_t i = 0; i < RP_CHECKPOINT_SECTIONS_MAX; i++) {
        const struct head_entry *entry = &in->table[i];
        uint64_t at = offsetof(struct head_bytes, table) + i * sizeof *entry;
        if (i >= head->section_count) {
            if (!all_zero(entry, sizeof *entry))
                return fail_damaged(error, path, at,
                                    "unused entry %" PRIu32 " of the table is not zero", i);
            continue;
        }
        if (entry->type <= last_type || (entry->flags & ~FLAG_CRITICAL) != 0 ||
            !all_zero(entry->zeros, sizeof entry->zeros))
            return fail_damaged(error, path, at, "entry %" PRIu32 " of the table is malformed", i);
        last_type = entry->type;
        bool critical = entry->flags & FLAG_CRITICAL;
        bool known = entry->type <= RP_CHECKPOINT_CONTRACT;
        if (known && critical != type_critical(entry->type))
            return fail_damaged(error, path, at, "section %" PRIu32 " has the wrong flags",
                                entry->type);
        if (!known && critical)
            return rp_fail(error, -RP_E_VERSION,
                           "use the ringpack that wrote it; the file is intact",
                           "%s: section %" PRIu32 " cannot be ignored and is not known here", path,
                           entry->type);
        uint64_t next; /* F1: the footer must still fit after the section */
        if (entry->offset != offset || !next_offset(offset, entry->bytes, &next) ||
            next > head->file_bytes - RP_CHECKPOINT_FOOTER_BYTES)
            return fail_damaged(error, path, at,
                                "section %" PRIu32 " (%" PRIu64 " bytes at %" PRIu64
                                ") does not fit into the file",
                                entry->type, entry->bytes, entry->offset);
        head->sections[i] = (struct rp_checkpoint_format_section){entry->type, critical, offset,
                                                                  entry->bytes, entry->hash};
        offset = next;
    }
    if (offset + RP_CHECKPOINT_FOOTER_BYTES != head->file_bytes)
        return fail_damaged(error, path, offset,
                            "the sections end here, the file has %" PRIu64 " bytes",
                            head->file_bytes);
    return 0;
}

int rp_checkpoint_parse_head(struct rp_checkpoint_head *head, const void *bytes,
                             uint64_t file_bytes, const char *path, struct rp_error *error)
{
    RP_ASSERT(file_bytes >= RP_CHECKPOINT_BYTES_MIN);
    struct head_bytes copy; /* aligned, and cannot change while it is checked */
    memcpy(&copy, bytes, sizeof copy);
    int code = parse_frame(&copy, file_bytes, path, error);
    if (code < 0)
        return code;
    const struct head_fields *fields = &copy.fields;
    *head = (struct rp_checkpoint_head){
        .info = {.sequence = fields->sequence,
                 .next_row = fields->next_row,
                 .contents_end_row = fields->contents_end_row,
                 .identity = fields->identity,
                 .dp_world_size = fields->world,
                 .batch_size = fields->rows},
        .file_bytes = fields->file_bytes,
        .section_count = fields->section_count,
        .hash = copy.hash,
    };
    if (!text_fits(fields->run, sizeof head->info.run) ||
        !text_fits(fields->version_text, sizeof head->info.version) ||
        !all_zero(fields->run + strlen(fields->run), sizeof fields->run - strlen(fields->run)) ||
        !all_zero(fields->version_text + strlen(fields->version_text),
                  sizeof fields->version_text - strlen(fields->version_text)))
        return fail_damaged(error, path, offsetof(struct head_fields, run),
                            "run name or version is no %s", "plain text");
    memcpy(head->info.run, fields->run, sizeof head->info.run);
    memcpy(head->info.version, fields->version_text, sizeof head->info.version);
    code = parse_table(head, &copy, path, error);
    if (code < 0)
        return code;
    const struct rp_checkpoint_format_section *state = rp_checkpoint_find(head,
                                                                          RP_CHECKPOINT_STATE);
    if (!state || state->bytes == 0 || check_info(head, NULL) < 0)
        return fail_damaged(error, path, 0,
                            "there is no %s, or the rows of its contents are impossible",
                            "state token");
    return 0;
}

/* ---- verifying ------------------------------------------------------------------------------- */

static int verify_footer(const struct rp_checkpoint_head *head, const void *bytes, const char *path,
                         struct rp_error *error)
{
    struct footer_bytes expected;
    rp_checkpoint_encode_footer(head, &expected);
    if (memcmp(bytes, &expected, sizeof expected) != 0)
        return fail_damaged(error, path, head->file_bytes - RP_CHECKPOINT_FOOTER_BYTES,
                            "the footer (%u bytes) does not belong to this head",
                            RP_CHECKPOINT_FOOTER_BYTES);
    return 0;
}

/* The hash shows that the contents are as written; this check shows that they are well formed, for
 * files that were forged. */
static int verify_contents(const struct rp_checkpoint_head *head, const uint8_t *contents,
                           size_t bytes, const char *path, struct rp_error *error)
{
    struct rp_content_record record;
    const void *tokens;
    size_t cursor = 0;
    uint64_t row = head->info.next_row;
    uint64_t offset_min = 0;
    for (;;) {
        size_t at = cursor;
        int code = rp_content_next(contents, bytes, &cursor, &record, &tokens);
        if (code == 0)
            return 0;
        if (code < 0 || record.row < row || record.row >= head->info.contents_end_row ||
            (record.row == row && record.offset < offset_min))
            return rp_fail(error, -RP_E_CORRUPT, rp_checkpoint_damaged_hint,
                           "%s: the contents make no sense at byte %zu of them", path, at);
        row = record.row;
        offset_min = (uint64_t)record.offset + record.count;
    }
}

static int verify_section(const struct rp_checkpoint_head *head,
                          const struct rp_checkpoint_format_section *section, const uint8_t *file,
                          const char *path, struct rp_error *error)
{
    const uint8_t *data = file + section->offset;
    uint64_t padded = rp_align_up(section->bytes, RP_CHECKPOINT_PAGE_BYTES);
    RP_ASSERT(rp_range_inside(section->offset, padded, head->file_bytes));
    struct rp_hash128 hash = rp_hash128(data, (size_t)section->bytes);
    if (!rp_hash128_equal(section->hash, hash))
        return fail_damaged(error, path, section->offset,
                            "the hash of section %" PRIu32 " (%" PRIu64 " bytes) does not match",
                            section->type, section->bytes);
    if (!all_zero(data + section->bytes, (size_t)(padded - section->bytes)))
        return fail_damaged(error, path, section->offset + section->bytes,
                            "the padding after section %" PRIu32 " is not zero", section->type);
    return section->type == RP_CHECKPOINT_CONTENTS
               ? verify_contents(head, data, (size_t)section->bytes, path, error)
               : 0;
}

int rp_checkpoint_verify(const struct rp_checkpoint_head *head, const void *file, const char *path,
                         struct rp_checkpoint_damage *damage, struct rp_error *error)
{
    const uint8_t *bytes = file;
    *damage = (struct rp_checkpoint_damage){.contents = false};
    int code = verify_footer(head, bytes + head->file_bytes - RP_CHECKPOINT_FOOTER_BYTES, path,
                             error);
    for (uint32_t i = 0; code == 0 && i < head->section_count; i++)
        if (head->sections[i].critical)
            code = verify_section(head, &head->sections[i], bytes, path, error);
    if (code < 0)
        return code;
    /* Last, because no later check may overwrite the message about them. Also sections of unknown
     * types, which are never used: whoever verifies a file wants to know of every byte. */
    for (uint32_t i = 0; i < head->section_count; i++) {
        const struct rp_checkpoint_format_section *section = &head->sections[i];
        if (section->critical || verify_section(head, section, bytes, path, error) == 0)
            continue;
        if (section->type == RP_CHECKPOINT_CONTENTS)
            damage->contents = true;
        else if (damage->other == 0)
            damage->other = section->type;
    }
    return 0;
}

/* ---- contents -------------------------------------------------------------------------------- */

RP_STATIC_ASSERT(sizeof(struct rp_content_record) == 24, "FORMAT.md, contents");

int rp_content_next(const void *contents, size_t bytes, size_t *cursor,
                    struct rp_content_record *record, const void **tokens)
{
    size_t at = *cursor;
    if (at == bytes)
        return 0;
    if (!rp_range_inside(at, sizeof *record, bytes))
        return -RP_E_CORRUPT;
    const uint8_t *data = contents;
    memcpy(record, data + at, sizeof *record);
    at += sizeof *record;
    if ((record->width != 2 && record->width != 4) || record->count == 0 || record->reserved != 0 ||
        record->count > UINT32_MAX - record->offset)
        return -RP_E_CORRUPT;
    uint64_t used = (uint64_t)record->count * record->width;
    uint64_t padded = rp_align_up(used, 8);
    if (!rp_range_inside(at, padded, bytes) || !all_zero(data + at + used, (size_t)(padded - used)))
        return -RP_E_CORRUPT;
    *tokens = data + at;
    *cursor = at + (size_t)padded;
    return 1;
}
