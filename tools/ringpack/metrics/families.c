/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/families.h"

#include "base/bits.h"

static const struct rp_family of_engine[] = {
    {"world_ranks", RP_GAUGE, "ranks", "world", "Ranks of the run, on all nodes."},
    {"base_row", RP_GAUGE, NULL, "base_row", "Row from which batches are counted."},
    {"next_row", RP_GAUGE, NULL, "next_row", "First row that not all local ranks have consumed."},
    {"batches", RP_COUNTER, "batches", "batches", "Batches delivered, of all local ranks."},
    {"rows", RP_COUNTER, "rows", "rows", "Rows delivered."},
    {"tokens", RP_COUNTER, "tokens", "tokens", "Tokens delivered, without padding."},
    {"fill_ratio", RP_GAUGE, "ratio", "fill", "Share of the delivered rows that is no padding."},
    {"reads", RP_COUNTER, "reads", "reads", "Reads of token files or objects."},
    {"read_bytes", RP_COUNTER, "bytes", "read_bytes", "Bytes that were read."},
    {"short_reads", RP_COUNTER, "reads", "short_reads",
     "Reads that gave less than was requested, and were continued."},
    {"read_retries", RP_COUNTER, "retries", "read_retries",
     "Reads that failed and were tried again."},
    {"packers_replaced", RP_COUNTER, NULL, "packers_replaced",
     "Packer processes that died and were replaced."},
    {"taken_bytes", RP_COUNTER, "bytes", "taken_bytes", "Bytes of tokens taken from files."},
    {"unverified_bytes", RP_COUNTER, "bytes", "unverified_bytes",
     "Of the taken bytes, those that no hash verified."},
    {"mapped_bytes", RP_COUNTER, "bytes", "mapped_bytes",
     "Of the taken bytes, those that were in the page cache, and mapped."},
    {"buffered_bytes", RP_COUNTER, "bytes", "buffered_bytes",
     "Of the taken bytes, those read through the page cache, or from a store."},
    {"direct_bytes", RP_COUNTER, "bytes", "direct_bytes",
     "Of the taken bytes, those read past the page cache."},
    {"corpus_unverified_ratio", RP_GAUGE, "ratio", "unverified_share",
     "Share of the corpus' tokens that no hash verifies."},
    {"reweighted", RP_GAUGE, NULL, "reweighted",
     "1 if the weights were changed when the run was resumed."},
    {"stream_ended", RP_GAUGE, NULL, "ended", "1 if the last batch of the stream was published."},
    {"start_row", RP_GAUGE, NULL, "start_row", "Row at which the engine started."},
    {"step", RP_GAUGE, NULL, "step", "Step that the next row belongs to."},
    {"steps", RP_COUNTER, "steps", "steps", "Steps that all local ranks have released."},
    {"skew_rows", RP_GAUGE, "rows", "skew_rows",
     "Rows of a rank between the first and the last local rank."},
    {"cost_imbalance_ratio", RP_GAUGE, "ratio", "cost_imbalance",
     "Cost of the costliest local rank, by the mean one."},
    {"micro_step_imbalance_ratio", RP_GAUGE, "ratio", "micro_step_imbalance",
     "Cost of the costliest batch of each micro-step of the local ranks, by the mean one."},
    {"saves", RP_COUNTER, "saves", "saves", "Checkpoints written."},
    {"save_failures", RP_COUNTER, "failures", "save_failures", "Saves that failed."},
    {"save_under_way", RP_GAUGE, NULL, "save_under_way", "1 while a checkpoint is being written."},
    {"save_age_seconds", RP_GAUGE, "seconds", "save_age_seconds",
     "Time since a save last succeeded."},
    {"save_duration_seconds", RP_GAUGE, "seconds", "save_seconds", "Time that the last save took."},
    {"save_size_bytes", RP_GAUGE, "bytes", "save_bytes", "Bytes of the last checkpoint."},
    {"unsaved_rows", RP_GAUGE, "rows", "unsaved_rows", "Rows that a crash would repeat."},
    {"copies", RP_COUNTER, "copies", "copies", "Checkpoints copied to checkpoint_mirror_dir."},
    {"copy_failures", RP_COUNTER, "failures", "copy_failures",
     "Copies of checkpoints that failed."},
    {"copy_age_seconds", RP_GAUGE, "seconds", "copy_age_seconds",
     "Time since the last copy of a checkpoint."},
    {"resident_bytes", RP_GAUGE, "bytes", "resident_bytes", "Memory that the engine has."},
    {"resident_private_bytes", RP_GAUGE, "bytes", "resident_private_bytes",
     "Of it, the engine's own."},
    {"resident_shared_bytes", RP_GAUGE, "bytes", "resident_shared_bytes",
     "Of it, shared with trainers."},
    {"resident_file_bytes", RP_GAUGE, "bytes", "resident_file_bytes",
     "Of it, mapped files, which belong to the page cache."},
    {"cache_limit_bytes", RP_GAUGE, "bytes", "cache_bytes_max",
     "Room that the cache of objects may take."},
    {"cache_held_bytes", RP_GAUGE, "bytes", "cache_held_bytes",
     "Bytes that the cache of objects holds."},
    {"cache_hits", RP_COUNTER, NULL, "cache_hits", "Reads that the cache answered."},
    {"cache_misses", RP_COUNTER, NULL, "cache_misses", "Reads that went to the store."},
    {"cache_hit_bytes", RP_COUNTER, "bytes", "cache_hit_bytes", "Bytes that the cache gave."},
    {"cache_fetched_bytes", RP_COUNTER, "bytes", "cache_fetched_bytes",
     "Bytes that came from the store."},
    {"cache_evicted_bytes", RP_COUNTER, "bytes", "cache_evicted_bytes",
     "Bytes that the cache gave up."},
    {"cache_damaged_bytes", RP_COUNTER, "bytes", "cache_damaged_bytes",
     "Bytes of the cache whose hash did not fit; they were fetched again."},
    {"cache_failures", RP_COUNTER, NULL, "cache_failures",
     "Calls on the cache's disk that failed."},
};

static const struct rp_family of_rank[] = {
    {"rank_attached", RP_GAUGE, NULL, "attached", "1 if a trainer is attached to the seat."},
    {"rank_published_batches", RP_GAUGE, "batches", "tail",
     "Batches published to the rank, counted from the base row."},
    {"rank_released_batches", RP_GAUGE, "batches", "release",
     "Batches that the seat's trainer has released, counted from the base row."},
    {"rank_slots", RP_GAUGE, "slots", "slots", "Batches for which the rank's ring has room."},
    {"rank_holds", RP_GAUGE, NULL, "holds",
     "1 if other ranks wait because this seat releases nothing."},
    {"rank_quarantined", RP_GAUGE, NULL, "quarantined",
     "1 if the trainer broke the protocol and gets no batches."},
    {"rank_behind_rows", RP_GAUGE, "rows", "behind_rows",
     "Rows of the rank by which it is behind the first local rank."},
    {"rank_cost", RP_COUNTER, NULL, "cost",
     "Cost of the batches published to the rank, in units of the model of `cost`."},
    {"rank_waiting_seconds", RP_GAUGE, "seconds", "waiting_seconds",
     "Time that the trainer has waited by now; 0 if it does not wait."},
    {"rank_wait_p50_seconds", RP_GAUGE, "seconds", "wait_p50_seconds",
     "Half of the waits were no longer."},
    {"rank_wait_p99_seconds", RP_GAUGE, "seconds", "wait_p99_seconds",
     "99 of 100 waits were no longer."},
    {"rank_wait_max_seconds", RP_GAUGE, "seconds", "wait_max_seconds", "The longest wait."},
};

static const struct rp_family of_source[] = {
    {"source_shards", RP_GAUGE, "shards", "shards", "Token files of the source."},
    {"source_tokens", RP_GAUGE, "tokens", "tokens", "Tokens of the source."},
    {"source_bytes", RP_GAUGE, "bytes", "bytes", "Bytes of the source's tokens."},
    {"source_unverified_tokens", RP_GAUGE, "tokens", "unverified",
     "Tokens of the source that no hash verifies."},
};

static const struct rp_family of_ledger[] = {
    {"source_taken_documents", RP_GAUGE, "documents", "documents",
     "Documents taken from the source up to the next row, on all nodes."},
    {"source_taken_tokens", RP_GAUGE, "tokens", "tokens",
     "Tokens taken from the source since the weights of today apply."},
    {"source_delivered_tokens", RP_GAUGE, "tokens", "delivered",
     "Tokens of the source in delivered rows (stream version 2)."},
    {"source_waiting_tokens", RP_GAUGE, "tokens", "waiting",
     "Tokens taken from the source that are in no row yet (stream version 2)."},
    {"source_withheld_tokens", RP_GAUGE, "tokens", "withheld",
     "Tokens taken from the source that will never be delivered (stream version 2)."},
    {"source_epochs", RP_GAUGE, "epochs", "epochs",
     "Documents taken, by the documents of the source."},
    {"source_token_ratio", RP_GAUGE, "ratio", "token_share", "Share of the source in the tokens."},
    {"source_weight_ratio", RP_GAUGE, "ratio", "weight_share",
     "Share of the source in the weights."},
};

static const struct rp_family of_mask[] = {
    {"mask_labels", RP_COUNTER, "labels", "labels", "Labels that the mask of the source left."},
    {"mask_documents", RP_COUNTER, "documents", "documents",
     "Documents of the masked source that were planned."},
    {"mask_untrained_documents", RP_COUNTER, "documents", "untrained",
     "Of these, documents without a trained token."},
    {"mask_cut_off_documents", RP_COUNTER, "documents", "cut_off",
     "Of these, documents whose trained part `long_doc: truncate` cut off."},
};

static const struct rp_family of_alert[] = {
    {"alert_raised", RP_GAUGE, NULL, "raised", "1 while the engine's own alert is raised."},
    {"alerts", RP_COUNTER, NULL, "times", "Alerts that the engine has raised."},
    {"alert_commands", RP_COUNTER, NULL, "commands", "Commands that were run for alerts."},
    {"alert_command_failures", RP_COUNTER, NULL, "command_failures",
     "Of these, commands that could not be run, failed or were killed."},
};

static const struct rp_family of_disk[] = {
    {"disk_free_bytes", RP_GAUGE, "bytes", "free_bytes",
     "Room in a directory into which the engine writes."},
    {"disk_answer_age_seconds", RP_GAUGE, "seconds", "age_seconds",
     "Time since the disk of that directory last answered."},
};

#define GROUP(array, table, ...)                                                                   \
    {                                                                                              \
        array, {__VA_ARGS__}, table, RP_ARRAY_COUNT(table)                                         \
    }

const struct rp_family_group rp_family_groups[] = {
    GROUP(NULL, of_engine, NULL),          GROUP("ranks", of_rank, "rank", "replica"),
    GROUP("sources", of_source, "source"), GROUP("ledger", of_ledger, "source"),
    GROUP("masks", of_mask, "source"),     GROUP("alerts", of_alert, "alert"),
    GROUP("disks", of_disk, "directory"),
};
const size_t rp_family_group_count = RP_ARRAY_COUNT(rp_family_groups);
