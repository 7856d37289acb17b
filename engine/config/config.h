/* SPDX-License-Identifier: Apache-2.0 */
/* config.h — the configuration of a run, which is parsed and checked once.
 *
 * The keys of the YAML file are the field names below; the same names are options of the commands
 * (--batch-size) and parameters of the Python Loader. The config owns its strings. */
#ifndef RP_CONFIG_CONFIG_H
#define RP_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/log.h"
#include "config/stages.h"
#include "ringpack/batch.h"

#define RP_CONFIG_SOURCE_KEYS_MAX 24

/* One entry of `sources:`. A bare string in the YAML list is a source with that one shard. */
struct rp_config_source {
    char *name; /* `name`; default: stem of the first shard */
    /* `weight`: a decimal number with at most 6 decimals, stored times 10^6. rp_config_finish
     * divides all weights by their greatest common divisor. 0 (version 2): it waits. Default: 1. */
    uint64_t weight;
    /* `shards`, or `path` for one: files, URLs, Megatron prefixes, globs, directories, relative to
     * the config file. rp_config_finish replaces them by files, bytewise sorted within a pattern.
     */
    char **shards;
    uint32_t shard_count;
    /* The patterns before expansion: with an index of all sources, `shards` stays as it is. */
    char **patterns;
    uint32_t pattern_count;
    char *format;            /* `format`: auto or a name of RP_FORMAT_LIST; default auto */
    char *dtype;             /* `dtype`: a name of RP_TOKEN_LIST; default from the file (NULL) */
    int64_t eos;             /* `eos`; -1 = not declared */
    char *column;            /* `column` of token ids; default: the reader's choice (NULL) */
    char *mask;              /* `mask`: auto | none | the name of a mask; default auto */
    char *mask_value;        /* `mask_value`: train | ignore; default as it was indexed (NULL) */
    char *mask_of;           /* `mask_of`: token | next; default as it was indexed (NULL) */
    uint32_t drop_untrained; /* `drop_untrained`: none | document | fragment */
    char *documents;         /* `documents`: a range of them (corpus/range.h); default all (NULL) */
    /* stream version 2 (plan/STREAM2.md section 1.2) */
    char *select;                    /* `select`: an expression; default all (NULL) */
    struct rp_config_repeats repeat; /* `repeat` */
    char *unseen_of;                 /* `unseen_of`: the file of a state; default none (NULL) */
    char *unseen_source;             /* `unseen_source`: its name there; default `name` (NULL) */
    bool atomic;                     /* `atomic`: false */
    uint32_t too_long;               /* `too_long`: drop | truncate | error (default) */
    struct rp_config_limits limits;  /* rp_config_finish sets max_epochs to num_epochs */
    uint32_t line;                   /* in the config file; 0 = not from a file */
    struct rp_config_place places[RP_CONFIG_SOURCE_KEYS_MAX]; /* each key's, as in the table */
};

#define RP_CONFIG_KEYS_MAX 96
#define RP_CONFIG_OPTION UINT32_MAX
#define RP_CONFIG_CHOSEN UINT32_MAX /* a count that is `auto`, until it is chosen */

enum rp_io_choice { RP_IO_AUTO, RP_IO_URING, RP_IO_PREAD, RP_IO_MAPPED };
enum rp_resume { RP_RESUME_AUTO, RP_RESUME_REQUIRED, RP_RESUME_FRESH };
enum rp_switch { RP_SWITCH_AUTO, RP_SWITCH_ON, RP_SWITCH_OFF };

/* Why a config has its stream version: the key; a state token; or the run is new. */
enum rp_version_from { RP_VERSION_GIVEN, RP_VERSION_KEPT, RP_VERSION_NEW };

/* Side columns, in the order of enum rp_side_of. */
struct rp_config_sides {
    char names[RP_SIDES_MAX][RP_SIDE_NAME_BYTES];
    uint32_t of[RP_SIDES_MAX], count;
};

struct rp_config {
    char *path;   /* the YAML file's; NULL = no file was read */
    char *called; /* name of that file in messages: its path, or the name of a memfd */
    char *text;   /* that file's */
    char *given;  /* keys set by rp_config_set, for rp_config_kept_text; NULL = none */
    char *run;    /* trainers find the engine by this name: [A-Za-z0-9._-]{1,64}; default "default"
                   */

    struct rp_config_streams streams; /* none */
    char *stream;                     /* the one that is meant; NULL: the main one */
    bool is_repeated; /* it is another than the main stream: trainers read it in passes */

    /* the stream: identity (engine/plan/STREAM.md) */
    struct rp_config_source *sources;
    uint32_t source_count;
    /* Sources that left the config. They are numbered after `sources`, and arrays of weights have
     * them too. */
    struct rp_config_by_source removed;
    uint64_t weight_unit;    /* the divisor of the weights; 0 before rp_config_finish */
    uint32_t stream_version; /* 1 | 2; 0 = not given, and not settled */
    enum rp_version_from version_from;
    uint64_t seed;             /* 0 */
    uint32_t seq_len;          /* required, 1 .. 2^24 */
    uint32_t shuffle;          /* none | document (default) | block; numbers as in STREAM.md */
    uint32_t block_documents;  /* 1024 */
    uint32_t window_blocks;    /* 16 */
    uint32_t packing;          /* lookahead (default) | concat | best_fit */
    uint32_t packing_buffer;   /* 64: documents in the FIFO of lookahead */
    uint32_t open_bins;        /* 64: open rows of best_fit */
    uint32_t row_gap;          /* pad (default) | split; an explicit pad is an error with concat */
    uint32_t long_doc;         /* split (default) | truncate | drop */
    uint32_t max_docs_per_row; /* 0 = from the lengths of the corpus (plan/docs_per_row.h) */
    uint32_t plan_partitions;  /* 1; version 1 only */
    uint64_t num_epochs;       /* 1; 0 or `endless` = endless */
    uint64_t vocab_size;       /* 0 = not declared: only token_dtype limits token ids */
    /* the same, of version 2 (engine/plan/STREAM2.md) */
    uint32_t align, spread, group;  /* 1, 64, 1 */
    uint32_t bos_id, eos_id;        /* none = RP_CONFIG_CHOSEN */
    bool label_across_cuts;         /* false */
    struct rp_config_deal deal;     /* off */
    struct rp_config_stages stages; /* none: the whole config is stage 0 */
    struct rp_config_skip skip;     /* none */
    bool grow;                      /* true */

    /* the batches: how rows are divided over ranks; may change at every resume */
    uint32_t batch_size;              /* rows per rank and micro-batch; required */
    uint32_t dp_world_size;           /* 1 */
    uint64_t global_batch_size;       /* rows per step; 0 = batch_size * dp_world_size */
    uint32_t rank_first, rank_count;  /* `ranks: 0-3`: the ranks this node serves; default all */
    uint32_t consumers_per_rank;      /* 1; replicas: consumers here that need one rank's batches */
    struct rp_config_batches batches; /* once the config is finished; at least one entry */
    bool drop_last;                   /* false */
    int64_t pad_id;                   /* 0 */
    char *profile;                    /* one of RP_PROFILES; default min */
    uint32_t sections; /* bit per rp_section: `sections`, and the sections of the given profile */
    uint32_t sections_unlisted; /* which a profile has added to a list that names some of its own */
    /* names with commas between them; NULL = none */
    char *columns, *label_columns, *document_columns;
    struct rp_config_sides sides; /* the same, once the config is finished */
    uint32_t token_dtype; /* `token_dtype`: i32 | i64 | u16 (enum rp_dtype), for input_ids, labels
                           * and position_ids (labels and position_ids are i32 when it is u16) */
    uint32_t label_mode;  /* `label_mode`: shifted | aligned */
    struct rp_config_cost cost; /* decides no row; a deal without a cost of its own takes it */

    /* the machine: never changes a token */
    char *cpus;                   /* `0-7,16`: CPUs of the engine; NULL = all it may use */
    uint32_t readers;             /* reader threads; 1 */
    uint32_t packers;             /* auto: rp_config_choose_packers */
    uint32_t packer_cpus;         /* CPUs that decided `packers`; 0 = it was given */
    bool packer_processes;        /* false */
    uint32_t prefetch_factor;     /* slots of a batch ring; rounded up to a power of two >= 2; 8 */
    uint64_t prefetch_bytes;      /* the prefetch ring's; 0 = the need of the plan (flow.h) */
    uint32_t io_depth;            /* reads in flight per reader; 0 = as rp_io_choose_depth says */
    enum rp_io_choice io;         /* auto | io_uring | pread | mapped */
    enum rp_switch o_direct;      /* O_DIRECT: auto | on | off */
    enum rp_switch verify_blocks; /* check sidecar hashes at each read: auto (= on for a shard with
                                     a sidecar) | on | off */
    char *index;                  /* a file: of all sources; a directory: of sidecars */
    char *manifest, *index_dir;   /* older names of it, for a file and for a directory */
    bool index_is_file;           /* set by rp_config_finish */
    bool ignores_index;           /* the shards are to be listed all the same: not a key */
    bool is_kept;                 /* while a checkpoint is read: its older names get no warning */
    char *cache_dir;              /* for bytes fetched from stores; NULL = object/remote.h */
    uint64_t cache_bytes;         /* limit of the kept blocks of objects; 0 = none are kept */
    char *run_dir; /* the socket's; NULL = $XDG_RUNTIME_DIR/ringpack or /tmp/ringpack-UID */

    /* checkpoints */
    char *checkpoint_dir;              /* NULL = none are written; "none" until it is finished */
    enum rp_resume resume;             /* auto */
    uint64_t checkpoint_steps;         /* between checkpoints; 0 = at SIGTERM and on demand only */
    uint32_t checkpoint_keep;          /* positions; 3; at least 2 */
    uint64_t checkpoint_keep_every;    /* steps; 0 = no history */
    uint32_t checkpoint_scrub_seconds; /* 0 = never */
    bool checkpoint_contents;          /* true */
    char *checkpoint_mirror_dir;       /* the mirror; NULL = none */
    char *mount_guard_dir;             /* NULL = in the user's state home; "none" = no run record */

    /* alerts (tools/ringpack/alerts/alert.h) */
    char *alert_command;       /* program and arguments, separated by commas; NULL = none */
    uint32_t alert_starved_ms; /* 0 = no alert; likewise: */
    uint64_t alert_skew_rows;  /* a rank's */
    uint64_t alert_disk_free;  /* bytes */
    enum rp_log_format log_format;

    /* For each key, in the order of rp_config_keys: the line of the file, RP_CONFIG_OPTION, or 0 if
     * the key was not given. */
    uint32_t lines[RP_CONFIG_KEYS_MAX];
    bool of_stream[RP_CONFIG_KEYS_MAX]; /* the line is of the chosen stream */
    bool of_window[RP_CONFIG_KEYS_MAX]; /* given as `window`, the older name of two keys */
};

/** Set all defaults. Every config begins with this call. */
void rp_config_init(struct rp_config *config);

/** Read a YAML file. Errors (-RP_E_CONFIG, exit code 2) have file:line:column, the key, the
 * expected and the found value, and for an unknown key the nearest known one ("did you mean …?").
 * Refused are duplicate keys, tabs as indentation, undefined aliases, several documents, and files
 * over 1 MiB. Ranges are not checked here. */
RP_MUST_CHECK int rp_config_read(struct rp_config *config, const char *path,
                                 struct rp_error *error);

/** The same for a text, as if it were the file at `path`, which need not be there. */
RP_MUST_CHECK int rp_config_read_text(struct rp_config *config, const char *text, size_t bytes,
                                      const char *path, struct rp_error *error);

/** The kept text of a config: the text of the file, and after it, as comments, the path of the file
 * and the keys that options have set, with absolute paths. So the same config can be read again, in
 * another directory, by rp_config_read_kept. The rights that URLs carry are hidden. The caller
 * frees it; NULL when out of memory. */
char *rp_config_kept_text(const struct rp_config *config);

/** Read a kept text; `name` is its name in messages. -RP_E_VERSION: it is of an older ringpack,
 * which kept only the text of the file. */
RP_MUST_CHECK int rp_config_read_kept(struct rp_config *config, const char *text, size_t bytes,
                                      const char *name, struct rp_error *error);

/** Set one key from text, as an option does ("batch_size", "64"); dashes count as underscores.
 * Numbers may have suffixes, as in 64mb, 1g or 100k (powers of 1024 for bytes, of 1000 for counts).
 * Lists are comma-separated. */
RP_MUST_CHECK int rp_config_set(struct rp_config *config, const char *key, const char *text,
                                struct rp_error *error);

/** For an engine that a tool starts for itself: it runs no command of the user, raises no alert,
 * and writes no run record. Before rp_config_finish. */
RP_MUST_CHECK int rp_config_make_private(struct rp_config *config, struct rp_error *error);

/** The first row of a step, counted from row 0; false if it is above 2^63. And the first step that
 * begins at a row or after it. */
RP_MUST_CHECK bool rp_config_row_of_step(const struct rp_config *config, uint64_t step,
                                         uint64_t *row);
uint64_t rp_config_step_from(const struct rp_config *config, uint64_t row);

/** Whether one mixture holds for the whole stream, and num_epochs is the only limit. */
bool rp_config_reads_alike(const struct rp_config *config);

/** The place of a part of a nested key, as messages begin: "c.yaml:3:5: " or "--stages:1:5: ". */
void rp_config_place_text(const struct rp_config *config, const char *key,
                          struct rp_config_place place, char *text, size_t bytes);

/* The version of a run that begins, if its config has none (plan/STREAM2.md section 12.6). */
#define RP_STREAM_VERSION_NEW 2u

/** Make this the config of the stream that `stream` names, or of the main one, `train` or else the
 * first: its keys replace the keys at the top, but for options. The run of another stream than the
 * main one is RUN.STREAM. No effect without `streams`, or if it was called before.
 * rp_config_finish calls it; commands that read `run` or `checkpoint_dir` before call it first. */
RP_MUST_CHECK int rp_config_choose_stream(struct rp_config *config, struct rp_error *error);
/** The name of the chosen stream; NULL without `streams`. */
const char *rp_config_stream_name(const struct rp_config *config);

/** The run continues from a state of this stream version: a config without the key has it. Before
 * rp_config_finish. */
void rp_config_keep_version(struct rp_config *config, uint32_t version);

/** Check ranges and combinations, expand globs, and set derived values (global_batch_size, the
 * profile's sections). An error about a world size that does not divide global_batch_size lists
 * those that do. Call it once. */
RP_MUST_CHECK int rp_config_finish(struct rp_config *config, struct rp_error *error);

/** How many sources have a number: first `sources`, then `removed`. */
static inline uint32_t rp_config_numbered(const struct rp_config *config)
{
    return config->source_count + config->removed.count;
}
static inline const char *rp_config_name_of(const struct rp_config *config, uint32_t number)
{
    return number < config->source_count
               ? config->sources[number].name
               : config->removed.pairs[number - config->source_count].name;
}

/** The index of all sources of a finished config (NULL: shards are opened one by one), and the
 * directory of sidecars (NULL: each is in the directory of its shard). */
static inline const char *rp_config_index_file(const struct rp_config *config)
{
    return config->index_is_file ? config->index : config->manifest;
}
static inline const char *rp_config_index_dir(const struct rp_config *config)
{
    return config->index && !config->index_is_file ? config->index : config->index_dir;
}

/** All keys with their type, default and one line of help, for --help and docs. The name after the
 * last one is NULL. A default in parentheses is a description. */
struct rp_config_key {
    const char *name, *type, *standard, *help;
};
const struct rp_config_key *rp_config_keys(void);
/** The same for the keys of one source, of one stage, and of mappings in them. */
const struct rp_config_key *rp_config_source_keys(void);
const struct rp_config_key *rp_config_stage_keys(void);
const struct rp_config_key *rp_config_deal_keys(void);
const struct rp_config_key *rp_config_cost_keys(void);
const struct rp_config_key *rp_config_limits_keys(void);

/** Names that keys had before, of the config and of a source. This version reads them, and logs the
 * new name; the next one does not read them. `older` after the last one is NULL. */
struct rp_config_older_name {
    const char *older, *name;
};
extern const struct rp_config_older_name rp_config_older_names[];

/** If `sections` names some but not all sections of the given profile, it may have been meant to
 * replace them: write the added sections, and how to get only the list. */
bool rp_config_sections_doubt(const struct rp_config *config, char *text, size_t bytes);

/** The value of a key as the text that would set it; empty without a value. Not for `sources`. A
 * nested value is YAML on one line. A text longer than `bytes` is cut. */
void rp_config_value_text(const struct rp_config *config, const char *name, char *text,
                          size_t bytes);
/** The same for a key of a source. Shards are joined by commas. */
void rp_config_source_value_text(const struct rp_config_source *source, const char *name,
                                 char *text, size_t bytes);

/** The place of a key of a source; line 0 if it was not given. */
struct rp_config_place rp_config_source_key_place(const struct rp_config_source *source,
                                                  const char *key);

/** The size of the packing at the top: packing_buffer, or open_bins. Stages may have others. */
uint32_t rp_config_window(const struct rp_config *config);

/** Let `window`, an older name, be the key of each packing. For commands that show a config without
 * rp_config_finish, which calls it. */
void rp_config_settle_window(struct rp_config *config);

/** Whether a stage gives a key. */
bool rp_config_stage_gives(const struct rp_config_stage *stage, const char *key);

/** One stage as YAML on one line. */
void rp_config_stage_text(const struct rp_config *config, uint32_t stage, char *text, size_t bytes);

/** The text of a config, which rp_config_read_text has read, without the rights that its URLs
 * carry: for texts that are kept or shown. The caller frees it; NULL when out of memory. */
char *rp_config_hide_yaml(const char *text);
/** The same for lines of keys with a value, as options are kept; in place. */
void rp_config_hide_options(char *lines);

void rp_config_free(struct rp_config *config);

#endif
