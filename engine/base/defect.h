/* SPDX-License-Identifier: Apache-2.0 */
/* defect.h — planted defects: a guarantee counts as tested only when breaking it makes a test fail.
 * Here are those that whole programs switch on; the others are patches (tests/defects).
 *
 * RP_DEFECT(name) is the constant 0 in every build except in builds for tests. A build with
 * -DRP_DEFECT_<name>=1 has that defect. The builds of tests/sim, tests/kill and tests/model have
 * all of them, and turn on one at a time. */
#ifndef RP_BASE_DEFECT_H
#define RP_BASE_DEFECT_H

/* The name of each defect, and the guarantee that it breaks. tests/DEFECTS.md lists the tests that
 * find it. */
#define RP_DEFECTS(X)                                                                              \
    X(accept_other_stream, "a state token of another stream is accepted")                          \
    X(alert_for_tools, "engines that tools start run the alert_command of the config")             \
    X(ask_for_each_reader, "metrics asks an engine for each reader, however many there are")       \
    X(ask_silent_engines, "an engine that has not answered is asked again at each look")           \
    X(blame_next_stage, "waits for a read are blamed on packing")                                  \
    X(change_steps_late, "the sizes of a stage hold one step late")                                \
    X(close_files_in_use, "a descriptor is closed while reads of its file may be in flight")       \
    X(compare_across_stages, "windows of plan --layout cross the stages of the calendar")          \
    X(compare_dealt_rows, "plan --layout takes rows in the order of delivery as planned")          \
    X(count_steps_from_attach, "a state token given after an attach does not begin a step")        \
    X(count_equal_saves, "a second save at one position counts as another position to keep")       \
    X(count_steps_without_a_rank, "sums of a step lack the rows of the last rank")                 \
    X(count_older_deliveries, "audit counts deliveries that trainers have taken back")             \
    X(count_all_in_first_stage, "plan counts the rows of all stages in the first one")             \
    X(count_rows_before_state, "plan --state also counts the rows before its state")               \
    X(count_published, "a checkpoint is cut at the published batches, not at the consumed ones")   \
    X(drop_exported_field, "the JSON of a state lacks one field of its token")                     \
    X(edit_past_limits, "limits of stages that are over may be edited")                            \
    X(end_stages_as_streams, "trainers are told the end of a stage as the end of the stream")      \
    X(fetch_during_fill, "a reader fetches a range that is being fetched into the cache")          \
    X(forget_detach, "the end of a connection does not change the state of its seat")              \
    X(forget_raised_alerts, "a watcher that is started again raises alerts again")                 \
    X(forget_shard_stamp, "the time of a shard is not compared with its corpus index")             \
    X(forget_version, "a config without a stream version does not get the version of its state")   \
    X(forget_names, "an engine does not recreate its files in the run directory")                  \
    X(import_from_here, "a Python process imports from the current directory first")               \
    X(forget_packed_rows, "a ring that is rebuilt lacks what was packed but not published")        \
    X(forget_rewound_copies, "copies of checkpoints that were rewound keep their names")           \
    X(forget_new_directory, "the name of a new directory is not synced")                           \
    X(forget_indexes, "indexes and sidecars are not checked again once they are open")             \
    X(ignore_block_hash, "blocks of token files are not compared with their sidecar")              \
    X(ignore_changed_files, "token files are not checked again once they are open")                \
    X(ignore_directory_id, "the id of a checkpoint directory is not compared with the run record") \
    X(ignore_changed_objects, "replies of a store are not compared with the ETag of the object")   \
    X(wait_for_key_command, "a command that gives keys is waited for without end")                 \
    X(trust_kept_damage, "bytes that differ from their sidecar are not asked for again")           \
    X(match_hidden_keys, "names that begin with a dot match patterns of a bucket")                 \
    X(ignore_content_range, "replies of a store are taken for the range that was asked for")       \
    X(ignore_section_hash, "sections of a checkpoint are not compared with their hashes")          \
    X(ignore_short_documents, "the default of max_docs_per_row does not depend on lengths")        \
    X(ignore_trial, "a start goes on although its test write into a directory has failed")         \
    X(insist_on_rings, "a reader that gets no ring fails, though nobody asked for io_uring")       \
    X(join_silently, "the engine is not woken when dispatch has joined a ring")                    \
    X(join_too_early, "a flow joins a ring below batches that the ring has already")               \
    X(keep_left_position, "an evaluation that was left continues there for the next trainer")      \
    X(keep_last_step, "drop_last leaves out no row after the last whole step")                     \
    X(keep_slow_readers, "metrics keeps connections of readers that send a byte now and then")     \
    X(keep_stale_marks, "marks of kept states stay when the batch numbering begins anew")          \
    X(leave_batch_out_of_digest, "the last batch of an interval is not in its content digest")     \
    X(leave_out_journal_stop, "the end of an engine is not written to the run journal")            \
    X(side_of_neighbour, "each token has the entry of the next token of the file")                 \
    X(side_before_bos, "entries of converted documents do not move with a token put before them")  \
    X(side_not_shifted, "side columns of labels are not shifted as labels are")                    \
    X(ignore_side_length, "the entries of a side column are not counted when it is opened")        \
    X(ignore_side_tokenizer, "the tokenizer of a side column is not compared with the tokens'")    \
    X(trust_hashes_of_store, "fetched hashes of a side column are not compared with its header")   \
    X(trust_side_size, "the size of a side column's file is not compared with its header")         \
    X(value_for_inserted, "a token without a value in a list takes the value of the next one")     \
    X(landmark_of_another_stream, "a landmark of a stream with other weights is loaded")           \
    X(leave_out_dir_fsync, "a checkpoint's directory is not synced after the rename")              \
    X(leave_out_last_revalidation, "a save and a stop do not revalidate token files")              \
    X(leave_out_fsync, "a checkpoint is renamed without having been synced")                       \
    X(keep_grown_contents, "tokens in a checkpoint are used for rows that hold other documents")   \
    X(lose_digest_at_resume, "the plan digest is not taken from the token of a resume")            \
    X(lose_fragment_at_resume, "the first row after a resume lacks its last fragment")             \
    X(lose_live_records, "a record of `weights` or `grow` is not written to the run journal")      \
    X(map_from_stretch, "a mapped token is looked for from its stretch, not from its file")        \
    X(map_small_files, "each index has a mapping of its own, however small")                       \
    X(mask_before_bos, "spans of converted documents do not move with a token put before them")    \
    X(merge_ways_of_reading, "a read past the page cache becomes one with a read through it")      \
    X(outlive_engine, "the watcher of alerts does not end with its engine")                        \
    X(pack_left_out, "packers write rows to a ring to which another flow delivers")                \
    X(pad_after_end, "a trainer that begins at the end of the stream gets batches of padding")     \
    X(provenance_off_by_one, "explain gives each fragment the provenance of the next one")         \
    X(print_control_characters, "names with control characters are printed as they are")           \
    X(prune_before_copy, "a checkpoint is removed although it has not been copied")                \
    X(publish_before_complete, "tail is stored before the slot is complete")                       \
    X(ready_before_read, "a ticket is READY, and its memory free, while reads are in flight")      \
    X(release_of_one_frees, "a slot is free when the first of its replicas has released it")       \
    X(release_one_too_many, "the release watermark moves over a lease that is still held")         \
    X(reset_seats, "a rebuild of a ring resets the states of its seats")                           \
    X(resume_one_row_on, "a run from a checkpoint begins one row after its position")              \
    X(reuse_ring, "a ring that its last trainer may still read is given to the next trainer")      \
    X(save_mapped_tokens, "contents are copied from mapped files without comparing blocks")        \
    X(show_ended_engines, "metrics shows the last figures of an engine that has ended")            \
    X(signal_before_store, "an event is signalled before the store that it announces")             \
    X(send_token_in_clear, "the token of the Hub is also sent by http")                            \
    X(take_ignored_signals, "a signal that was ignored at start ends the engine")                  \
    X(tell_no_progress, "a conversion does not tell how much of a file is done")                   \
    X(show_own_words, "a command line keeps the rights of its URLs")                               \
    X(wait_for_any_lock, "a conversion waits without a bound for the lock of its directory")       \
    X(trust_any_output, "foreign links, directories and files of outputs are used")                \
    X(take_late_weights, "weights are taken at a step that a rank has begun")                      \
    X(take_short_read, "a short read is taken for a complete one")                                 \
    X(trust_plan_of_one_rank, "audit compares the plan of one rank only")                          \
    X(trust_absent, "after a rollback, positions of absent seats still count as known")            \
    X(trust_chain_hash, "entries of a chain are not compared with their hash")                     \
    X(trust_chain_links, "entries of a chain are not compared with the entry before them")         \
    X(trust_cached_bytes, "bytes from the cache are not compared with their hashes")               \
    X(trust_cut_listing, "a list of objects is taken though its end is missing")                   \
    X(trust_description, "the stream that a trainer expects is not compared with the run's")       \
    X(trust_changed_inputs, "a part is joined though its inputs have changed since")               \
    X(share_parts, "two conversions write to one folder of parts at a time")                       \
    X(trust_fetched_bytes, "an index that was fetched before is not compared with its hash")       \
    X(trust_finished_parts, "a part of an earlier conversion is joined, whatever its hash says")   \
    X(trust_index_pages, "pages of an index are not compared with their hashes")                   \
    X(trust_release_word, "a trainer's release word is used unchecked")                            \
    X(trust_seen_blocks, "a block of a mapped file is compared once and then trusted")             \
    X(wait_before_announcing, "a packer waits for a ticket before it has announced its batches")   \
    X(wait_for_alert_command, "the watcher of alerts waits for their commands")                    \
    X(wait_to_join, "a ring that is behind waits to be joined when all of the stream is planned")

#if defined(RP_SIMULATION) || defined(RP_POINTS) || defined(RP_MODEL)

enum rp_defect {
#define RP_DEFECT_ENUM(name, text) RP_DEFECT_IS_##name,
    RP_DEFECTS(RP_DEFECT_ENUM)
#undef RP_DEFECT_ENUM
        RP_DEFECT_COUNT
};
extern _Bool rp_defects[RP_DEFECT_COUNT];
#define RP_DEFECT(name) (rp_defects[RP_DEFECT_IS_##name])

#else

/* 1 if the macro RP_DEFECT_<name> is defined as 1, otherwise 0. Pasting its value gives
 * RP_DEFECT_PLACE_1, which is "0," and makes the 1 the second argument, or an unknown word. */
#define RP_DEFECT_PLACE_1 0,
#define RP_DEFECT_SECOND(first, second, ...) second
#define RP_DEFECT_PICK(place) RP_DEFECT_SECOND(place 1, 0, )
#define RP_DEFECT_PASTE(value) RP_DEFECT_PICK(RP_DEFECT_PLACE_##value)
#define RP_DEFECT_VALUE(value) RP_DEFECT_PASTE(value)
#define RP_DEFECT(name) RP_DEFECT_VALUE(RP_DEFECT_##name)

#endif

#endif
