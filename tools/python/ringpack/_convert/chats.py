# SPDX-License-Identifier: Apache-2.0
"""Prompts with completions, and chats, as ids and a mask, for `ringpack convert`. Ids and masks are
those that TRL's SFTTrainer makes; docs/masks.md says what that is."""

import json
import os
import re

import numpy

from .columns import BESIDE_CHATS, Messages, Refused, need

GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


def common_prefix(one, other):
    length = min(len(one), len(other))
    differ = numpy.asarray(one[:length]) != numpy.asarray(other[:length])
    return int(differ.argmax()) if differ.any() else length


def pairs_of_texts(encode, lines):
    """Ids of prompt and completion as one text, and where the completion begins: where these ids
    and those of the prompt alone part, because a token may reach over the border."""
    prompts = [line["prompt"] for line in lines]
    prompt_ids = encode(prompts)
    whole_ids = encode([line["prompt"] + line["completion"] for line in lines])
    for prompt, whole in zip(prompt_ids, whole_ids):
        yield whole, joined([(common_prefix(prompt, whole), len(whole))])


class Chats:
    """Messages by the chat template of a tokenizer, with the package that everybody trains with."""

    def __init__(self, tokenizer_path):
        transformers = need("transformers")
        folder = os.path.dirname(os.path.abspath(tokenizer_path))
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # the package raises whatever its parts raise
            raise Refused(
                "format",
                f"{folder}: expected the folder of a tokenizer, found none that `transformers` "
                f"reads: {first_line(error)}",
                "give the tokenizer.json in the folder that save_pretrained() of a tokenizer left",
            ) from None
        template = self.tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        if not template:
            raise Refused("format", f"{folder}: expected the tokenizer of a chat model, found none "
                                    "with a chat template",
                          "put chat_template.jinja beside its tokenizer.json")
        self.has_markers = GENERATION.search(template) is not None

    def encode(self, messages, line, **options):
        tools = line.get("tools")
        options |= {"tools": json.loads(tools) if isinstance(tools, str) else tools}
        return self.tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, **options,
            **(line.get("chat_template_kwargs") or {}),
        )

    def pair(self, line):
        prompt = self.encode(line["prompt"], line, add_generation_prompt=True)["input_ids"]
        whole = self.encode(line["prompt"] + line["completion"], line)["input_ids"]
        return whole, [(common_prefix(prompt, whole), len(whole))]

    def chat(self, line):
        messages = line["messages"]
        if self.has_markers:
            made = self.encode(messages, line, return_assistant_tokens_mask=True)
            return made["input_ids"], runs_of_flags(made["assistant_masks"])
        whole, runs = self.encode(messages, line)["input_ids"], []
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self.encode(messages[:i], line, add_generation_prompt=True)["input_ids"]
            behind = self.encode(messages[: i + 1], line)["input_ids"]
            if behind != whole[: len(behind)] or before != whole[: len(before)]:
                raise ValueError(
                    f"message {i}: its chat template writes this turn in another way where others "
                    "follow it, so which tokens it has is not clear; put {% generation %} and "
                    "{% endgeneration %} around the turns of the assistant in the template"
                )
            runs.append((len(before), len(behind)))
        return whole, runs


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
    """Ids and runs of lines and their places; what a template does not like is refused by place."""
    for place, line in lines:
        try:
            ids, runs = make(line)
            yield numpy.array(ids, "u4"), joined(runs)
        except Exception as error:  # a template may raise anything
            raise Refused("format", f"{place}: cannot be made a chat: {first_line(error)}",
                          "mend or remove the line, or mend the template") from None


# ---- columns of a table --------------------------------------------------------------------------


def are_chats(request, table, name):
    """Whether a column is one of chats, or of prompts that have completions."""
    pairs = name == "prompt" and not request["column"]
    return pairs or isinstance(table.columns[name], Messages)


def lines_of(table, name):
    """(place, line) of each row, where a line has what a line of JSONL would have."""
    pairs = name == "prompt" and not table.request["column"]
    kinds = {key: table.column(key) for key in (("prompt", "completion") if pairs else (name,))}
    if len({type(column) for column in kinds.values()}) > 1:
        raise Refused("format", f"{table.path}: `prompt` and `completion`: expected both text or "
                                "both lists of messages, found one of each",
                      "give --column NAME")
    check_mask(table.request, name, "completion_mask" if pairs else "assistant_masks")
    beside = {key: table.columns[key] for key in BESIDE_CHATS if key in table.columns}
    for row in range(len(kinds[name])):
        line = {key if pairs else "messages": column[row] for key, column in kinds.items()}
        line |= {key: column[row] for key, column in beside.items() if column[row]}
        yield f"{table.path}: row {table.first_row + row}", line


def check_mask(request, name, made):
    """The mask is made of these rows, so nothing else can be said of it, but that there is none."""
    if request["mask"] == "none":
        return
    usual = {"mask": (None, "auto", made), "mask_value": (None, "train"),
             "mask_of": (None, "token")}
    for key, values in usual.items():
        if request[key] not in values:
            option = "--" + key.replace("_", "-")
            raise Refused("usage", f"{request['path']}: {option} {request[key]}: rows of `{name}` "
                                   f"have the mask `{made}` alone",
                          "leave it out, or train every token with --mask none")
