/* SPDX-License-Identifier: Apache-2.0 */
/* A file that verifies may still be forged, so control characters in the text of its config are not
 * printed. */
#include "checkpoint_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/contract.h"
#include "cmd.h"
#include "cmd_state.h"
#include "state/token_sources.h"

int rp_show_checkpoint_token(const struct rp_checkpoint *checkpoint, struct rp_state_info *token,
                             struct rp_error *error)
{
    size_t bytes;
    const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
    const char *path = rp_checkpoint_path(checkpoint);
    int code = rp_state_info(state, bytes, token, error);
    if (code < 0)
        return rp_fail_context(error, code, "%s", path);
    uint64_t row = rp_checkpoint_info(checkpoint)->next_row;
    if (token->next_row != row)
        return rp_fail(error, -RP_E_CORRUPT, "take an earlier checkpoint",
                       "%s: the head has next_row %" PRIu64 ", its state token %" PRIu64, path, row,
                       token->next_row);
    return 0;
}

/* ---- contents -------------------------------------------------------------------------------- */

struct contents {
    uint64_t records, tokens, bytes;
};

static struct contents contents_of(const struct rp_checkpoint *checkpoint)
{
    struct contents sum = {0};
    size_t bytes, cursor = 0;
    const void *section = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes),
               *tokens;
    struct rp_content_record record;
    while (section && rp_content_next(section, bytes, &cursor, &record, &tokens) == 1) {
        sum.records++;
        sum.tokens += record.count;
    }
    sum.bytes = bytes;
    return sum;
}

/* ---- the contract ---------------------------------------------------------------------------- */

struct shown {
    struct rp_contract contract; /* a record of 0 bytes = not known */
    char *text;                  /* memory of a record that was made from a state token */
};

/* A state token carries only the stream record. */
static struct shown contract_of_state(const void *state, size_t bytes)
{
    struct rp_record_writer writer = {0};
    struct shown shown = {.text = NULL};
    if (rp_state_contract(state, bytes, &writer, NULL) == 0)
        shown.contract.stream = (struct rp_record){writer.text, writer.bytes};
    shown.text = writer.text;
    return shown;
}

static struct shown contract_of(const struct rp_checkpoint *checkpoint)
{
    size_t bytes;
    const char *text = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTRACT, &bytes);
    struct shown shown = {.text = NULL};
    if (text && rp_contract_open(&shown.contract, text, bytes, NULL) == 0)
        return shown;
    const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
    return contract_of_state(state, bytes);
}

/* ---- text ------------------------------------------------------------------------------------ */

#define LABEL "  %-16s"

static void print_count(const char *label, uint64_t count)
{
    char text[RP_CMD_TEXT_BYTES];
    printf(LABEL "%s\n", label, rp_cmd_count_text(count, text));
}

static void print_contents(const struct rp_checkpoint *checkpoint)
{
    const struct rp_checkpoint_info *info = rp_checkpoint_info(checkpoint);
    struct contents contents = contents_of(checkpoint);
    char tokens[RP_CMD_TEXT_BYTES], bytes[RP_CMD_TEXT_BYTES];
    if (rp_checkpoint_contents_bad(checkpoint))
        printf(LABEL "damaged: they will be read again, the stream is safe\n", "contents");
    else if (contents.records == 0)
        printf(LABEL "none\n", "contents");
    else
        printf(LABEL "%s tokens in rows %" PRIu64 " to %" PRIu64 ", %s\n", "contents",
               rp_cmd_count_text(contents.tokens, tokens), info->next_row,
               info->contents_end_row - 1, rp_cmd_bytes_text(contents.bytes, bytes));
}

static void print_version_1(const struct rp_plan_config *config)
{
    char hex[RP_HASH_HEX_BYTES];
    printf(LABEL "%" PRIu32 "\n", "plan_partitions", config->lanes);
    if (config->num_epochs)
        print_count("epochs", config->num_epochs);
    else
        printf(LABEL "endless\n", "epochs");
    printf(LABEL "%s (sampled)\n", "corpus", rp_hash128_hex(config->corpus_sampled, hex));
}

/* Version 2: the corpus is in the records of the sources. */
static void print_window(const struct rp_state_info *token)
{
    printf(LABEL "2\n", "stream version");
    if (token->window_first < token->window_end)
        printf(LABEL "rows %" PRIu64 " to %" PRIu64 "\n", "deal window", token->window_first,
               token->window_end - 1);
}

static void print_token(const void *state, const struct rp_state_info *token)
{
    const struct rp_plan_config *config = &token->config;
    char hex[RP_HASH_HEX_BYTES];
    printf("state token\n");
    print_count("bytes", token->bytes);
    printf(LABEL "%" PRIu64 "\n", "seed", config->seed);
    print_count("seq_len", config->seq_len);
    printf(LABEL "%s\n", "shuffle", rp_shuffle_name(config->shuffle));
    printf(LABEL "%s, %s %" PRIu32 ", row_gap %s, long documents %s\n", "packing",
           rp_packing_name(config->packing), rp_plan_window_name(config->packing), config->window,
           rp_plan_row_gap_name(config->row_gap), rp_long_doc_name(config->long_doc));
    printf(LABEL "%" PRIu32 "\n", "sources", token->source_count);
    if (token->stream_version == 2)
        print_window(token);
    else
        print_version_1(config);
    if (rp_hash128_is_known(config->corpus_full))
        printf(LABEL "%s (full)\n", "", rp_hash128_hex(config->corpus_full, hex));
    if (rp_hash128_is_known(config->tokenizer))
        printf(LABEL "%s\n", "tokenizer", rp_hash128_hex(config->tokenizer, hex));
    printf(LABEL "%s\n", "plan digest",
           rp_hash128_is_known(token->digest)
               ? rp_hash128_hex(token->digest, hex)
               : "not known: the token is of an older version, or follows from one");
    print_count("documents", token->counts.documents);
    print_count("tokens read", token->counts.tokens_read);
    print_count("emitted", token->counts.emitted);
    print_count("buffered", token->counts.buffered);
    print_count("dropped", token->counts.dropped + token->counts.truncated);
    if (token->stream_version == 2)
        rp_holdings_print(state, token->bytes);
}

/* A record that was opened has only printable characters. */
static void print_record(const char *title, const struct rp_record *record)
{
    char hex[RP_HASH_HEX_BYTES];
    struct rp_field field;
    if (record->bytes == 0)
        return;
    printf("%s contract %s\n", title, rp_hash128_hex(rp_record_hash(record), hex));
    for (size_t at = 0; rp_record_next(record, &at, &field);)
        printf("  %-22.*s %.*s\n", (int)field.name_bytes, field.name, (int)field.value_bytes,
               field.value);
}

static void print_contract(const struct shown *shown)
{
    print_record("stream", &shown->contract.stream);
    print_record("delivery", &shown->contract.delivery);
}

static void print_config(const struct rp_checkpoint *checkpoint)
{
    size_t bytes;
    const char *text = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    if (bytes == 0)
        return;
    printf("config\n  ");
    for (size_t i = 0; i < bytes; i++) {
        bool control = ((unsigned char)text[i] < 0x20 && text[i] != '\n' && text[i] != '\t') ||
                       text[i] == 0x7f;
        putchar(control ? '?' : text[i]);
        if (text[i] == '\n' && i + 1 < bytes)
            printf("  ");
    }
    if (text[bytes - 1] != '\n')
        putchar('\n');
}

/* `token` may be NULL if it could not be decoded; it is left out then. */
static void print_checkpoint(const struct rp_checkpoint *checkpoint,
                             const struct rp_state_info *token)
{
    const struct rp_checkpoint_info *info = rp_checkpoint_info(checkpoint);
    char hex[RP_HASH_HEX_BYTES];
    printf("%s\n", rp_checkpoint_path(checkpoint));
    printf(LABEL "%" PRIu64 "\n", "sequence", info->sequence);
    printf(LABEL "%s, with ringpack %s\n", "run", info->run, info->version);
    printf(LABEL "%" PRIu32 " ranks, %" PRIu32 " rows a batch\n", "written for",
           info->dp_world_size, info->batch_size);
    printf(LABEL "%s\n", "stream", rp_hash128_hex(info->identity, hex));
    print_count("next row", info->next_row);
    print_contents(checkpoint);
    if (token) {
        size_t bytes;
        print_token(rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes), token);
    }
    struct shown shown = contract_of(checkpoint);
    print_contract(&shown);
    free(shown.text);
    print_config(checkpoint);
}

static void print_state(const char *path, const void *state, const struct rp_state_info *token)
{
    struct shown shown = contract_of_state(state, token->bytes);
    printf("%s\n", path);
    print_count("next row", token->next_row);
    print_token(state, token);
    print_contract(&shown);
    free(shown.text);
}

void rp_show_checkpoint_entries_print(const struct rp_checkpoint_entry *entries, size_t count)
{
    static const char *const words[] = {[RP_CHECKPOINT_GOOD] = "good",
                                        [RP_CHECKPOINT_BAD] = "damaged",
                                        [RP_CHECKPOINT_SET_ASIDE] = "set aside",
                                        [RP_CHECKPOINT_REWOUND] = "rewound"};
    char row[RP_CMD_TEXT_BYTES], bytes[RP_CMD_TEXT_BYTES];
    if (count == 0)
        printf("no checkpoints\n");
    else
        printf("%-12s %-10s %14s %10s  %s\n", "sequence", "status", "next row", "size", "run");
    for (size_t i = 0; i < count; i++) {
        const struct rp_checkpoint_entry *entry = &entries[i];
        bool readable = !entry->message[0];
        char other[64] = "";
        if (entry->other_bad)
            snprintf(other, sizeof other, "  (section %" PRIu32 ", which no run needs, is damaged)",
                     entry->other_bad);
        printf("%-12" PRIu64 " %-10s %14s %10s  %s%s%s\n", entry->sequence, words[entry->status],
               readable ? rp_cmd_count_text(entry->info.next_row, row) : "-",
               rp_cmd_bytes_text(entry->bytes, bytes), readable ? entry->info.run : entry->message,
               entry->contents_bad ? "  (contents damaged: they will be read again)" : "", other);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* JSON numbers above 2^63 might be rounded by readers, so they are printed as text. */
static json_t *json_u64(uint64_t value)
{
    char text[24];
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    snprintf(text, sizeof text, "%" PRIu64, value);
    return json_string(text);
}

static json_t *json_hash(struct rp_hash128 hash)
{
    char hex[RP_HASH_HEX_BYTES];
    return json_string(rp_hash128_hex(hash, hex));
}

static json_t *json_info(const struct rp_checkpoint_info *info)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:s}", "sequence",
                     json_u64(info->sequence), "next_row", json_u64(info->next_row),
                     "contents_end_row", json_u64(info->contents_end_row), "identity",
                     json_hash(info->identity), "world", (json_int_t)info->dp_world_size, "rows",
                     (json_int_t)info->batch_size, "run", info->run, "version", info->version);
}

/* Version 2 has none of these fields. */
static json_t *json_version_1(const struct rp_state_info *token, json_t *value)
{
    return token->stream_version == 1 ? value : (json_decref(value), json_null());
}

static json_t *json_token(const void *state, const struct rp_state_info *token)
{
    const struct rp_plan_config *config = &token->config;
    const struct rp_plan_counts *counts = &token->counts;
    bool has_digest = rp_hash128_is_known(token->digest);
    json_t *value = json_pack(
        "{s:I, s:I, s:o, s:I, s:s, s:s, s:I, s:s, s:s, s:I, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "bytes", (json_int_t)token->bytes, "stream_version", (json_int_t)token->stream_version,
        "seed", json_u64(config->seed), "seq_len", (json_int_t)config->seq_len, "shuffle",
        rp_shuffle_name(config->shuffle), "packing", rp_packing_name(config->packing), "window",
        (json_int_t)config->window, "fill", rp_plan_row_gap_name(config->row_gap), "long_doc",
        rp_long_doc_name(config->long_doc), "sources", (json_int_t)token->source_count, "lanes",
        json_version_1(token, json_integer((json_int_t)config->lanes)), "num_epochs",
        json_version_1(token, json_u64(config->num_epochs)), "corpus_sampled",
        json_version_1(token, json_hash(config->corpus_sampled)), "corpus_full",
        json_version_1(token, json_hash(config->corpus_full)), "documents",
        json_u64(counts->documents), "tokens_read", json_u64(counts->tokens_read), "emitted",
        json_u64(counts->emitted), "buffered", json_u64(counts->buffered), "dropped",
        json_u64(counts->dropped), "truncated", json_u64(counts->truncated), "plan_digest",
        has_digest ? json_hash(token->digest) : json_null());
    if (token->stream_version == 2)
        rp_holdings_json(state, token->bytes, value);
    return value;
}

/* Add the fields of both records, and the hash of each. */
static void json_add_contract(json_t *value, const struct shown *shown)
{
    const struct rp_record *records[] = {&shown->contract.stream, &shown->contract.delivery};
    static const char *const names[] = {"stream", "delivery"};
    json_t *object = json_object(), *hashes = json_object();
    struct rp_field field;
    for (size_t r = 0; r < RP_ARRAY_COUNT(records); r++) {
        for (size_t at = 0; rp_record_next(records[r], &at, &field);) {
            char name[RP_RECORD_NAME_MAX + 1];
            snprintf(name, sizeof name, "%.*s", (int)field.name_bytes, field.name);
            json_object_set_new(object, name, json_stringn(field.value, field.value_bytes));
        }
        json_object_set_new(hashes, names[r],
                            records[r]->bytes ? json_hash(rp_record_hash(records[r]))
                                              : json_null());
    }
    json_object_set_new(value, "contract", object);
    json_object_set_new(value, "contract_hashes", hashes);
}

static json_t *json_checkpoint(const struct rp_checkpoint *checkpoint,
                               const struct rp_state_info *token)
{
    struct contents contents = contents_of(checkpoint);
    size_t bytes;
    const char *config = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    json_t *value = json_info(rp_checkpoint_info(checkpoint));
    json_object_set_new(value, "path", rp_cmd_json_text(rp_checkpoint_path(checkpoint)));
    json_object_set_new(value, "contents",
                        json_pack("{s:b, s:o, s:o, s:o}", "damaged",
                                  rp_checkpoint_contents_bad(checkpoint), "records",
                                  json_u64(contents.records), "tokens", json_u64(contents.tokens),
                                  "bytes", json_u64(contents.bytes)));
    struct shown shown = contract_of(checkpoint);
    json_add_contract(value, &shown);
    free(shown.text);
    const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
    json_object_set_new(value, "token", token ? json_token(state, token) : json_null());
    json_t *text = config ? json_stringn(config, bytes) : NULL; /* NULL also when it is no UTF-8 */
    json_object_set_new(value, "config", text ? text : json_null());
    return value;
}

static json_t *json_state(const char *path, const void *state, const struct rp_state_info *token)
{
    struct shown shown = contract_of_state(state, token->bytes);
    json_t *value = json_object();
    json_object_set_new(value, "path", rp_cmd_json_text(path));
    json_object_set_new(value, "next_row", json_u64(token->next_row));
    json_add_contract(value, &shown);
    free(shown.text);
    json_object_set_new(value, "token", json_token(state, token));
    return value;
}

json_t *rp_show_checkpoint_entries_json(const struct rp_checkpoint_entry *entries, size_t count)
{
    static const char *const words[] = {[RP_CHECKPOINT_GOOD] = "good",
                                        [RP_CHECKPOINT_BAD] = "damaged",
                                        [RP_CHECKPOINT_SET_ASIDE] = "set_aside",
                                        [RP_CHECKPOINT_REWOUND] = "rewound"};
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct rp_checkpoint_entry *entry = &entries[i];
        json_t *value = entry->message[0] ? json_object() : json_info(&entry->info);
        json_object_set_new(value, "sequence", json_u64(entry->sequence));
        json_object_set_new(value, "name", json_string(entry->name));
        json_object_set_new(value, "bytes", json_u64(entry->bytes));
        json_object_set_new(value, "status", json_string(words[entry->status]));
        json_object_set_new(value, "contents_damaged", json_boolean(entry->contents_bad));
        json_object_set_new(value, "damaged_section",
                            entry->other_bad ? json_integer(entry->other_bad) : json_null());
        json_object_set_new(value, "message", rp_cmd_json_text(entry->message));
        json_array_append_new(list, value);
    }
    return list;
}

/* ---- a path ---------------------------------------------------------------------------------- */

/* A state token that a trainer has saved. */
static int show_state(const char *path, json_t **json)
{
    struct rp_error error;
    struct rp_state_info token;
    char *state;
    size_t bytes;
    int code = rp_cmd_read_state(path, &state, &bytes, &error);
    if (code == 0)
        code = rp_state_info(state, bytes, &token, &error);
    if (code == 0 && json)
        *json = json_state(path, state, &token);
    else if (code == 0)
        print_state(path, state, &token);
    free(state);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_show_path(const char *path, json_t **json)
{
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    if (rp_cmd_is_state(path))
        return show_state(path, json);
    if (rp_cmd_open_checkpoint(&checkpoint, path, &error) < 0)
        return rp_cmd_report(&error);
    struct rp_state_info token;
    struct rp_error token_error;
    bool token_fine = rp_show_checkpoint_token(checkpoint, &token, &token_error) == 0;
    if (json)
        *json = json_checkpoint(checkpoint, token_fine ? &token : NULL);
    else
        print_checkpoint(checkpoint, token_fine ? &token : NULL);
    rp_checkpoint_close(checkpoint);
    return token_fine ? RP_EXIT_FINE : rp_cmd_report(&token_error);
}
