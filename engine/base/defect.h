/* SPDX-License-Identifier: Apache-2.0 */
/* defect.h — planted defects: a guarantee counts as tested only when breaking it makes a test fail.
 *
 * RP_DEFECT(name) is the constant 0 in every build except in builds for tests. A build with
 * -DRP_DEFECT_<name>=1 has that defect. The builds of tests/sim, tests/kill and tests/model have
 * all of them, and turn on one at a time. */
#ifndef RP_BASE_DEFECT_H
#define RP_BASE_DEFECT_H

/* The name of each defect, and what it breaks. tests/DEFECTS.md lists the tests that find it. */
#define RP_DEFECTS(X)                                                                              \
    X(accept_other_stream, "a state token of another stream is accepted")                          \
    X(alert_at_each_look, "an alert that is raised is raised again at each look")                  \
    X(alert_for_tools, "engines that tools start run the alert_command of the config")             \
    X(append_to_any_file, "an entry is appended to a file that is no chain")                       \
    X(ask_for_each_reader, "metrics asks an engine for each reader, however many there are")       \
    X(ask_silent_engines, "an engine that has not answered is asked again at each look")           \
    X(blame_next_stage, "waits for a read are blamed on packing")                                  \
    X(buffer_files_beside_objects, "direct reads of files beside objects are buffered")            \
    X(calm_before_new_file, "the watcher is calm before it has looked at a new file")              \
    X(claim_for_memory, "files that lie in memory take the room of files on disks")                \
    X(catch_up_past_cache, "a catch-up flow reads past the page cache what that holds")            \
    X(call_unread_damaged, "a checkpoint that cannot be read for a time counts as damaged")        \
    X(close_files_in_use, "a descriptor is closed while reads of its file may be in flight")       \
    X(compare_weights_alone, "a weight is compared as a number, not relative to the others")       \
    X(count_steps_from_attach, "a state token given after an attach does not begin a step")        \
    X(count_deaths_for_ever, "deaths of a packer at other tickets are counted, too")               \
    X(count_idle_deaths, "deaths of a packer that waits are counted")                              \
    X(count_equal_saves, "a second save at one position counts as another position to keep")       \
    X(count_older_deliveries, "audit counts deliveries that trainers have taken back")             \
    X(count_rows_before_state, "plan --state counts the rows before its state, too")               \
    X(count_published, "a checkpoint is cut at the published batches, not at the consumed ones")   \
    X(crowd_trainers, "packers take the CPUs of trainers, too")                                    \
    X(drop_exported_field, "the JSON of a state lacks one field of its token")                     \
    X(end_copy_late, "a new ring gets its place before the end of a save frees slots")             \
    X(end_skipping_for_refused, "a trainer that is refused ends the skipping of absent ranks")     \
    X(evict_next_needed, "a full cache evicts what is needed next, not what is needed last")       \
    X(fault_for_lost_pages, "a packer does not ask for pages that the page cache has lost")        \
    X(fetch_during_fill, "a reader asks a server for what is being fetched into the cache")        \
    X(forget_contract_field, "pad_id is left out when contracts are compared")                     \
    X(forget_detach, "the end of a connection does not change the state of its seat")              \
    X(forget_queries, "objects that only the queries of their URLs tell apart share files")        \
    X(forget_raised_alerts, "a watcher that is started again raises alerts again")                 \
    X(forget_shard_stamp, "the time of a shard is not compared with its manifest")                 \
    X(forget_shard_stamp, "the time of a shard is not compared with its corpus index")             \
    X(forget_names, "an engine does not recreate its files in the run directory")                  \
    X(import_from_here, "a Python process imports from the current directory first")               \
    X(forget_waits_at_merge, "the history of waits loses half of them when its periods double")    \
    X(forget_packed_rows, "a ring that is rebuilt lacks what was packed but not published")        \
    X(forget_spans, "fingerprints do not cover tables of documents and spans")                     \
    X(forget_rewound_copies, "copies of checkpoints that were rewound keep their names")           \
    X(forget_new_directory, "the name of a new directory is not synced")                           \
    X(hurry_to_broken_disk, "the pause after failed writes of the cache does not grow")            \
    X(ignore_arrow_nulls, "rows and tokens that Arrow's bitmaps call null are taken")              \
    X(forget_indexes, "indexes and sidecars are not checked again once they are open")             \
    X(ignore_alert_period, "commands of alerts are run however short ago the last one was")        \
    X(ignore_block_hash, "blocks of token files are not compared with their sidecar")              \
    X(ignore_changed_files, "token files are not checked again once they are open")                \
    X(ignore_directory_id, "the id of a checkpoint directory is not compared with the run record") \
    X(ignore_changed_objects, "replies of a store are not compared with the ETag of the object")   \
    X(give_up_on_busy_stores, "a store that is busy in words of its own is not asked again")       \
    X(take_encoded_bytes, "bytes that a server has encoded are taken for the object's")            \
    X(sign_standard_port, "the standard port of an endpoint is signed, and not sent")              \
    X(take_any_bucket, "any text is taken for the name of a bucket")                               \
    X(wait_for_key_command, "a command that gives keys is waited for without end")                 \
    X(trust_kept_damage, "bytes that differ from their sidecar are not asked for again")           \
    X(match_hidden_keys, "names that begin with a dot match patterns of a bucket")                 \
    X(ignore_content_range, "replies of a store are taken for the range that was asked for")       \
    X(ignore_section_hash, "sections of a checkpoint are not compared with their hashes")          \
    X(ignore_short_documents, "the default of max_docs_per_row does not depend on lengths")        \
    X(ignore_trial, "a start goes on although its test write into a directory has failed")         \
    X(ignore_unknown_options, "an option that this library does not know is silently ignored")     \
    X(ignore_tokenizer, "the tokenizers of two shards, or of a state and a run, are not compared") \
    X(insist_on_rings, "a reader that gets no ring fails, though nobody asked for io_uring")       \
    X(join_silently, "the engine is not woken when dispatch has joined a ring")                    \
    X(join_too_early, "a flow joins a ring below batches that the ring has already")               \
    X(keep_queries, "queries of URLs, which may be secrets, are kept in checkpoints")              \
    X(keep_slow_readers, "metrics keeps connections of readers that send a byte now and then")     \
    X(keep_stale_marks, "marks of kept states stay when the batch numbering begins anew")          \
    X(leave_alert_command, "a command of an alert that runs at the end of its engine is left")     \
    X(leave_batch_out_of_digest, "the last batch of an interval is not in its content digest")     \
    X(leave_files_beside_objects, "files beside objects are not mapped, as the objects are not")   \
    X(leave_out_journal_stop, "the end of an engine is not written to the run journal")            \
    X(landmark_of_another_stream, "a landmark of a stream with other weights is loaded")           \
    X(leave_out_dir_fsync, "a checkpoint's directory is not synced after the rename")              \
    X(leave_out_last_look, "a save and a stop do not look whether token files have changed")       \
    X(leave_out_fsync, "a checkpoint is renamed without having been synced")                       \
    X(lose_digest_at_resume, "the plan digest is not taken from the token of a resume")            \
    X(lose_fragment_at_resume, "the first row after a resume lacks its last fragment")             \
    X(keep_lost_stretches, "stretches that the page cache has lost stay mapped")                   \
    X(map_from_stretch, "a mapped token is looked for from its stretch, not from its file")        \
    X(map_small_files, "each index has a mapping of its own, however small")                       \
    X(map_without_room, "stretches are mapped though reads will take their pages")                 \
    X(mask_before_bos, "spans of converted documents do not move with a token put before them")    \
    X(lose_at_first_error, "a mapped file is lost when its disk fails for a moment")               \
    X(mask_one_off_at_cut, "spans of a fragment that continues a document lie one token off")      \
    X(merge_ways_of_reading, "a read past the page cache becomes one with a read through it")      \
    X(outlive_engine, "the watcher of alerts does not end with its engine")                        \
    X(overlook_new_file, "the watcher stays calm though a new file is read")                       \
    X(pack_left_out, "packers write rows to a ring to which another flow delivers")                \
    X(place_before_spans, "tokens get their place before there is room for their spans")           \
    X(pad_after_end, "a trainer that begins at the end of the stream gets batches of padding")     \
    X(provenance_off_by_one, "explain gives each fragment the provenance of the next one")         \
    X(park_first_behind, "of several catch-up flows only one learns that the engine sleeps")       \
    X(print_control_characters, "names with control characters are printed as they are")           \
    X(probe_same_places, "each look at the page cache probes the same bytes of a file")            \
    X(prune_before_copy, "a checkpoint is removed although it has not been copied")                \
    X(publish_before_complete, "tail is stored before the slot is complete")                       \
    X(ready_before_read, "a ticket is READY, and its memory free, while reads are in flight")      \
    X(read_in_for_nothing, "blocks are read in, too, where no later epoch makes up for it")        \
    X(replace_for_ever, "a packer process that dies at one ticket is replaced without end")        \
    X(replace_profile_sections, "a list of sections replaces those of the profile")                \
    X(rename_before_sync, "files that are published together are renamed before they are synced")  \
    X(release_of_one_frees, "a slot is free when the first of its replicas has released it")       \
    X(release_one_too_many, "the release watermark moves over a lease that is still held")         \
    X(remove_unread, "a checkpoint of the history whose row cannot be read is removed")            \
    X(reset_seats, "a rebuild of a ring resets the states of its seats")                           \
    X(resume_one_row_on, "a run from a checkpoint begins one row after its position")              \
    X(reuse_ring, "a ring that its last trainer may still read is given to the next trainer")      \
    X(save_mapped_tokens, "contents are copied from mapped files without comparing blocks")        \
    X(send_rights_anywhere, "a SAS is sent in the clear, or to the accounts of others")            \
    X(show_ended_engines, "metrics shows the last figures of an engine that has ended")            \
    X(signal_before_store, "an event is signalled before the store that it announces")             \
    X(send_token_in_clear, "the token of the Hub is sent by http, too")                            \
    X(skip_padding_in_digest, "the plan digest does not cover rows of padding only")               \
    X(start_threads_once, "a thread or process for which there is no room is not asked for again") \
    X(stop_for_second_behind, "the flow is stopped for a second ring that falls behind")           \
    X(stop_to_catch_up, "the flow is stopped and starts again for a ring that falls behind")       \
    X(take_failed_look, "a look at free space that failed counts as an answer")                    \
    X(take_ignored_signals, "a signal that was ignored at start ends the engine")                  \
    X(tell_no_progress, "a conversion does not tell how much of a file is done")                   \
    X(show_own_words, "a command line keeps the rights of its URLs")                               \
    X(wait_for_any_lock, "a conversion waits without a bound for the lock of its directory")       \
    X(trust_any_output, "foreign links, directories and files of outputs are used")                \
    X(trust_any_directory, "a directory of /tmp that others may write to is used")                 \
    X(trust_arrow_offsets, "offsets in an Arrow file are not compared with its buffers")           \
    X(take_short_read, "a short read is taken for a complete one")                                 \
    X(trust_plan_of_one_rank, "audit compares the plan of one rank only")                          \
    X(trust_absent, "after a rollback, positions of absent seats still count as known")            \
    X(trust_chain_hash, "entries of a chain are not compared with their hash")                     \
    X(trust_chain_links, "entries of a chain are not compared with the entry before them")         \
    X(trust_cached_bytes, "what is read from the cache is not compared with its hashes")           \
    X(trust_connection, "a dead trainer keeps its rank while another process has its socket")      \
    X(trust_cut_listing, "a list of objects is taken though its end is missing")                   \
    X(trust_empty_index, "an index without documents is taken though its file has tokens")         \
    X(trust_description, "what a trainer expects of the stream is not compared with the run's")    \
    X(trust_expected_shape, "the shape that a trainer expects is not compared with the run's")     \
    X(trust_changed_inputs, "a part is joined though its inputs have changed since")               \
    X(share_parts, "two conversions write to one folder of parts at a time")                       \
    X(trust_first_lock, "a lock is taken though its file was replaced before it was locked")       \
    X(trust_fetched_bytes, "an index that was fetched before is not compared with its hash")       \
    X(trust_fresh_stamps, "a file that changed just now is taken to change its times again")       \
    X(trust_finished_parts, "a part of an earlier conversion is joined, whatever its hash says")   \
    X(trust_olmo_rows, "rows of OLMo's documents are not compared with each other and the file")   \
    X(trust_syncfs, "many new files are renamed once a syncfs has written them, without an fsync") \
    X(trust_index_extents, "an index is not compared with the size of its token file")             \
    X(trust_index_pages, "pages of an index are not compared with their hashes")                   \
    X(trust_release_word, "a trainer's release word is used unchecked")                            \
    X(trust_unread_save, "a save counts as verified before it was read back")                      \
    X(trust_sample_offsets, "offsets in MDS and litData are not compared with the file")           \
    X(trust_table_extents, "the place of a document is not compared with the size of the file")    \
    X(trust_scrubbed_once, "a kept checkpoint that is found damaged still counts as one")          \
    X(trust_seen_blocks, "a block of a mapped file is compared once and then trusted")             \
    X(trust_spans, "spans in a file of spans are not compared with the length of their document")  \
    X(try_in_order, "the test write into a directory of checkpoints has one part, written once")   \
    X(try_direct_again, "a file is tried for O_DIRECT at each opening, not once")                  \
    X(wait_before_announcing, "a packer waits for a ticket before it has announced its batches")   \
    X(wait_for_alert_command, "the watcher of alerts waits for their commands")                    \
    X(wait_to_join, "a ring that is behind waits to be joined when all of the stream is planned")  \
    X(wake_for_old_files, "each document that is read alone wakes the watcher")                    \
    X(write_beyond_struct, "a caller's struct is filled in beyond its struct_size")

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
