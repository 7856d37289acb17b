/* SPDX-License-Identifier: Apache-2.0 */
/* token_format.c — the header of a state token, the greatest length of a token, and the checks that
 * need no plan: magic, length, hash and version. */
#include <inttypes.h>

#include "base/bits.h"
#include "plan/token_records.h"

enum {
    HASH_BYTES = sizeof(struct rp_hash128),
    TAIL_BYTES = 2 * HASH_BYTES, /* tokenizer and plan digest */
    V2_NEXT_ROW_AT = 24,         /* STREAM2.md section 12.2 */
};

uint64_t rp_state_bytes_max(const struct rp_plan_config *config, uint32_t source_count)
{
    /* No overflow: at most 2^10 lanes with 2^12 rows or pieces of less than 2^11 bytes each. */
    uint64_t held = sizeof(struct rp_state_piece); /* concat */
    if (config->packing == RP_PACKING_LOOKAHEAD)   /* a pending piece takes a place of the FIFO */
        held = sizeof(struct rp_state_piece) * (uint64_t)config->window;
    if (config->packing == RP_PACKING_BEST_FIT)
        held += config->window * (sizeof(struct rp_state_open_row) +
                                  sizeof(struct rp_fragment) *
                                      rp_min_u64(config->max_docs_per_row - 1, RP_AGE_MAX_WINDOWS));
    uint64_t lane = sizeof(struct rp_state_lane) + held +
                    sizeof(struct rp_state_cursor) * (uint64_t)source_count;
    return sizeof(struct rp_state_header) +
           sizeof(struct rp_state_source) * (uint64_t)source_count + config->lanes * lane +
           TAIL_BYTES + HASH_BYTES;
}

/* The oldest version that has all that the plan knows. */
static uint32_t version_of(const struct rp_plan *plan)
{
    return rp_hash128_is_known(plan->digest)             ? RP_TOKEN_VERSION_DIGEST
           : rp_hash128_is_known(plan->config.tokenizer) ? RP_TOKEN_VERSION_TOKENIZER
                                                         : RP_TOKEN_VERSION_PLAIN;
}

struct rp_state_header rp_state_header_of(const struct rp_plan *plan)
{
    const struct rp_plan_config *config = &plan->config;
    return (struct rp_state_header){
        .magic = RP_TOKEN_MAGIC,
        .version = version_of(plan),
        .corpus_sampled = config->corpus_sampled,
        .corpus_full = config->corpus_full,
        .seed = config->seed,
        .seq_len = config->seq_len,
        .shuffle = (uint8_t)config->shuffle,
        .packing = (uint8_t)config->packing,
        .row_gap = (uint8_t)config->row_gap,
        .long_doc = (uint8_t)config->long_doc,
        .window = config->window,
        .max_docs_per_row = config->max_docs_per_row,
        .block_documents = config->block_documents,
        .window_blocks = config->window_blocks,
        .lanes = config->lanes,
        .source_count = plan->source_count,
        .num_epochs = config->num_epochs,
        .next_row = plan->next_row,
    };
}

struct rp_state_head rp_state_head(const void *token)
{
    struct rp_state_header header;
    struct rp_state_head head = {0};
    RP_STATIC_ASSERT(RP_STATE_HEAD_BYTES == sizeof header, "all bytes of the head are there");
    memcpy(&header, token, sizeof header);
    if (memcmp(header.magic, RP_TOKEN_MAGIC, sizeof header.magic) != 0)
        return head;
    bool is_v2 = header.version == RP_TOKEN_VERSION_CALENDAR;
    head.bytes = header.bytes;
    if (is_v2)
        memcpy(&head.next_row, (const uint8_t *)token + V2_NEXT_ROW_AT, sizeof head.next_row);
    else
        head.next_row = header.next_row;
    head.has_digest = is_v2 || header.version == RP_TOKEN_VERSION_DIGEST;
    head.stream_version = is_v2 ? 2 : header.version - 1 < RP_TOKEN_VERSION_DIGEST ? 1 : 0;
    return head;
}

/* Take a hash from the end of the unread bytes; false if they are too few. */
static bool take_last(struct rp_state_reader *reader, struct rp_hash128 *hash)
{
    if (reader->left < sizeof *hash)
        return false;
    reader->left -= sizeof *hash;
    memcpy(hash, reader->at + reader->left, sizeof *hash);
    return true;
}

static int read_tail(struct rp_state_reader *reader, uint32_t version, struct rp_error *error)
{
    if (version == RP_TOKEN_VERSION_DIGEST &&
        !(take_last(reader, &reader->digest) && rp_hash128_is_known(reader->digest)))
        return RP_TOKEN_DAMAGED(error,
                                ": its version says that it has a plan digest; none is there");
    bool has_tokenizer = version == RP_TOKEN_VERSION_PLAIN || take_last(reader, &reader->tokenizer);
    if (!has_tokenizer ||
        (version == RP_TOKEN_VERSION_TOKENIZER && !rp_hash128_is_known(reader->tokenizer)))
        return RP_TOKEN_DAMAGED(error,
                                ": its version says that it names a tokenizer; none is there");
    return 0;
}

bool rp_state_skip_held(struct rp_state_reader *reader, const struct rp_state_lane *lane)
{
    if (!rp_state_skip(reader, (uint64_t)lane->fifo + lane->pending, sizeof(struct rp_state_piece)))
        return false;
    for (uint32_t i = 0; i < lane->open_rows; i++) {
        struct rp_state_open_row row;
        if (!rp_state_read(reader, &row, sizeof row) ||
            !rp_state_skip(reader, row.fragments, sizeof(struct rp_fragment)))
            return false;
    }
    return true;
}

int rp_state_check_bytes(const void *token, size_t bytes, size_t least, size_t empty_bytes,
                         struct rp_error *error)
{
    struct {
        char magic[8];
        uint32_t version, bytes;
    } head;
    if (bytes < least)
        return RP_TOKEN_DAMAGED(error, ": %zu bytes; even an empty one has %zu", bytes,
                                empty_bytes);
    memcpy(&head, token, sizeof head);
    if (memcmp(head.magic, RP_TOKEN_MAGIC, sizeof head.magic) != 0)
        return RP_TOKEN_DAMAGED(error,
                                ": these bytes are not a state token (they do not begin with %s)",
                                RP_TOKEN_MAGIC);
    if (head.bytes != bytes || bytes < sizeof head + HASH_BYTES)
        return RP_TOKEN_DAMAGED(error, ": it says that it has %" PRIu32 " bytes; %zu are there",
                                head.bytes, bytes);
    size_t hashed = bytes - HASH_BYTES;
    struct rp_hash128 expected, found = rp_hash128(token, hashed);
    memcpy(&expected, (const uint8_t *)token + hashed, sizeof expected);
    if (!rp_hash128_equal(expected, found)) {
        char expected_hex[RP_HASH_HEX_BYTES], found_hex[RP_HASH_HEX_BYTES];
        return RP_TOKEN_DAMAGED(error, ": its hash is %s; its bytes hash to %s",
                                rp_hash128_hex(expected, expected_hex),
                                rp_hash128_hex(found, found_hex));
    }
    return 0;
}

int rp_state_open(struct rp_state_reader *reader, struct rp_state_header *header, const void *token,
                  size_t bytes, struct rp_error *error)
{
    const size_t empty_bytes = sizeof *header + HASH_BYTES;
    int code = rp_state_check_bytes(token, bytes, empty_bytes, empty_bytes, error);
    if (code < 0)
        return code;
    memcpy(header, token, sizeof *header);
    if (header->version < RP_TOKEN_VERSION_PLAIN || header->version > RP_TOKEN_VERSION_DIGEST)
        return rp_fail(error, -RP_E_VERSION, "use the ringpack that wrote it",
                       "state token: version %" PRIu32 "; this ringpack reads versions %u to %u",
                       header->version, RP_TOKEN_VERSION_PLAIN, RP_TOKEN_VERSION_DIGEST);
    *reader = (struct rp_state_reader){.at = (const uint8_t *)token + sizeof *header,
                                       .left = bytes - empty_bytes};
    return read_tail(reader, header->version, error);
}
