/* SPDX-License-Identifier: Apache-2.0 */
/* key.h — the table of all keys, which the YAML reader, the options, the defaults, the range checks
 * and the help are made of. Private to engine/config, and to declared.c, which expands patterns of
 * files as a config does.
 *
 * A default (`standard`) in parentheses is a text for people: the field starts as zero and is set
 * later. */
#ifndef RP_CONFIG_KEY_H
#define RP_CONFIG_KEY_H

#include <stddef.h>

#include "config/config.h"
#include "corpus/corpus.h"

enum rp_key_kind {
    RP_KIND_COUNT,    /* whole number, k m g t = powers of 1000, Ki Mi Gi Ti = of 1024; or the one
                         word of `words`, stored as RP_CONFIG_CHOSEN */
    RP_KIND_LENGTH,   /* the same without k m g t, because 8k may be meant as 8000 or as 8192 */
    RP_KIND_BYTES,    /* whole number, k m g t = powers of 1024 */
    RP_KIND_SIGNED,   /* whole number, may be negative */
    RP_KIND_EPOCHS,   /* whole number or `endless`; the last kind of whole numbers */
    RP_KIND_BOOL,     /* true or false */
    RP_KIND_CHOICE,   /* one of `words`, stored as its number */
    RP_KIND_WORD,     /* one of `words`, stored as text */
    RP_KIND_TEXT,     /* any text */
    RP_KIND_PATH,     /* relative to the config file, or to the working directory for an option;
                         a word of `words` is not a path */
    RP_KIND_WEIGHT,   /* decimal number, stored in millionths */
    RP_KIND_RANKS,    /* `3` or `0-3` */
    RP_KIND_SECTIONS, /* list of section names */
    RP_KIND_NAMES,    /* list of names, stored as one text with commas */
    RP_KIND_COMMAND,  /* list of a program and its arguments; a program with a slash is a path */
    RP_KIND_SHARDS,   /* list of paths and globs */
    RP_KIND_SOURCES,  /* list of sources */
    RP_KIND_DROPPED,  /* one of `words`; false and true stand for the first two */
    /* Nested values (nested.c): as an option, the text of one is YAML. */
    RP_KIND_UNTIL,   /* `200k steps`, `500g tokens`, `row 4096` */
    RP_KIND_DEAL,    /* off, auto, or a mapping */
    RP_KIND_COST,    /* whole number, or a mapping */
    RP_KIND_SKIP,    /* mapping of ranges */
    RP_KIND_REPEAT,  /* mapping of counts to expressions */
    RP_KIND_WEIGHTS, /* mapping of sources to decimal numbers; also the next three */
    RP_KIND_LIMITS,  /* to mappings of limits */
    RP_KIND_FILES,   /* to paths */
    RP_KIND_NUMBERS, /* to whole numbers */
    RP_KIND_STAGES,  /* list of stages */
    RP_KIND_STREAMS, /* mapping of names to mappings of keys of the config */
};

#define RP_FORMAT_WORD(id, name) "|" name
#define RP_FORMATS "auto" RP_FORMAT_LIST(RP_FORMAT_WORD)
#define RP_TYPES "u8|u16|i16|i32|u32|i64|i8|u64"
#define RP_PROFILES "min|hf|trl|megatron|grain|olmo|torchtitan|pairs|full"
/* In the order of enum rp_section. */
#define RP_SECTION_WORDS                                                                           \
    "rows|doc_lens|input_ids|labels|position_ids|segment_ids|loss_mask|cu_seqlens|provenance"
#define RP_COUNT_MAX 0xffffffffu /* the bound of a 32-bit field that has no other */

/* key, field, kind, words, standard, least, most, help. Bounds apply to whole numbers only. */
#define RP_CONFIG_KEYS(X)                                                                          \
    X(run, run, TEXT, NULL, "default", 0, 0, "name by which trainers find the engine")             \
    X(sources, sources, SOURCES, NULL, "(required)", 0, 0,                                         \
      "places of the tokens: paths, or a mapping of name, weight, shards, format, ...")            \
    X(removed, removed, WEIGHTS, NULL, "(none)", 0, 0,                                             \
      "sources of earlier starts, with the weight that they had in `sources`")                     \
    X(streams, streams, STREAMS, NULL, "(the config is of one)", 0, 0,                             \
      "streams of one engine by name, each with the keys in which it differs: {train: {}, eval: "  \
      "{num_epochs: 1}}")                                                                          \
    X(stream, stream, TEXT, NULL, "(train, or else the first)", 0, 0,                              \
      "the one of the streams that is meant")                                                      \
    X(stream_version, stream_version, COUNT, NULL, "(2; of a run that resumes: its own)", 1, 2,    \
      "rules of the stream; 2 has stages, limits and selections (stages.md)")                      \
    X(seed, seed, COUNT, NULL, "0", 0, UINT64_MAX, "key of the order of documents")                \
    X(seq_len, seq_len, LENGTH, NULL, "(required)", 1, 1u << 24, "tokens in a row")                \
    X(shuffle, shuffle, CHOICE, "none|document|block", "document", 0, 0,                           \
      "order of documents; block keeps reads of cold disks in large runs")                         \
    X(block_documents, block_documents, COUNT, NULL, "1024", 1, RP_COUNT_MAX,                      \
      "documents in a block (shuffle: block)")                                                     \
    X(window_blocks, window_blocks, COUNT, NULL, "16", 1, RP_COUNT_MAX,                            \
      "blocks that are mixed with each other (shuffle: block)")                                    \
    X(packing, packing, CHOICE, "lookahead|concat|best_fit", "lookahead", 0, 0,                    \
      "how documents become rows")                                                                 \
    X(packing_buffer, packing_buffer, COUNT, NULL, "64", 1, 4096,                                  \
      "documents to choose from (packing: lookahead)")                                             \
    X(open_bins, open_bins, COUNT, NULL, "64", 1, 4096, "open rows (packing: best_fit)")           \
    X(row_gap, row_gap, CHOICE, "pad|split", "pad", 0, 0,                                          \
      "last gap of a row: padding, or a document cut to fit")                                      \
    X(long_doc, long_doc, CHOICE, "split|truncate|drop", "split", 0, 0,                            \
      "treatment of documents longer than a row")                                                  \
    X(max_docs_per_row, max_docs_per_row, COUNT, NULL, "(from the lengths of the documents)", 1,   \
      1u << 24, "most fragments in a row")                                                         \
    X(align, align, COUNT, NULL, "1", 1, 4096,                                                     \
      "places of a fragment are a multiple of it (stream_version: 2)")                             \
    X(spread, spread, COUNT, NULL, "64", 1, 1024,                                                  \
      "documents longer than a row whose rows alternate (stream_version: 2)")                      \
    X(group, group, COUNT, NULL, "1", 1, 64,                                                       \
      "neighbouring documents that must be in one row (stream_version: 2)")                        \
    X(bos_id, bos_id, COUNT, "none", "none", 0, UINT32_MAX - 1,                                    \
      "token inserted before each document (stream_version: 2)")                                   \
    X(eos_id, eos_id, COUNT, "none", "none", 0, UINT32_MAX - 1,                                    \
      "token inserted after each document (stream_version: 2)")                                    \
    X(label_across_cuts, label_across_cuts, BOOL, NULL, "false", 0, 0,                             \
      "the last token of a cut predicts the next one of its document (stream_version: 2)")         \
    X(deal, deal, DEAL, "off|auto", "off", 0, 0,                                                   \
      "order of rows for equal cost: a mapping of window, step, tier, cost (stream_version: 2)")   \
    X(stages, stages, STAGES, NULL, "(the whole config is one)", 0, 0,                             \
      "weights, limits and packing from a row on (stream_version: 2)")                             \
    X(skip, skip, SKIP, NULL, "(none)", 0, 0,                                                      \
      "rows and steps that are not delivered: {rows: [100-200], steps: [7]} (stream_version: 2)")  \
    X(grow, grow, BOOL, NULL, "true", 0, 0,                                                        \
      "at a resume, use documents that were appended to a source (stream_version: 2)")             \
    X(plan_partitions, plan_partitions, COUNT, NULL, "1", 1, 1024,                                 \
      "independent plans, the lanes; row g is of plan g mod their number (stream_version: 1)")     \
    X(num_epochs, num_epochs, EPOCHS, NULL, "1", 0, UINT32_MAX,                                    \
      "times that every source is read; 0 or endless: without end")                                \
    X(vocab_size, vocab_size, COUNT, NULL, "(not declared)", 0, 1ull << 32,                        \
      "token ids must be below it")                                                                \
    X(batch_size, batch_size, COUNT, NULL, "(required)", 1, 1u << 20,                              \
      "rows of a rank's micro-batch")                                                              \
    X(dp_world_size, dp_world_size, COUNT, NULL, "1", 1, 1u << 20, "ranks that share the stream")  \
    X(global_batch_size, global_batch_size, COUNT, NULL, "(batch_size * dp_world_size)", 1,        \
      1ull << 40, "rows of a step; a multiple of batch_size * dp_world_size")                      \
    X(ranks, rank_first, RANKS, NULL, "(all)", 0, 0,                                               \
      "ranks that this node serves, for instance 0-3")                                             \
    X(consumers_per_rank, consumers_per_rank, COUNT, NULL, "1", 1, 32,                             \
      "trainers that read each rank's batches: its neighbours in tensor or pipeline parallelism")  \
    X(drop_last, drop_last, BOOL, NULL, "false", 0, 0, "drop the last step when it is not full")   \
    X(pad_id, pad_id, SIGNED, NULL, "0", 0, 0, "token id of padding")                              \
    X(profile, profile, WORD, RP_PROFILES, "min", 0, 0,                                            \
      "sections and types that a framework expects")                                               \
    X(sections, sections, SECTIONS, NULL, "(of the profile)", 0, 0,                                \
      "sections of a batch: added to the sections of a given profile, else these only")            \
    X(columns, columns, NAMES, NULL, "(none)", 0, 0,                                               \
      "side columns of batches: values for each token, from files next to the shards")             \
    X(label_columns, label_columns, NAMES, NULL, "(none)", 0, 0,                                   \
      "the same, each value in the place that has its token as label")                             \
    X(document_columns, document_columns, NAMES, NULL, "(none)", 0, 0,                             \
      "columns of the index in batches: a number for the document of each fragment")               \
    X(token_dtype, token_dtype, CHOICE, "auto|u16|i32|i64", "auto", 0, 0,                          \
      "type of input_ids, labels and position_ids; auto = of the profile")                         \
    X(label_mode, label_mode, CHOICE, "shifted|aligned", "(of the profile)", 0, 0,                 \
      "label of a position: the next token (shifted) or the token itself (aligned)")               \
    X(cost, cost, COST, NULL, "16384", 1, (1u << 24) - 1,                                          \
      "cost of rows: the length at which attention costs as much as all else, or the model's "     \
      "numbers, {hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8}")                               \
    X(cpus, cpus, TEXT, NULL, "(all that it may use)", 0, 0,                                       \
      "CPUs of the engine, for instance 0-7,16-23; its memory is then on their NUMA nodes")        \
    X(readers, readers, COUNT, NULL, "1", 1, 64, "threads that read")                              \
    X(packers, packers, COUNT, "auto", "auto", 1, 64,                                              \
      "workers that pack; auto = from the CPUs and the trainers here, 1 to 8")                     \
    X(packer_processes, packer_processes, BOOL, NULL, "false", 0, 0,                               \
      "packing workers are processes instead of threads")                                          \
    X(prefetch_factor, prefetch_factor, COUNT, NULL, "8", 1, 4096,                                 \
      "batches that a rank's ring holds; rounded up to a power of two")                            \
    X(prefetch_bytes, prefetch_bytes, BYTES, NULL, "(64m, or four windows of blocks)", 1u << 16,   \
      1ull << 44, "memory between readers and packers")                                            \
    X(io_depth, io_depth, COUNT, NULL, "(128 where io_uring reads, else 64)", 1, 4096,             \
      "reads in flight per reader")                                                                \
    X(io, io, CHOICE, "auto|io_uring|pread|mapped", "auto", 0, 0,                                  \
      "how files are read; mapped suits a corpus that the page cache holds")                       \
    X(o_direct, o_direct, CHOICE, "auto|on|off", "auto", 0, 0,                                     \
      "read past the page cache (O_DIRECT)")                                                       \
    X(verify_blocks, verify_blocks, CHOICE, "auto|on|off", "auto", 0, 0,                           \
      "compare all reads with the hashes of the sidecars; auto = if a shard has a sidecar")        \
    X(index, index, PATH, NULL, "(sidecars next to the shards)", 0, 0,                             \
      "NAME.rpi: one index of all sources, so that a start opens no shard; else a directory of "   \
      "sidecars")                                                                                  \
    X(manifest, manifest, PATH, NULL, "(none)", 0, 0, "older name of `index`, for a file")         \
    X(index_dir, index_dir, PATH, NULL, "(none)", 0, 0, "older name of `index`, for a directory")  \
    X(cache_dir, cache_dir, PATH, NULL, "($XDG_CACHE_HOME/ringpack or ~/.cache/ringpack)", 0, 0,   \
      "directory for files fetched from object stores: indexes, sidecars, blocks")                 \
    X(cache_bytes, cache_bytes, BYTES, NULL, "(none are kept)", 8u << 20, 1ull << 50,              \
      "blocks of objects kept in cache_dir, by all engines that use it")                           \
    X(run_dir, run_dir, PATH, NULL, "($XDG_RUNTIME_DIR/ringpack or /tmp/ringpack-UID)", 0, 0,      \
      "directory of the socket")                                                                   \
    X(checkpoint_dir, checkpoint_dir, PATH, "none", "(none are written)", 0, 0,                    \
      "directory of the checkpoints; none = no key of checkpoints counts")                         \
    X(resume, resume, CHOICE, "auto|required|fresh", "auto", 0, 0,                                 \
      "without checkpoints: auto starts at row 0, required refuses; fresh sets them aside")        \
    X(checkpoint_steps, checkpoint_steps, COUNT, NULL, "0", 0, UINT64_MAX,                         \
      "steps from one checkpoint to the next; 0 = at SIGTERM and on demand only")                  \
    X(checkpoint_keep, checkpoint_keep, COUNT, NULL, "3", 2, 1000,                                 \
      "how many of the newest positions keep a checkpoint")                                        \
    X(checkpoint_keep_every, checkpoint_keep_every, COUNT, NULL, "0", 0, UINT64_MAX,               \
      "history: also keep the oldest checkpoint of every N steps; 0 = none")                       \
    X(checkpoint_scrub_seconds, checkpoint_scrub_seconds, COUNT, NULL, "21600", 0, 31536000,       \
      "kept checkpoints and copies are read again once in this number of seconds; 0 = never")      \
    X(checkpoint_contents, checkpoint_contents, BOOL, NULL, "true", 0, 0,                          \
      "also save the prefetched rows, so that a resumed run starts without reading the corpus")    \
    X(checkpoint_mirror_dir, checkpoint_mirror_dir, PATH, NULL, "(no copies)", 0, 0,               \
      "mirror: a directory where copies of checkpoints are written and verified")                  \
    X(alert_command, alert_command, COMMAND, NULL, "(alerts are logged only)", 0, 0,               \
      "program run at each alert, with its arguments, without a shell; RINGPACK_ALERT... say why") \
    X(alert_starved_ms, alert_starved_ms, COUNT, NULL, "0", 0, 86400000,                           \
      "alert when a trainer waits so long for a batch; 0 = never")                                 \
    X(alert_skew_rows, alert_skew_rows, COUNT, NULL, "0", 0, UINT64_MAX,                           \
      "alert when ranks of this node are this number of their rows apart; 0 = never")              \
    X(alert_disk_free, alert_disk_free, BYTES, NULL, "0", 0, UINT64_MAX,                           \
      "alert when less room is left for checkpoints, copies or the cache; 0 = never")              \
    X(log_format, log_format, CHOICE, "text|json|plain", "text", 0, 0,                             \
      "lines of the log: text with the time (systemd's journal has its own), json, plain")         \
    X(mount_guard_dir, mount_guard_dir, PATH, "none",                                              \
      "($XDG_STATE_HOME/ringpack or ~/.local/state/ringpack)", 0, 0,                               \
      "directory of the run record, by which a start notices a missing mount; none = no record")

#define RP_SOURCE_KEYS(X)                                                                          \
    X(name, name, TEXT, NULL, "(stem of the first shard)", 0, 0,                                   \
      "name in messages, and in stream version 2 also in the stream")                              \
    X(weight, weight, WEIGHT, NULL, "1", 0, 0,                                                     \
      "share of the tokens, relative to the other sources")                                        \
    X(shards, shards, SHARDS, NULL, "(required)", 0, 0,                                            \
      "files, URLs, Megatron prefixes, globs, directories")                                        \
    X(path, shards, SHARDS, NULL, "(required)", 0, 0, "the same as shards")                        \
    X(format, format, WORD, RP_FORMATS, "auto", 0, 0, "format of the shards")                      \
    X(dtype, dtype, WORD, RP_TYPES, "(from the file)", 0, 0, "type of a stored token")             \
    X(eos, eos, SIGNED, NULL, "-1", 0, 0, "token that ends a document, if the format needs one")   \
    X(column, column, TEXT, NULL, "(input_ids, tokens, or the only list of integers)", 0, 0,       \
      "column of token ids, if a file has several")                                                \
    X(mask, mask, TEXT, NULL, "auto", 0, 0,                                                        \
      "mask that says which tokens are trained: auto = as indexed, none, or its name")             \
    X(mask_value, mask_value, WORD, "train|ignore", "(as indexed)", 0, 0,                          \
      "meaning of an entry of the mask that is not 0")                                             \
    X(mask_of, mask_of, WORD, "token|next", "(as indexed)", 0, 0,                                  \
      "whether an entry of the mask is about its own token or the next one")                       \
    X(drop_untrained, drop_untrained, DROPPED, "none|document|fragment", "none", 0, 0,             \
      "leave out documents, or fragments (stream_version: 2), without a trained token; true = "    \
      "document")                                                                                  \
    X(select, select, TEXT, NULL, "(all)", 0, 0,                                                   \
      "expression: the documents that are used (stream_version: 2)")                               \
    X(repeat, repeat, REPEAT, NULL, "(none)", 0, 0,                                                \
      "documents taken several times in an epoch: {2: EXPRESSION} (stream_version: 2)")            \
    X(unseen_of, unseen_of, PATH, NULL, "(none)", 0, 0,                                            \
      "file of a state: the documents that it has used are left out (stream_version: 2)")          \
    X(unseen_source, unseen_source, TEXT, NULL, "(name)", 0, 0,                                    \
      "name of the source in the state of unseen_of (stream_version: 2)")                          \
    X(atomic, atomic, BOOL, NULL, "false", 0, 0,                                                   \
      "its documents are never cut (stream_version: 2)")                                           \
    X(too_long, too_long, CHOICE, "drop|truncate|error", "error", 0, 0,                            \
      "treatment of an atomic document longer than a row (stream_version: 2)")                     \
    X(max_epochs, limits.max_epochs, EPOCHS, NULL, "(num_epochs)", 0, UINT32_MAX,                  \
      "times that it may be read; 0 or endless: without end (stream_version: 2)")                  \
    X(max_tokens, limits.max_tokens, COUNT, NULL, "0", 0, INT64_MAX,                               \
      "no document is taken after so many tokens; 0 = no limit (stream_version: 2)")               \
    X(on_exhausted, limits.on_exhausted, CHOICE, "continue|stop|error", "continue", 0, 0,          \
      "action when one of its limits is reached (stream_version: 2)")                              \
    X(documents, documents, TEXT, NULL, "(all)", 0, 0,                                             \
      "the part of its documents that is used: FIRST-END, from 0 and without END, or percent "     \
      "(0-90%, and 90-100% for validation)")

/* The keys of a stage. A key that a config also has means the same there. */
#define RP_STAGE_KEYS(X)                                                                           \
    X(until, until, UNTIL, NULL, "(the last stage ends with the stream)", 0, 0,                    \
      "its end, from the beginning of the stream: 200k steps, 500g tokens, or row N")              \
    X(weights, weights, WEIGHTS, NULL, "(as before)", 0, 0,                                        \
      "weight of each source by name; one that is not named has 0, and waits")                     \
    X(ramp, ramp, COUNT, NULL, "0", 0, (UINT64_C(1) << 53) - 1,                                    \
      "rows over which the weights move from those before")                                        \
    X(limits, limits, LIMITS, NULL, "(as before)", 0, 0,                                           \
      "max_epochs, max_tokens and on_exhausted of sources by name")                                \
    X(without, without, FILES, NULL, "(none)", 0, 0,                                               \
      "documents that are taken out: files by source, with one number on a line")                  \
    X(documents, documents, NUMBERS, NULL, "(as before)", 0, 0,                                    \
      "documents of sources by name, for epochs that begin from here on")                          \
    X(seq_len, seq_len, LENGTH, NULL, "(as before)", 1, 1u << 24, "tokens in a row")               \
    X(packing, packing, CHOICE, "lookahead|concat|best_fit", "(as before)", 0, 0,                  \
      "how documents become rows")                                                                 \
    X(packing_buffer, packing_buffer, COUNT, NULL, "(as before)", 1, 4096,                         \
      "documents to choose from (packing: lookahead)")                                             \
    X(open_bins, open_bins, COUNT, NULL, "(as before)", 1, 4096, "open rows (packing: best_fit)")  \
    X(row_gap, row_gap, CHOICE, "pad|split", "(as before)", 0, 0, "last gap of a row")             \
    X(spread, spread, COUNT, NULL, "(as before)", 1, 1024,                                         \
      "documents longer than a row whose rows alternate")                                          \
    X(align, align, COUNT, NULL, "(as before)", 1, 4096,                                           \
      "places of a fragment are a multiple of it")                                                 \
    X(max_docs_per_row, max_docs_per_row, COUNT, NULL, "(as before, or from the lengths)", 1,      \
      1u << 24, "most fragments in a row")                                                         \
    X(deal, deal, DEAL, "off|auto", "(as before)", 0, 0, "order of rows for equal cost")           \
    X(global_batch_size, global_batch_size, COUNT, NULL, "(as before)", 1, 1ull << 40,             \
      "rows of a step")                                                                            \
    X(batch_size, batch_size, COUNT, NULL, "(as before)", 1, 1u << 20,                             \
      "rows of a rank's micro-batch")

/* The keys of `deal`, in rows but for the last five. Those in parentheses come from the job if they
 * are left out. */
#define RP_DEAL_KEYS(X)                                                                            \
    X(window, window, COUNT, NULL, "(8 steps)", 1, 1u << 20, "rows that are dealt together")       \
    X(step, step, COUNT, NULL, "(global_batch_size)", 1, 1u << 20, "rows of a step")               \
    X(tier, tier, COUNT, NULL, "(batch_size * dp_world_size)", 1, 1u << 20,                        \
      "rows of a micro-step of all ranks")                                                         \
    X(bundle, bundle, COUNT, NULL, "1", 1, 1u << 20, "rows of a rank's micro-batch")               \
    X(order, order, CHOICE, "descending|middle|wave|late_wave", "descending", 0, 0,                \
      "tiers of a step")                                                                           \
    X(cost, cost, COUNT, NULL, "(the key cost)", 1, (1u << 24) - 1,                                \
      "length whose attention costs as much as all else")                                          \
    X(attention_window, attention_window, COUNT, NULL, "0", 0, 1u << 24,                           \
      "tokens that a layer with a window attends to")                                              \
    X(window_layers, window_layers, COUNT, NULL, "0", 0, 64, "layers with such a window")          \
    X(layers, layers, COUNT, NULL, "1", 1, 64, "all layers")

/* The keys of `cost`. */
#define RP_COST_KEYS(X)                                                                            \
    X(k, k, COUNT, NULL, "(from the model)", 1, (1u << 24) - 1,                                    \
      "length whose attention costs as much as all else, as measured")                             \
    X(hidden, hidden, COUNT, NULL, "(required without k)", 1, 1u << 17, "width of the model")      \
    X(ffn, ffn, COUNT, NULL, "(required without k)", 1, 1u << 24,                                  \
      "width of the feed-forward network; of all active experts together")                         \
    X(heads, heads, COUNT, NULL, "(required without k)", 1, 1u << 12, "query heads")               \
    X(kv_heads, kv_heads, COUNT, NULL, "(heads)", 1, 1u << 12, "key and value heads")              \
    X(head_dim, head_dim, COUNT, NULL, "(hidden / heads)", 1, 1u << 12, "width of a head")         \
    X(gated, gated, BOOL, NULL, "true", 0, 0,                                                      \
      "whether the feed-forward network has three matrices")                                       \
    X(vocab, vocab, COUNT, NULL, "(left out)", 1, 1u << 24, "logits; needs `layers`")              \
    X(attention_window, attention_window, COUNT, NULL, "0", 1, 1u << 24,                           \
      "tokens that a layer with a window attends to")                                              \
    X(window_layers, window_layers, COUNT, NULL, "(layers, with attention_window)", 1, 1u << 12,   \
      "layers with such a window")                                                                 \
    X(layers, layers, COUNT, NULL, "1", 1, 1u << 12, "all layers")

/* The keys of an entry of `limits`. */
#define RP_LIMITS_KEYS(X)                                                                          \
    X(max_epochs, max_epochs, EPOCHS, NULL, "(as before)", 0, UINT32_MAX, "times that it is read") \
    X(max_tokens, max_tokens, COUNT, NULL, "(as before)", 0, INT64_MAX, "tokens that are taken")   \
    X(on_exhausted, on_exhausted, CHOICE, "continue|stop|error", "(as before)", 0, 0, "at a limit")

enum rp_key_index {
#define RP_KEY_INDEX(name, ...) RP_KEY_##name,
    RP_CONFIG_KEYS(RP_KEY_INDEX)
#undef RP_KEY_INDEX
        RP_KEY_COUNT
};
enum rp_source_key_index {
#define RP_KEY_INDEX(name, ...) RP_SOURCE_KEY_##name,
    RP_SOURCE_KEYS(RP_KEY_INDEX)
#undef RP_KEY_INDEX
        RP_SOURCE_KEY_COUNT
};
enum rp_stage_key_index {
#define RP_KEY_INDEX(name, ...) RP_STAGE_KEY_##name,
    RP_STAGE_KEYS(RP_KEY_INDEX)
#undef RP_KEY_INDEX
        RP_STAGE_KEY_COUNT
};

struct rp_key {
    const char *name;
    enum rp_key_kind kind;
    const char *words; /* separated by '|' */
    const char *standard;
    uint64_t least, most;
    const char *help;
    size_t offset, size; /* the field's, in struct rp_config or struct rp_config_source */
};
extern const struct rp_key rp_config_key_table[RP_KEY_COUNT];
extern const struct rp_key rp_source_key_table[RP_SOURCE_KEY_COUNT];
extern const struct rp_key rp_stage_key_table[RP_STAGE_KEY_COUNT];
/* A table, for code that takes any of them. */
struct rp_key_list {
    const struct rp_key *keys;
    size_t count;
};
extern const struct rp_key_list rp_config_key_list, rp_source_key_list, rp_stage_key_list,
    rp_deal_key_list, rp_cost_key_list, rp_limits_key_list;

/** The place of a key in its list, by its present name; list->count without such a key. */
size_t rp_key_index(const struct rp_key_list *list, const char *name);

/* One row of a table, of a field of struct `type`. */
#define RP_KEY_ROW(type, key, field, kind, words, standard, least, most, help)                     \
    {#key,                                                                                         \
     RP_KIND_##kind,                                                                               \
     words,                                                                                        \
     standard,                                                                                     \
     least,                                                                                        \
     most,                                                                                         \
     help,                                                                                         \
     offsetof(struct type, field),                                                                 \
     sizeof(((struct type *)0)->field)},

/* The place of a value. path NULL: given by rp_config_set. */
struct rp_key_place {
    const char *path;
    uint32_t line, column; /* from 1; column 0 = not known */
};

/** -RP_E_CONFIG with "place: key: message". */
int rp_key_fail(struct rp_key_place place, const char *key, const char *hint,
                struct rp_error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/** -ENOMEM, while a config is read. */
int rp_key_no_memory(struct rp_error *error);

/** Set the field of `key` in `object` from one text. Not for the kinds SHARDS and SOURCES. */
RP_MUST_CHECK int rp_key_set(const struct rp_key *key, void *object, const char *text,
                             struct rp_key_place place, struct rp_error *error);

/** -RP_E_CONFIG if a whole number in the field of `key` is outside of its bounds. */
RP_MUST_CHECK int rp_key_check(const struct rp_key *key, const void *object,
                               struct rp_key_place place, struct rp_error *error);
/** -RP_E_CONFIG "expected WHAT, found `found`". */
int rp_key_expected(struct rp_key_place place, const struct rp_key *key, const char *what,
                    const char *found, struct rp_error *error);
bool rp_key_is_nested(const struct rp_key *key);

/** The number in the field of `key` of `object`. */
uint64_t rp_key_number(const struct rp_key *key, const void *object);

/** Set every field that is not a text to its default. */
void rp_key_set_standards(const struct rp_key_list *list, void *object);
/** Set every text that is still NULL to its default. */
RP_MUST_CHECK int rp_key_fill_texts(const struct rp_key_list *list, void *object,
                                    struct rp_error *error);
void rp_key_free_texts(const struct rp_key_list *list, void *object);

/** Whether the field of a choice has this word; RP_KEY_IS: of a key of the config. */
bool rp_key_is(const struct rp_key *key, const void *object, const char *word);
#define RP_KEY_IS(config, key, word) rp_key_is(&rp_config_key_table[RP_KEY_##key], config, word)

/** The number of the word among "a|b|c", or -1. */
int rp_word_index(const char *words, const char *word);

/** A copy of `path`, relative to `directory` (may be NULL) unless it is absolute. The caller frees
 * it. NULL when out of memory. */
char *rp_config_path_behind(const char *directory, const char *path);

/** Is it a command whose program is a path, and not a name to be looked up in PATH? */
bool rp_key_is_program_path(const struct rp_key *key, const char *text);

/** Note the value that an option has set by a name of a key, for rp_config_kept_text (given.c). */
RP_MUST_CHECK int rp_config_note_given(struct rp_config *config, const struct rp_key *key,
                                       const char *name, const char *text, struct rp_error *error);

/** Set the keys of a stream, but for those that options have set (yaml.c). */
RP_MUST_CHECK int rp_config_read_stream(struct rp_config *config,
                                        const struct rp_config_named_stream *stream,
                                        struct rp_error *error);

/** Set a nested key from the text of an option, which is YAML (yaml.c). */
RP_MUST_CHECK int rp_config_set_nested(struct rp_config *config, const struct rp_key *key,
                                       const char *text, struct rp_error *error);
/** Free the nested value of `key`, and set it to its default (nested_free.c). */
void rp_key_free_nested(const struct rp_key *key, void *object);
/** The nested value as YAML on one line, cut to `bytes` (nested_print.c). */
void rp_key_print_nested(const struct rp_key *key, const void *object, char *text, size_t bytes);
/** A value that is not nested, as the text that would set it (print_value.c). */
void rp_key_print_sections(uint64_t sections, char *text, size_t bytes);
void rp_key_print(const struct rp_key *key, const void *object, char *text, size_t bytes);

/** Choose the version if none was given or kept. Refuse keys of version 2 in a stream of version 1,
 * and the reverse (finish_version.c). */
RP_MUST_CHECK int rp_config_check_version(struct rp_config *config, struct rp_error *error);
/** Whether the version was not given, and no key tells it. */
bool rp_config_fits_each_version(const struct rp_config *config);
/** Check the keys of version 2 that are in no stage, and set defaults of the sources. */
RP_MUST_CHECK int rp_config_finish_version(struct rp_config *config, struct rp_error *error);
/** Check the packing of each stage, and set its size (finish_packing.c). */
RP_MUST_CHECK int rp_config_finish_packing(struct rp_config *config, struct rp_error *error);
/** Compile stages and skips to rows (finish_stages.c). */
RP_MUST_CHECK int rp_config_finish_stages(struct rp_config *config, struct rp_error *error);
/** Set `sides` (finish_sides.c). */
RP_MUST_CHECK int rp_config_finish_sides(struct rp_config *config, struct rp_error *error);
/** Set `batches` (batches.c). The stages are finished. */
RP_MUST_CHECK int rp_config_finish_batches(struct rp_config *config, struct rp_error *error);

/** The place of a key of the config; of a part of a nested key. */
struct rp_key_place rp_config_key_place(const struct rp_config *config, enum rp_key_index key);
struct rp_key_place rp_config_nested_place(const struct rp_config *config, enum rp_key_index key,
                                           struct rp_config_place place);

/** rp_key_fail at the place of a key of the config. */
#define RP_KEY_FAIL(config, key, hint, error, ...)                                                 \
    rp_key_fail(rp_config_key_place(config, RP_KEY_##key), #key, hint, error, __VA_ARGS__)

/** Append a source with defaults; NULL when out of memory. */
struct rp_config_source *rp_config_add_source(struct rp_config *config);
/** Append a shard: rp_config_path_behind(directory, path). */
RP_MUST_CHECK int rp_config_source_add_shard(struct rp_config_source *source, const char *directory,
                                             const char *path, struct rp_error *error);
void rp_config_source_free(struct rp_config_source *source);
void rp_config_free_sources(struct rp_config *config);

/** Replace the patterns of a source by the files that match them (expand.c). */
RP_MUST_CHECK int rp_config_source_expand(struct rp_config_source *source,
                                          struct rp_key_place place, struct rp_error *error);

/** Set *twin_out to a text that is in the list twice, or NULL. */
RP_MUST_CHECK int rp_first_twin(char *const *texts, size_t count, const char **twin_out,
                                struct rp_error *error);

#endif
