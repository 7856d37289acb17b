/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar_layout.h — where each field of a sidecar's header lies (the table is in sidecar.h). */
#ifndef RP_CORPUS_SIDECAR_LAYOUT_H
#define RP_CORPUS_SIDECAR_LAYOUT_H

/* As in PNG: damaged by anything that strips the eighth bit or translates line ends. */
#define RP_SIDECAR_MAGIC "\x89RPX\r\n\x1a\n"
#define RP_SIDECAR_VERSION 2u
#define RP_SIDECAR_VERSION_TOKENIZER 3u

enum {
    AT_VERSION = 8,
    AT_BLOCK_BYTES = 12,
    AT_FORMAT = 16,
    AT_TYPE = 20,
    AT_EOS = 24,
    AT_BYTES = 32,
    AT_TOKEN_OFFSET = 40,
    AT_TOKENS = 48,
    AT_DOCUMENTS = 56,
    AT_TOKEN_MAX = 64,
    AT_BLOCK_COUNT = 72,
    AT_TABLE_BYTES = 80,
    AT_INDEX_BYTES = 88,
    AT_INDEX_SAMPLE = 96,
    AT_INDEX_CONTENT = 112,
    AT_CONTENT = 128,
    AT_TABLE_SECTIONS = 144,
    AT_MASK_RULE = 148,
    AT_SPAN_COUNT = 152,
    AT_TABLE_ROOT = 160,
    AT_COLUMN = 176,
    AT_MASK = 208,
    AT_HEADER_HASH = 240,
};

/* Of the tokenizer, at the end of version 3. */
enum {
    TOKENIZER_AT_NAME = 0,
    TOKENIZER_AT_HASH = 48,
    TOKENIZER_AT_CHECK = 64,
    TOKENIZER_BYTES = 80,
};

#endif
