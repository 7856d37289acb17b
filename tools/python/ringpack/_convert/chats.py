# SPDX-License-Identifier: Apache-2.0
"""Prompts with completions, and chats, as ids and a mask, for `ringpack convert`. Ids and masks
equal the ones of TRL's SFTTrainer; docs/masks.md describes them."""

import json
import os
import re
import sys

import numpy

from .columns import BESIDE_CHATS, Messages, Refused, need
from .special import Rendered, Specials, special_tokens

MARKERS = ("put {% generation %} and {% endgeneration %} around the turns of the assistant in the "
           "template")
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


def common_prefix(one, other):
    length = min(len(one), len(other))
    differ = numpy.asarray(one[:length]) != numpy.asarray(other[:length])
    return int(differ.argmax()) if differ.any() else length


def pairs_of_texts(tokenizer, lines):
    """Ids of prompt and completion as one text, and the begin of the completion: the first id
    that differs from the ids of only the prompt, because a token may reach over the border. A null
    is an empty text."""
    prompts = [line["prompt"] or "" for line in lines]
    prompt_ids = tokenizer.encode(prompts, counts=False)
    whole_ids = tokenizer.encode([prompt + (line["completion"] or "")
                                  for prompt, line in zip(prompts, lines)])
    for prompt, whole in zip(prompt_ids, whole_ids):
        yield whole, joined([(common_prefix(prompt, whole), len(whole))])


class Chats:
    """Messages by the chat template of a tokenizer, with the package that everybody trains with.
    `found` counts the names of special tokens in them; with `as_tokens` they become tokens."""

    def __init__(self, tokenizer_path, as_tokens=False):
        sys.modules.setdefault("torch", None)  # a template needs none, and its import takes seconds
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that torch is missing
        self.transformers = need("transformers")
        folder = os.path.dirname(os.path.abspath(tokenizer_path))
        try:
            self.tokenizer = self.transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # the package raises whatever its parts raise
            raise Refused(
                "format",
                f"{folder}: expected the folder of a tokenizer, found none that `transformers` "
                f"reads: {first_line(error)}",
                "give the folder that save_pretrained() of a tokenizer left",
            ) from None
        template = self.tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        if not template:
            raise Refused("format", f"{folder}: expected the tokenizer of a chat model, found none "
                                    "with a chat template",
                          "put chat_template.jinja next to its tokenizer.json")
        self.has_markers = GENERATION.search(template) is not None
        self.found, self.as_tokens, self.hidden, self.rendered = 0, as_tokens, False, None
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        self.specials = Specials(special_tokens(backend) if backend else {})

    def take(self, line):
        """The line with the names of special tokens hidden, if they are to be text."""
        line = {**line}
        if isinstance(line.get("tools"), str):
            line["tools"] = json.loads(line["tools"])
        hidden, found = self.specials.hide(line)
        self.found += found
        self.hidden = found > 0 and not self.as_tokens
        return hidden if self.hidden else line

    def render(self, messages, line, **options):
        return self.tokenizer.apply_chat_template(
            messages, tools=line.get("tools"), **options, **(line.get("chat_template_kwargs") or {})
        )

    def text(self, messages, line, **options):
        return self.render(messages, line, tokenize=False, **options)

    def encode(self, messages, line, **options):
        if not self.hidden:
            return self.render(messages, line, tokenize=True, return_dict=True,
                               **options)["input_ids"]
        return self.encode_rendered(self.text(messages, line, **options))[0]

    def encode_rendered(self, text, spans=()):
        self.rendered = self.rendered or Rendered(self.tokenizer.backend_tokenizer, self.specials)
        return self.rendered.encode(text, spans)

    def encode_marked(self, messages, line):
        """Ids, and flags of those that the template marks as the assistant's."""
        if not self.hidden:
            made = self.render(messages, line, tokenize=True, return_dict=True,
                               return_assistant_tokens_mask=True)
            return made["input_ids"], made["assistant_masks"]
        from transformers.utils.chat_template_utils import render_jinja_template

        texts, spans = render_jinja_template(
            conversations=[messages], tools=line.get("tools"), return_assistant_tokens_mask=True,
            chat_template=self.tokenizer.get_chat_template(None, line.get("tools")),
            **{**self.tokenizer.special_tokens_map, **(line.get("chat_template_kwargs") or {})},
        )
        return self.encode_rendered(texts[0], spans[0])

    def pair(self, line):
        line = self.take(line)
        prompt, completion = line["prompt"] or [], line["completion"] or []
        before = self.encode(prompt, line, add_generation_prompt=True)
        whole = self.encode(prompt + completion, line)
        return whole, [(common_prefix(before, whole), len(whole))]

    def chat(self, line):
        line = self.take(line)
        messages = line["messages"]
        if self.has_markers:
            ids, flags = self.encode_marked(messages, line)
            return ids, runs_of_flags(flags)
        whole = self.encode(messages, line)
        return whole, [run for i, message in enumerate(messages) if message["role"] == "assistant"
                       for run in self.turn(messages, i, line, whole)]

    def turn(self, messages, i, line, whole):
        """The ids of a turn: after its generation prompt, up to the end of its text."""
        begin = self.begin_of_first(line, whole) if i == 0 else None
        before = [] if i == 0 else self.encode(messages[:i], line, add_generation_prompt=True)
        behind = self.encode(messages[: i + 1], line)
        if before == whole[: len(before)] and behind == whole[: len(behind)]:
            return [(len(before) if begin is None else begin, len(behind))]
        texts = [self.text(messages, line), self.text(messages[: i + 1], line)]
        texts += [self.text(messages[:i], line, add_generation_prompt=True)] if i > 0 else []
        ids = []
        if all(texts[0].startswith(text) for text in texts):  # a token reaches over a border
            ids, flags = self.encode_rendered(texts[0], [(len(texts[-1]) * (i > 0), len(texts[1]))])
        if ids != whole:
            raise ValueError(
                f"message {i}: its chat template writes this turn in another way where others "
                f"follow it, so which tokens it has is not clear; {MARKERS}"
            )
        return [(max(first, begin or 0), last) for first, last in runs_of_flags(flags)]

    def begin_of_first(self, line, whole):
        """No message is before it, and most templates refuse a generation prompt after none. So the
        generation prompt after any message is taken: it is before this turn."""
        probe = [{"role": "user", "content": "?"}]
        asked = self.encode(probe, line, add_generation_prompt=True)
        asks = asked[len(self.encode(probe, line)) :]
        for place in range(len(whole) - len(asks) + 1 if asks else 0):
            if whole[place : place + len(asks)] == asks:
                return place + len(asks)
        raise ValueError("message 0: the begin of the assistant's first turn is not clear, "
                         f"because no message precedes it; {MARKERS}")


def runs_of_flags(flags):
    runs = []
    for i, flag in enumerate(flags):
        if flag and runs and runs[-1][1] == i:
            runs[-1] = runs[-1][0], i + 1
        elif flag:
            runs.append((i, i + 1))
    return runs


def joined(runs):
    """Without empty runs, and those that touch as one."""
    made = []
    for begin, end in runs:
        if begin < end and made and made[-1][1] >= begin:
            made[-1] = made[-1][0], end
        elif begin < end:
            made.append((begin, end))
    return made


def first_line(error):
    return str(error).strip().split("\n")[0][:300] or type(error).__name__


def made_of_chats(make, lines):
    """Ids and runs of lines and their places; a line that the template rejects is refused by
    place."""
    for place, line in lines:
        try:
            ids, runs = make(line)
            made = numpy.array(ids, "u4"), joined(runs)
        except Refused:
            raise
        except Exception as error:  # a template may raise anything
            raise Refused("format", f"{place}: cannot be made a chat: {first_line(error)}",
                          "mend or remove the line, or mend the template", of_row=True) from None
        yield made


# ---- columns of a table --------------------------------------------------------------------------


def are_pairs(request, name):
    return name == "prompt" and not request["column"]


def are_chats(request, table, name):
    """Whether a column is one of chats, or of prompts that have completions."""
    return are_pairs(request, name) or isinstance(table.columns[name], Messages)


def lines_of(table, name):
    """(row, place, line) of each row; a line has the fields of a line of JSONL. Rows that are
    null are none, and pairs of two empty texts."""
    pairs = are_pairs(table.request, name)
    kinds = {key: table.column(key) for key in (("prompt", "completion") if pairs else (name,))}
    if len({type(column) for column in kinds.values()}) > 1:
        raise Refused("format", f"{table.path}: `prompt` and `completion`: expected both text or "
                                "both lists of messages, found one of each",
                      "give --column NAME")
    check_mask(table.request, name, "completion_mask" if pairs else "assistant_masks")
    beside = {key: table.columns[key] for key in BESIDE_CHATS if key in table.columns}
    for row in range(len(kinds[name])):
        line = {key if pairs else "messages": column[row] for key, column in kinds.items()}
        if any(line.values()):
            line |= {key: column[row] for key, column in beside.items() if column[row]}
            yield row, f"{table.path}: row {table.first_row + row}", line


def check_mask(request, name, made):
    """The mask is made of these rows, so options may only restate it, or say "none"."""
    if request["mask"] == "none":
        return
    usual = {"mask": (None, "auto", made), "mask_value": (None, "train"),
             "mask_of": (None, "token")}
    for key, values in usual.items():
        if request[key] not in values:
            option = "--" + key.replace("_", "-")
            raise Refused("usage", f"{request['path']}: {option} {request[key]}: rows of `{name}` "
                                   f"have only the mask `{made}`",
                          "leave it out, or train every token with --mask none")
