/* SPDX-License-Identifier: Apache-2.0 */
/* defect.h — deliberate defects, for the tests that must fail: a guarantee counts as tested only
 * when breaking it makes a test fail.
 *
 * RP_DEFECT(name) is the constant 0 in every build but those of tests. One that is compiled with
 * -DRP_DEFECT_<name>=1 has that defect; the simulator (tests/sim) and the program that kills itself
 * (tests/kill) have all of them in one build, turned on one at a time. */
#ifndef RP_BASE_DEFECT_H
#define RP_BASE_DEFECT_H

/* name, what it breaks. tests/DEFECTS.md says which test finds each. */
#define RP_DEFECTS(X)                                                                              \
    X(accept_other_stream, "the state of another stream is taken for one's own")                   \
    X(close_files_in_use, "a descriptor is closed while reads of its file may be in flight")       \
    X(count_steps_from_attach, "a state brought after an attach does not begin a step")            \
    X(count_equal_saves, "a second save at one position counts as another one to keep")            \
    X(count_published, "a checkpoint is cut behind what was published, not what was consumed")     \
    X(forget_contract_field, "pad_id is left out when contracts are compared")                     \
    X(forget_detach, "the end of a connection is not told to the seat")                            \
    X(forget_names, "an engine does not look after its names in the run directory")                \
    X(forget_packed_rows, "a ring that is rebuilt lacks what was packed but not published")        \
    X(forget_new_directory, "the name of a new directory is not synced")                           \
    X(forget_indexes, "indexes and sidecars are not looked at again once they are open")           \
    X(ignore_block_hash, "blocks of token files are not compared with their sidecar")              \
    X(ignore_changed_files, "token files are not looked at again once they are open")              \
    X(ignore_section_hash, "sections of a checkpoint are not compared with their hashes")          \
    X(ignore_short_documents, "the default of max_docs_per_row knows no lengths")                  \
    X(ignore_unknown_options, "an option that this library does not know is ignored in silence")   \
    X(keep_stale_marks, "marks of kept states stay when the numbering begins anew")                \
    X(leave_out_dir_fsync, "a checkpoint's directory is not synced after the rename")              \
    X(leave_out_fsync, "a checkpoint is renamed without having been synced")                       \
    X(lose_fragment_at_resume, "the first row after a resume lacks its last fragment")             \
    X(map_small_files, "each index has a mapping of its own, however small")                       \
    X(mask_one_off_at_cut, "spans of a fragment that continues a document lie one token off")      \
    X(pad_after_end, "who begins at the end of a stream gets the padding of a step")               \
    X(prune_before_copy, "a checkpoint is removed although it has not been copied")                \
    X(publish_before_complete, "tail is stored before the slot is complete")                       \
    X(ready_before_read, "a ticket is READY while its reads are in flight, and its memory free")   \
    X(release_of_one_frees, "a slot is free when the first of its trainers has released it")       \
    X(release_one_too_many, "the watermark moves over a lease that is still held")                 \
    X(reset_seats, "a ring that is rebuilt forgets what is known of its seats")                    \
    X(resume_one_row_on, "a run from a checkpoint begins one row behind it")                       \
    X(reuse_ring, "a ring whose last trainer may still read it is given to the next")              \
    X(save_mapped_tokens, "contents of a checkpoint are taken from mapped files, uncompared")      \
    X(signal_before_store, "an event is signalled before the store that it tells of")              \
    X(take_ignored_signals, "a signal that was ignored at start ends the engine")                  \
    X(take_short_read, "a read that brought a part is taken as whole")                             \
    X(trust_absent, "ranks that are not back yet stand where they were, though others go back")    \
    X(trust_expected_shape, "the shape that a trainer expects is not compared with what there is") \
    X(trust_index_extents, "an index is not held against the file it describes")                   \
    X(trust_release_word, "a trainer's release word is believed unchecked")                        \
    X(trust_table_extents, "where a reader puts a document is not held against the file")          \
    X(trust_table_pages, "pages of a sidecar's table are not compared with their hashes")          \
    X(trust_seen_blocks, "a block of a mapped file is compared once and then trusted")             \
    X(write_beyond_struct, "a caller's struct is filled in beyond its struct_size")

#if defined(RP_SIMULATION) || defined(RP_POINTS)

enum rp_defect {
#define RP_DEFECT_ENUM(name, text) RP_DEFECT_IS_##name,
    RP_DEFECTS(RP_DEFECT_ENUM)
#undef RP_DEFECT_ENUM
        RP_DEFECT_COUNT
};
extern _Bool rp_defects[RP_DEFECT_COUNT];
#define RP_DEFECT(name) (rp_defects[RP_DEFECT_IS_##name])

#else

/* 1 if the macro RP_DEFECT_<name> is defined as 1, else 0: it is pasted into a word that is either
 * "0," (which moves the 1 into second place) or nothing known. */
#define RP_DEFECT_PLACE_1 0,
#define RP_DEFECT_SECOND(first, second, ...) second
#define RP_DEFECT_PICK(place) RP_DEFECT_SECOND(place 1, 0, )
#define RP_DEFECT_PASTE(value) RP_DEFECT_PICK(RP_DEFECT_PLACE_##value)
#define RP_DEFECT_VALUE(value) RP_DEFECT_PASTE(value)
#define RP_DEFECT(name) RP_DEFECT_VALUE(RP_DEFECT_##name)

#endif

#endif
