# SPDX-License-Identifier: Apache-2.0
"""The options of a Loader and their types. Written by make_options, from `ringpack config keys`."""

from collections.abc import Mapping, Sequence
from typing import Literal, SupportsIndex, TypedDict, Union

from ._arguments import Corpus, FilePath

Number = Union[SupportsIndex, str]
"""A whole number, or the text of one, which may have a unit: 64Ki."""
Weight = Union[Number, float]
Ranges = Union[Number, Sequence[Number]]
"""7, or FIRST-END without END, or a list of these."""


class SkipOptions(TypedDict, total=False):
    """Keys of `skip`."""

    rows: Ranges
    steps: Ranges


class LimitOptions(TypedDict, total=False):
    """Keys of the limits of a source."""

    max_epochs: Union[Number, Literal["endless"]]
    """times that it is read"""
    max_tokens: Number
    """tokens that are taken"""
    on_exhausted: Literal["continue", "stop", "error"]
    """at a limit"""


class CostOptions(TypedDict, total=False):
    """Keys of `cost`."""

    k: Number
    """length whose attention costs as much as all else, as measured"""
    hidden: Number
    """width of the model"""
    ffn: Number
    """width of the feed-forward network; of all active experts together"""
    heads: Number
    """query heads"""
    kv_heads: Number
    """key and value heads"""
    head_dim: Number
    """width of a head"""
    gated: bool
    """whether the feed-forward network has three matrices"""
    vocab: Number
    """logits; needs `layers`"""
    attention_window: Number
    """tokens that a layer with a window attends to"""
    window_layers: Number
    """layers with such a window"""
    layers: Number
    """all layers"""


class DealOptions(TypedDict, total=False):
    """Keys of `deal`."""

    window: Number
    """rows that are dealt together"""
    step: Number
    """rows of a step"""
    tier: Number
    """rows of a micro-step of all ranks"""
    bundle: Number
    """rows of a rank's micro-batch"""
    order: Literal["descending", "middle", "wave", "late_wave"]
    """tiers of a step"""
    cost: Number
    """length whose attention costs as much as all else"""
    attention_window: Number
    """tokens that a layer with a window attends to"""
    window_layers: Number
    """layers with such a window"""
    layers: Number
    """all layers"""


class SourceOptions(TypedDict, total=False):
    """Keys of a source, in `corpus` or `sources`."""

    name: str
    """name in messages, and in stream version 2 also in the stream"""
    weight: Weight
    """share of the tokens, relative to the other sources"""
    shards: Union[FilePath, Sequence[FilePath]]
    """files, URLs, Megatron prefixes, globs, directories"""
    path: Union[FilePath, Sequence[FilePath]]
    """the same as shards"""
    format: Literal[
        "auto", "megatron", "raw", "npy", "llmc", "arrow", "datatrove", "mds", "litdata", "olmo"
    ]
    """format of the shards"""
    dtype: Literal["u8", "u16", "i16", "i32", "u32", "i64", "i8", "u64"]
    """type of a stored token"""
    eos: Number
    """token that ends a document, if the format needs one"""
    column: str
    """column of token ids, if a file has several"""
    mask: str
    """mask that says which tokens are trained: auto = as indexed, none, or its name"""
    mask_value: Literal["train", "ignore"]
    """meaning of an entry of the mask that is not 0"""
    mask_of: Literal["token", "next"]
    """whether an entry of the mask is about its own token or the next one"""
    drop_untrained: Union[bool, Literal["none", "document", "fragment"]]
    """leave out documents, or fragments (stream_version: 2), without a trained token; true =
    document"""
    select: str
    """expression: the documents that are used (stream_version: 2)"""
    repeat: Union[str, Mapping[Union[int, str], str]]
    """documents taken several times in an epoch: {2: EXPRESSION} (stream_version: 2)"""
    unseen_of: FilePath
    """file of a state: the documents that it has used are left out (stream_version: 2)"""
    unseen_source: str
    """name of the source in the state of unseen_of (stream_version: 2)"""
    atomic: bool
    """its documents are never cut (stream_version: 2)"""
    too_long: Literal["drop", "truncate", "error"]
    """treatment of an atomic document longer than a row (stream_version: 2)"""
    max_epochs: Union[Number, Literal["endless"]]
    """times that it may be read; 0 or endless: without end (stream_version: 2)"""
    max_tokens: Number
    """no document is taken after so many tokens; 0 = no limit (stream_version: 2)"""
    on_exhausted: Literal["continue", "stop", "error"]
    """action when one of its limits is reached (stream_version: 2)"""
    documents: str
    """the part of its documents that is used: FIRST-END, from 0 and without END, or percent
    (0-90%, and 90-100% for validation)"""


class StageOptions(TypedDict, total=False):
    """Keys of one of the stages; each one is as before if it is not given."""

    until: str
    """its end, from the beginning of the stream: 200k steps, 500g tokens, or row N"""
    weights: Union[str, Mapping[str, Weight]]
    """weight of each source by name; one that is not named has 0, and waits"""
    ramp: Number
    """rows over which the weights move from those before"""
    limits: Union[str, Mapping[str, LimitOptions]]
    """max_epochs, max_tokens and on_exhausted of sources by name"""
    without: Union[str, Mapping[str, FilePath]]
    """documents that are taken out: files by source, with one number on a line"""
    documents: Union[str, Mapping[str, Number]]
    """documents of sources by name, for epochs that begin from here on"""
    seq_len: Number
    """tokens in a row"""
    packing: Literal["lookahead", "concat", "best_fit"]
    """how documents become rows"""
    packing_buffer: Number
    """documents to choose from (packing: lookahead)"""
    open_bins: Number
    """open rows (packing: best_fit)"""
    row_gap: Literal["pad", "split"]
    """last gap of a row"""
    spread: Number
    """documents longer than a row whose rows alternate"""
    align: Number
    """places of a fragment are a multiple of it"""
    max_docs_per_row: Number
    """most fragments in a row"""
    deal: Union[str, DealOptions]
    """order of rows for equal cost"""
    global_batch_size: Number
    """rows of a step"""
    batch_size: Number
    """rows of a rank's micro-batch"""


class CommonOptions(TypedDict, total=False):
    """Keys that all streams share."""

    streams: Mapping[str, "OneStreamOptions"]
    """streams of one engine by name, each with the keys in which it differs: {train: {}, eval:
    {num_epochs: 1}}"""
    stream: str
    """the one of the streams that is meant"""
    ranks: Ranges
    """ranks that this node serves, for instance 0-3"""
    log_format: Literal["text", "json", "plain"]
    """lines of the log: text with the time (systemd's journal has its own), json, plain"""


class StreamOptions(TypedDict, total=False):
    """Keys that decide the rows: they must not change on resume."""

    stream_version: Number
    """rules of the stream; 2 has stages, limits and selections (stages.md)"""
    seed: Number
    """key of the order of documents"""
    shuffle: Literal["none", "document", "block"]
    """order of documents; block keeps reads of cold disks in large runs"""
    block_documents: Number
    """documents in a block (shuffle: block)"""
    window_blocks: Number
    """blocks that are mixed with each other (shuffle: block)"""
    packing: Literal["lookahead", "concat", "best_fit"]
    """how documents become rows"""
    packing_buffer: Number
    """documents to choose from (packing: lookahead)"""
    open_bins: Number
    """open rows (packing: best_fit)"""
    row_gap: Literal["pad", "split"]
    """last gap of a row: padding, or a document cut to fit"""
    long_doc: Literal["split", "truncate", "drop"]
    """treatment of documents longer than a row"""
    max_docs_per_row: Number
    """most fragments in a row"""
    align: Number
    """places of a fragment are a multiple of it (stream_version: 2)"""
    spread: Number
    """documents longer than a row whose rows alternate (stream_version: 2)"""
    group: Number
    """neighbouring documents that must be in one row (stream_version: 2)"""
    bos_id: Union[Number, Literal["none"]]
    """token inserted before each document (stream_version: 2)"""
    eos_id: Union[Number, Literal["none"]]
    """token inserted after each document (stream_version: 2)"""
    label_across_cuts: bool
    """the last token of a cut predicts the next one of its document (stream_version: 2)"""
    deal: Union[str, DealOptions]
    """order of rows for equal cost: a mapping of window, step, tier, cost (stream_version:
    2)"""
    plan_partitions: Number
    """independent plans, the lanes; row g is of plan g mod their number (stream_version: 1)"""


class CheckpointOptions(TypedDict, total=False):
    """Keys of saves."""

    checkpoint_dir: FilePath
    """directory of the checkpoints; none = no key of checkpoints counts"""
    resume: Literal["auto", "required", "fresh"]
    """without checkpoints: auto starts at row 0, required refuses; fresh sets them aside"""
    checkpoint_steps: Number
    """steps from one checkpoint to the next; 0 = at SIGTERM and on demand only"""
    checkpoint_keep: Number
    """how many of the newest positions keep a checkpoint"""
    checkpoint_keep_every: Number
    """history: also keep the oldest checkpoint of every N steps; 0 = none"""
    checkpoint_scrub_seconds: Number
    """kept checkpoints and copies are read again once in this number of seconds; 0 = never"""
    checkpoint_contents: bool
    """also save the prefetched rows, so that a resumed run starts without reading the corpus"""
    checkpoint_mirror_dir: FilePath
    """mirror: a directory where copies of checkpoints are written and verified"""


class AlertOptions(TypedDict, total=False):
    """Keys of alerts."""

    alert_command: Union[FilePath, Sequence[FilePath]]
    """program run at each alert, with its arguments, without a shell; RINGPACK_ALERT... say
    why"""
    alert_starved_ms: Number
    """alert when a trainer waits so long for a batch; 0 = never"""
    alert_skew_rows: Number
    """alert when ranks of this node are this number of their rows apart; 0 = never"""
    alert_disk_free: Number
    """alert when less room is left for checkpoints, copies or the cache; 0 = never"""


class RunOptions(TypedDict, total=False):
    """The other keys: they may change on resume."""

    removed: Union[str, Mapping[str, Weight]]
    """sources of earlier starts, with the weight that they had in `sources`"""
    stages: Union[str, Sequence[StageOptions]]
    """weights, limits and packing from a row on (stream_version: 2)"""
    skip: Union[str, SkipOptions]
    """rows and steps that are not delivered: {rows: [100-200], steps: [7]} (stream_version:
    2)"""
    grow: bool
    """at a resume, use documents that were appended to a source (stream_version: 2)"""
    num_epochs: Union[Number, Literal["endless"]]
    """times that every source is read; 0 or endless: without end"""
    vocab_size: Number
    """token ids must be below it"""
    global_batch_size: Number
    """rows of a step; a multiple of batch_size * dp_world_size"""
    drop_last: bool
    """drop the last step when it is not full"""
    pad_id: Number
    """token id of padding"""
    sections: Union[str, Sequence[str]]
    """sections of a batch: added to the sections of a given profile, else these only"""
    columns: Union[str, Sequence[str]]
    """side columns of batches: values for each token, from files next to the shards"""
    label_columns: Union[str, Sequence[str]]
    """the same, each value in the place that has its token as label"""
    document_columns: Union[str, Sequence[str]]
    """columns of the index in batches: a number for the document of each fragment"""
    token_dtype: Literal["auto", "u16", "i32", "i64"]
    """type of input_ids, labels and position_ids; auto = of the profile"""
    label_mode: Literal["shifted", "aligned"]
    """label of a position: the next token (shifted) or the token itself (aligned)"""
    cost: Union[Number, CostOptions]
    """cost of rows: the length at which attention costs as much as all else, or the model's
    numbers, {hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8}"""
    cpus: Ranges
    """CPUs of the engine, for instance 0-7,16-23; its memory is then on their NUMA nodes"""
    readers: Number
    """threads that read"""
    packers: Union[Number, Literal["auto"]]
    """workers that pack; auto = from the CPUs and the trainers here, 1 to 8"""
    packer_processes: bool
    """packing workers are processes instead of threads"""
    prefetch_factor: Number
    """batches that a rank's ring holds; rounded up to a power of two"""
    prefetch_bytes: Number
    """memory between readers and packers"""
    io_depth: Number
    """reads in flight per reader"""
    io: Literal["auto", "io_uring", "pread", "mapped"]
    """how files are read; mapped suits a corpus that the page cache holds"""
    o_direct: Literal["auto", "on", "off"]
    """read past the page cache (O_DIRECT)"""
    verify_blocks: Literal["auto", "on", "off"]
    """compare all reads with the hashes of the sidecars; auto = if a shard has a sidecar"""
    index: FilePath
    """NAME.rpi: one index of all sources, so that a start opens no shard; else a directory of
    sidecars"""
    manifest: FilePath
    """older name of `index`, for a file"""
    index_dir: FilePath
    """older name of `index`, for a directory"""
    cache_dir: FilePath
    """directory for files fetched from object stores: indexes, sidecars, blocks"""
    cache_bytes: Number
    """blocks of objects kept in cache_dir, by all engines that use it"""
    mount_guard_dir: FilePath
    """directory of the run record, by which a start notices a missing mount; none = no
    record"""


class OneStreamOptions(StreamOptions, CheckpointOptions, AlertOptions, RunOptions, total=False):
    """Keys of one of the streams; the node, the job and the process have others."""

    corpus: Corpus
    """as in Loader(corpus=...)"""
    sources: Corpus
    """another name of corpus"""
    seq_len: Number
    """tokens in a row"""
    batch_size: Number
    """rows of a batch of each rank"""
    profile: str
    """names and shapes of a batch for a framework"""


class Options(
    StreamOptions, CheckpointOptions, AlertOptions, RunOptions, CommonOptions, total=False
):
    """All options of a Loader: keys of the config, and arguments of `ringpack serve`."""

    accept_weights: bool
    """from the start row on, use the weights of the config, not the state's"""
    fresh: bool
    """set aside the checkpoints of checkpoint_dir, and start at row 0"""
    state: FilePath
    """start at the position of this state token, checkpoint, or file of a trainer"""
    start_step: SupportsIndex
    """start at this step; refused where a checkpoint of checkpoint_dir is at another row"""
    base_row: SupportsIndex
    """row at which step 0 of start_step begins (default 0)"""
