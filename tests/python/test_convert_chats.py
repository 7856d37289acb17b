# SPDX-License-Identifier: Apache-2.0
"""`ringpack convert` of prompts with completions and of chats: ids and trained tokens are TRL's,
whose rules are restated here, and with RP_LONG=1 those that its trainer makes."""

import json

import pytest
from convert_kit import convert, documents, refused, written
from stream_kit import LONG
from test_convert_masks import spanfile

tokenizers = pytest.importorskip("tokenizers")
pyarrow = pytest.importorskip("pyarrow.feather") and pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

PAIRS = [
    ("hel", "lo world"),  # a token reaches over the border
    ("Question: what is it?\n", "An answer"),
    ("", "hello"),
    ("hello", ""),
    ("é ", "ß hello hello"),
]
CHAT = [
    [("system", "be kind"), ("user", "hello"), ("assistant", "hello world"), ("user", "more"),
     ("assistant", "the answer")],
    [("user", "hello"), ("assistant", "the end")],
    [("user", "nobody answers")],
]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>"
    "{% if m['role'] == 'assistant' %}OPEN{{ m['content'] }}<|end|>CLOSE"
    "{% else %}{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKED = TEMPLATE.replace("OPEN", "{% generation %}").replace("CLOSE", "{% endgeneration %}")
BARE = TEMPLATE.replace("OPEN", "").replace("CLOSE", "")
# The answer of a turn before others is left out, as templates do that drop their thoughts.
FORGETFUL = BARE.replace("{{ m['content'] }}<|end|>",
                         "{% if loop.last %}{{ m['content'] }}{% endif %}<|end|>", 1)
SPECIAL = ["<eos>", "<s>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The folder of a tokenizer that has merges over borders, and the tokenizer."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(["hello world the answer is the end"] * 20, trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    made.save(str(folder / "tokenizer.json"))
    return folder, made


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_table(path, lines, write=parquet.write_table):
    """The same rows as a table; missing values are null, as in the Hub's tables."""
    write(pyarrow.Table.from_pylist(lines), path)
    return path


def write_chats(path, lines, turns=None):
    """Chats as views of lists, or as lists of this number of turns; their strings are views."""
    turn = pyarrow.struct([(name, pyarrow.string_view()) for name in ("role", "content")])
    kind = pyarrow.list_(turn, turns) if turns else pyarrow.list_view(turn)
    rows = pyarrow.array([line["messages"] for line in lines], kind)
    pyarrow.feather.write_feather(pyarrow.table({"messages": rows}), path)
    return path


def ids_of(made, text):
    return made.encode(text, add_special_tokens=False).ids


def common(one, other):
    same = [a == b for a, b in zip(one, other)]
    return same.index(False) if False in same else len(same)


def test_prompts_and_completions(program, tokenizer, tmp_path):
    folder, made = tokenizer
    lines = [{"prompt": prompt, "completion": completion} for prompt, completion in PAIRS]
    empty = {"prompt": "", "completion": ""}
    path = write_lines(tmp_path / "a.jsonl", [*lines, {"text": "hello"}, empty])
    options = ("--tokenizer", folder / "tokenizer.json", "--bos", "<s>", "-o", tmp_path / "out")
    convert(program, *options, path)
    wanted, spans = [], []
    for prompt, completion in PAIRS:
        ids = ids_of(made, prompt + completion)
        begin = common(ids_of(made, prompt), ids)
        wanted.append([1, *ids, 0])
        spans.append([(begin + 1, len(ids) + 2)] if begin < len(ids) else [])
    assert common(ids_of(made, "hel"), ids_of(made, "hello world")) == 0
    hello = ids_of(made, "hello")
    assert documents(tmp_path / "out") == [*wanted, [1, *hello, 0]]
    spans.append([(1, len(hello) + 2)])
    assert (tmp_path / "out.spans").read_bytes() == spanfile("completion_mask", spans)
    parts = [write_lines(tmp_path / f"{i}.jsonl", [line]) for i, line in enumerate(lines)]
    convert(program, *options[:-1], tmp_path / "parts", "--group-bytes", 1, "--workers", 2, *parts)
    convert(program, *options[:-1], tmp_path / "one", *parts)
    assert written(tmp_path / "parts") == written(tmp_path / "one")
    said = (tmp_path / "parts.spans").read_bytes()
    assert said == (tmp_path / "one.spans").read_bytes() == spanfile("completion_mask", spans[:-1])
    views = pyarrow.schema([(name, pyarrow.string_view()) for name in empty])
    table = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([*lines, empty], views), table)
    convert(program, *options[:-1], tmp_path / "table", table)
    assert written(tmp_path / "table") == written(tmp_path / "one")
    assert (tmp_path / "table.spans").read_bytes() == said
    convert(program, "--mask", "none", "--force", *options[:-1], tmp_path / "table", table)
    assert written(tmp_path / "table")[:2] == written(tmp_path / "one")[:2]
    assert not (tmp_path / "table.spans").exists()
    convert(program, "--tokenizer", "bytes", "--column", "prompt", "-o", tmp_path / "bytes", table)
    assert documents(tmp_path / "bytes")[0] == [*b"hel", 256]
    convert(program, "-o", tmp_path / "bytes", "--force", parts[0])
    assert documents(tmp_path / "bytes") == [[*b"hello world", 256]]
    assert (tmp_path / "bytes.spans").read_bytes() == spanfile("completion_mask", [[(3, 12)]])
    convert(program, "--mask", "none", "--force", *options, path)
    assert documents(tmp_path / "out")[0] == wanted[0] and not (tmp_path / "out.spans").exists()


def turns(made, chat):
    """Ids and spans of a chat by the templates above."""
    ids, spans = [], []
    for role, content in chat:
        ids += ids_of(made, f"<|{role}|>")
        begin = len(ids)
        ids += ids_of(made, f"{content}<|end|>")
        spans += [(begin, len(ids))] if role == "assistant" else []
    return ids, spans


def messages(chat):
    return [{"role": role, "content": content} for role, content in chat]


@pytest.fixture
def chats(tokenizer, tmp_path):
    """A folder of the tokenizer with a template."""
    transformers = pytest.importorskip("transformers")
    folder, _ = tokenizer

    def save(template):
        own = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), eos_token="<eos>", bos_token="<s>",
            chat_template=template)
        own.save_pretrained(str(tmp_path / "chat"))
        return tmp_path / "chat" / "tokenizer.json"

    return save


@pytest.fixture
def no_torch(tmp_path):
    """An environment in which whoever imports torch ends."""
    (tmp_path / "fence" / "torch").mkdir(parents=True)
    (tmp_path / "fence" / "torch" / "__init__.py").write_text("raise SystemExit('torch')")
    return {"PYTHONPATH": str(tmp_path / "fence")}


@pytest.mark.parametrize("template", [MARKED, BARE], ids=["marked", "bare"])
def test_chats(program, tokenizer, chats, no_torch, tmp_path, template):
    options = ("--tokenizer", chats(template), "-o", tmp_path / "out")
    lines = [{"messages": messages(chat)} for chat in CHAT]
    path = write_lines(tmp_path / "a.jsonl", [{**line, "prompt": "hello"} for line in lines])
    lines[1]["messages"][0]["name"] = "a field that the others lack"
    lines[2]["tools"] = "[]"
    tables = [write_table(tmp_path / "a.parquet", lines)]
    tables += [write_table(tmp_path / "b.feather", lines, pyarrow.feather.write_feather)]
    tables += [write_chats(tmp_path / "c.feather", lines)]
    for number, line in enumerate(lines):
        tables += [write_chats(tmp_path / f"d{number}.feather", [line], len(line["messages"]))]
    convert(program, *options, path, *tables, env=no_torch)
    made = 5 * [turns(tokenizer[1], chat) for chat in CHAT]
    assert documents(tmp_path / "out") == [ids for ids, _ in made]
    wanted = spanfile("assistant_masks", [spans for _, spans in made])
    assert (tmp_path / "out.spans").read_bytes() == wanted
    if template == BARE and LONG:  # transformers takes seconds to import
        rows = [{"prompt": messages(chat[:-1]), "completion": messages(chat[-1:])} for chat in CHAT]
        table = write_table(tmp_path / "pairs.parquet", rows[:2])
        convert(program, "--force", *options, write_lines(path, rows[:2]), table)
        assert documents(tmp_path / "out") == 2 * [ids for ids, _ in made[:2]]
        wanted = spanfile("completion_mask", 2 * [spans[-1:] for _, spans in made[:2]])
        assert (tmp_path / "out.spans").read_bytes() == wanted


def test_what_cannot_be_a_chat(program, tokenizer, chats, tmp_path):
    good, tokens = {"messages": messages(CHAT[0])}, ("-o", tmp_path / "x")
    path = write_lines(tmp_path / "a.jsonl", [{"messages": messages(CHAT[1])}, good])
    words = ["a.jsonl:2: cannot be made a chat: message 2", "{% generation %}"]
    refused(program, "--tokenizer", chats(FORGETFUL), *tokens, path, words=words)
    refused(program, *tokens, path, words=["expected a tokenizer with a chat template", "`bytes`"])
    table = write_table(tmp_path / "a.parquet", [{"messages": messages(CHAT[1])}, good])
    words = ["a.parquet: --mask-of next", "`messages` have only the mask `assistant_masks`"]
    refused(program, "--mask-of", "next", *tokens, table, words=words)
    write_table(table, [{"prompt": "a", "completion": messages(CHAT[1])}])
    refused(program, *tokens, table, words=["a.parquet", "both text or both lists of messages"])
    write_lines(path, [{"prompt": "a", "completion": [1]}])
    refused(program, *tokens, path, words=["a.jsonl:1", "`prompt` and `completion`"])
    if not LONG:  # transformers takes seconds to import
        return
    write_table(table, [{"messages": messages(CHAT[1])}, good])
    words = ["a.parquet: row 1: cannot be made a chat: message 2", "{% generation %}"]
    refused(program, "--tokenizer", chats(FORGETFUL), *tokens, table, words=words)
    write_lines(path, [good])
    refused(program, "--tokenizer", tokenizer[0] / "tokenizer.json", *tokens, path,
            words=["chat template"])
    write_lines(path, [good, {"messages": [{"role": "assistant"}]}])
    refused(program, "--tokenizer", chats(BARE), *tokens, path, words=["a.jsonl:2"])
    pair = {"prompt": messages(CHAT[1][:1]), "completion": messages(CHAT[1][1:])}
    write_lines(path, [good, pair])
    words = ["earlier documents have `assistant_masks`", "this one has `completion_mask`"]
    refused(program, "--tokenizer", chats(BARE), *tokens, path, words=words)


@pytest.mark.skipif(not LONG, reason="a trainer of trl takes a minute: RP_LONG=1")
@pytest.mark.parametrize("form", ["pairs", "chats"])
def test_ids_and_labels_are_those_of_the_trainer(program, chats, tmp_path, form):
    trl, transformers = pytest.importorskip("trl"), pytest.importorskip("transformers")
    datasets = pytest.importorskip("datasets")
    path, lines = chats(MARKED), []
    if form == "pairs":
        lines = [{"prompt": one, "completion": other} for one, other in PAIRS if other]
    else:
        lines = [{"messages": messages(chat)} for chat in CHAT[:2]]
    own = transformers.AutoTokenizer.from_pretrained(str(path.parent))
    own.pad_token = own.eos_token
    config = transformers.LlamaConfig(vocab_size=len(own), hidden_size=8, intermediate_size=8,
                                      num_hidden_layers=1, num_attention_heads=1)
    settings = trl.SFTConfig(output_dir=str(tmp_path / "trl"), report_to="none", max_length=None,
                             assistant_only_loss=form == "chats", use_cpu=True, bf16=False)
    trainer = trl.SFTTrainer(model=transformers.LlamaForCausalLM(config), args=settings,
                             train_dataset=datasets.Dataset.from_list(lines), processing_class=own)
    rows = trainer.train_dataset
    convert(program, "--tokenizer", path, "--eos", "<eos>", "-o", tmp_path / "out",
            write_lines(tmp_path / "a.jsonl", lines))
    assert documents(tmp_path / "out") == [list(row) for row in rows["input_ids"]]
    spans = []
    for labels in rows["labels"]:
        flags = [label != -100 for label in labels]
        edges = [i for i in range(1, len(flags) + 1)
                 if (flags[i] if i < len(flags) else False) != (flags[i - 1] if i > 1 else False)]
        spans.append(list(zip(edges[::2], edges[1::2])))
    mask = "completion_mask" if form == "pairs" else "assistant_masks"
    assert (tmp_path / "out.spans").read_bytes() == spanfile(mask, spans)
