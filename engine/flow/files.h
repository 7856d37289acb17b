/* SPDX-License-Identifier: Apache-2.0 */
/* files.h — the token files of a flow, which are read, mapped, or both.
 *
 * Files that are read: each is opened when a read of it is planned (descriptors.h). Dispatch writes
 * its entry; readers see the entry through the PLANNED store of a ticket that uses it.
 *
 * Files that are mapped: if the page cache holds the corpus, a system call for every document costs
 * more than its copy. So all files are mapped before the stages start (and before packer processes
 * are forked), and packers take tokens from the mapping; if the file has hashes, through a private
 * copy (verified.h). Plan, tickets and bytes are the same. A packer that meets a mapped file cut
 * short ends there (base/mapped.h): the stream stops with the file's name, and trainers keep the
 * batches that they hold.
 *
 * Files that are both, in an adapting flow: each is also mapped when it is opened, unless the
 * kernel does not report its cached pages; for each document or block dispatch looks up the present
 * read mode of its part of the file (residency.h). A second descriptor for direct reads is opened
 * when the first direct read is planned.
 *
 * Objects in stores are always read, even if the files of the same corpus are mapped. */
#ifndef RP_FLOW_FILES_H
#define RP_FLOW_FILES_H

#include "base/mapped.h"
#include "flow/descriptors.h"
#include "flow/flow.h"
#include "flow/residency.h"

/* Shards of a corpus index are opened as they are used; a start opens at most this many. */
#define RP_FILES_AT_START 64u

struct rp_file {
    struct rp_io_object object;
    bool is_open;
    /* alignment of reads: 1, RP_BLOCK_BYTES if blocks are checked, or O_DIRECT's */
    uint32_t alignment;
    bool o_direct;      /* reads must be aligned, also at the end of the file */
    bool checked;       /* blocks are compared with the sidecar's hashes, at each use */
    const uint8_t *map; /* the whole file, or NULL */
    struct rp_mapped_file *mapping;
    struct rp_stretch *stretches; /* read mode of each; NULL: the file is mapped, or read, whole */
    /* Alignment of the second descriptor, which serves direct reads of a buffered file. 0: not
     * tried yet; 1: the file refuses them, and all its reads are buffered; else as `alignment`. */
    uint32_t direct_alignment;
    struct rp_io_object direct_object;
    /* Alignment for O_DIRECT, kept because the file may be opened again for each of many documents.
     * 0: no descriptor for direct reads was opened yet. */
    uint32_t known_alignment;
    bool is_known;         /* `stamp` is set: the file has been open */
    struct rp_stamp stamp; /* the file's, when it was opened */
    bool is_to_revalidate; /* it is in rp_files.to_revalidate */
    uint64_t last_ticket;  /* while it is there: the last ticket that uses it */
};

/* How the files of a flow are read. Written by files.c, before the stages start.
 *
 *   READ    no file is mapped. rp_files_map: MAPPED; rp_files_adapt: ADAPT
 *   MAPPED  all files are mapped, and only objects are read
 *   ADAPT   the read mode is chosen for each stretch, and a file is mapped when it is opened.
 *           If one that packer processes need cannot be opened: READ */
enum rp_files_state { RP_FILES_READ, RP_FILES_MAPPED, RP_FILES_ADAPT };

struct rp_files {
    const struct rp_corpus *corpus;
    const struct rp_io_method *method;
    struct rp_cache *cache; /* the cache of objects; NULL = none */
    struct rp_file *files;  /* [shards of the corpus] */
    struct rp_descriptors descriptors;
    bool o_direct, verify_blocks;
    enum rp_files_state state;
    bool has_objects; /* some shards are objects, not files */
    struct rp_residency residency;
    /* Files without hashes whose tokens were used since they were last checked. */
    uint32_t *to_revalidate, to_revalidate_count;
    /* Writer: dispatch. Part of rp_flow_counts. */
    struct rp_a64 taken_bytes, unverified_bytes;
    struct rp_a64 buffered_bytes, direct_bytes; /* shares of taken_bytes; the rest was mapped */
};

/** Address of a transfer's tokens: in the data ring, or in a mapped file. */
static inline const uint8_t *rp_files_tokens(const struct rp_files *files, const uint8_t *data,
                                             const struct rp_transfer *transfer)
{
    const uint8_t *start = transfer->mapped_shard ? files->files[transfer->mapped_shard - 1].map
                                                  : data;
    return start + transfer->data_offset;
}

RP_MUST_CHECK int rp_files_open(struct rp_files *files, const struct rp_flow_options *options,
                                struct rp_error *error);
void rp_files_close(struct rp_files *files);

enum rp_files_open { RP_FILES_WAIT, RP_FILES_OPEN };
/** As rp_files_get, for a file that is not open. */
RP_MUST_CHECK int rp_files_get_open(struct rp_files *files, uint32_t shard, uint64_t retired,
                                    uint64_t *ticket, struct rp_error *error);
/** Get the file of a shard, which is opened and checked against the corpus if it is not open. OPEN:
 * *file is open until the next call of this function or, after rp_files_pin(ticket), at least
 * until that ticket is retired. WAIT: no descriptor is free before the tickets below *ticket are
 * retired. Or a negative code. `retired`: the tickets below it are retired now. */
RP_MUST_CHECK static inline int rp_files_get(struct rp_files *files, uint32_t shard,
                                             uint64_t retired, const struct rp_file **file,
                                             uint64_t *ticket, struct rp_error *error)
{
    *file = &files->files[shard];
    return (*file)->is_open ? RP_FILES_OPEN
                            : rp_files_get_open(files, shard, retired, ticket, error);
}
/** Keep the file of the shard, which is open, open until this ticket is retired. */
void rp_files_pin(struct rp_files *files, uint32_t shard, uint64_t ticket);

/** Note that a ticket takes this many bytes of the shard, read or mapped. If no hash covers them,
 * the file is revalidated after they have been copied. */
void rp_files_note_taken(struct rp_files *files, uint32_t shard, uint64_t ticket, uint64_t bytes);

/** Check that the files without hashes are unchanged (rp_shard_check). A file is checked from its
 * first use until one check after the last ticket that used it was retired (all below `retired`
 * are), so a change before the tokens were copied is always noticed. Called by dispatch. */
RP_MUST_CHECK int rp_files_revalidate(struct rp_files *files, uint64_t retired,
                                      struct rp_error *error);

/** The flow starts: tickets are numbered from 0 again. */
void rp_files_restart(struct rp_files *files);

/* The expected hashes of a checked file's blocks are taken from the sidecar when a ticket is
 * planned, and travel with the ticket: the sidecar is checked before the ticket is handed on, and
 * is not read later. Hashes of several blocks are combined, in their order, into one number. */
static inline uint64_t rp_files_add_hash(uint64_t all, uint64_t hash)
{
    return (all + hash) * 0x9e3779b97f4a7c15u; /* odd: the product loses no bit */
}
uint64_t rp_files_expected(const struct rp_files *files, uint32_t shard, uint64_t offset,
                           uint64_t bytes);
/** Compare the needed bytes of a read of a checked file with their expected hash. The read begins
 * at a block, and ends with a block or the file. -RP_E_CORRUPT names the file and the block. */
RP_MUST_CHECK int rp_files_verify(const struct rp_files *files, const struct rp_read *read,
                                  const uint8_t *data, struct rp_error *error);
/** Set *error for bytes whose combined hash is not the expected one; `hashes` has one for each of
 * their blocks. Returns the code of rp_files_verify. */
int rp_files_explain(const struct rp_files *files, uint32_t shard, uint64_t offset,
                     const uint64_t *hashes, uint64_t bytes, struct rp_error *error);

/** The read mode of bytes [first, last) of an open file. */
static inline enum rp_read_mode rp_files_mode(const struct rp_file *file, uint64_t first,
                                              uint64_t last)
{
    if (file->stretches)
        return rp_residency_mode(file->stretches, first, last);
    return file->map ? RP_READ_MAPPED : file->o_direct ? RP_READ_DIRECT : RP_READ_BUFFERED;
}
/** Before a direct read of a file that is open for buffered ones: open its second descriptor. False
 * if the file refuses direct reads. */
bool rp_files_need_direct(struct rp_files *files, uint32_t shard);
/** Count bytes of tokens read from this shard, as direct or buffered. Reads of an object are
 * buffered. */
void rp_files_count_read(struct rp_files *files, uint32_t shard, bool is_direct, uint64_t bytes);

/** Map every file. After a failure (one is missing, say) none is mapped, and all are read. */
RP_MUST_CHECK int rp_files_map(struct rp_files *files, struct rp_error *error);

/** Are all shards mapped, and none read? */
static inline bool rp_files_are_mapped(const struct rp_files *files)
{
    return files->state == RP_FILES_MAPPED && !files->has_objects;
}
/** Does the page cache hold all files, as far as is known? */
static inline bool rp_files_are_cached(const struct rp_files *files)
{
    return files->state == RP_FILES_MAPPED ||
           (files->state == RP_FILES_ADAPT && rp_residency_holds_all(&files->residency));
}
/** From now on choose the read mode for each stretch of each file. If that is impossible, returns
 * false with the reason in *why. To be called before any file is open. */
RP_MUST_CHECK bool rp_files_adapt(struct rp_files *files, const struct rp_flow_options *options,
                                  struct rp_error *why);

/** The byte range, in whole blocks, that holds a transfer of a mapped file. */
struct rp_hashed_range {
    uint64_t first, end;
};
struct rp_hashed_range rp_files_hashed_range(const struct rp_files *files,
                                             const struct rp_transfer *transfer);
/** Start readahead of exactly the pages that hold a transfer of a mapped file. */
void rp_files_read_ahead(const struct rp_files *files, const struct rp_transfer *transfer);
/** A packer takes the tokens of this transfer next: start readahead of their pages if they may be
 * lost. A page can be lost after its tokens were planned as mapped; the fault that reads it again
 * also reads the kernel's readahead around it, and if memory is short, that evicts the pages of
 * other transfers. Readahead starts if a stretch of the transfer is no longer `mapped`, which the
 * watcher notices some time after the loss. */
static inline void rp_files_read_lost(const struct rp_files *files,
                                      const struct rp_transfer *transfer)
{
    if (!transfer->mapped_shard)
        return;
    const struct rp_stretch *stretches = files->files[transfer->mapped_shard - 1].stretches;
    uint64_t first = transfer->data_offset;
    uint64_t last = first + (uint64_t)rp_transfer_stored(transfer) * transfer->width;
    if (stretches && rp_residency_mode(stretches, first, last) != RP_READ_MAPPED)
        rp_files_read_ahead(files, transfer);
}
/** Has any mapped file hashes, or may one that is mapped later? */
bool rp_files_have_hashes(const struct rp_files *files);
/** Is the transfer in a mapped file that has hashes? Its tokens are then taken by verified.h. */
static inline bool rp_files_is_checked(const struct rp_files *files,
                                       const struct rp_transfer *transfer)
{
    return transfer->mapped_shard && files->files[transfer->mapped_shard - 1].checked;
}

#endif
