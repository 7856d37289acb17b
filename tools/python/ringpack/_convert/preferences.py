# SPDX-License-Identifier: Apache-2.0
"""Pairs of a chosen and a rejected answer for `ringpack convert`: two neighbouring documents, of
which the answers are trained. Ids and masks equal the ones of TRL's DPOTrainer and RewardTrainer;
docs/pairs.md describes them."""

from .chats import check_mask, common_prefix, first_line
from .columns import BESIDE_CHATS, Messages, Refused

PAIR_MASK = "preference_mask"
KEYS = ("chosen", "rejected")


def are_preferences(request, table, name):
    """Whether the rows of a table are pairs."""
    return name == "chosen" and not request["column"] and isinstance(table.columns[name], list)


def lines_of_pairs(table):
    """(row, place, line) of each row, as chats.lines_of, but for rows without any answer."""
    chosen, rejected = (table.column(key) for key in KEYS)
    if isinstance(chosen, Messages) != isinstance(rejected, Messages):
        raise Refused("format", f"{table.path}: `chosen` and `rejected`: expected both text or "
                                "both lists of messages, found one of each", "give --column NAME")
    check_mask(table.request, "chosen", PAIR_MASK)
    more = ("prompt", *BESIDE_CHATS)
    beside = {key: table.columns[key] for key in more
              if isinstance(table.columns.get(key), list)}
    for row, answers in enumerate(zip(chosen, rejected)):
        if any(answers):
            line = dict(zip(KEYS, answers))
            line |= {key: column[row] for key, column in beside.items() if column[row]}
            yield row, f"{table.path}: row {table.first_row + row}", line


def split(place, line):
    """The prompt of a pair, and its answers. Without a prompt of their kind it is their common
    beginning, less a space before the answers; each answer keeps a character, or a message."""
    chosen, rejected, prompt = line["chosen"], line["rejected"], line.get("prompt")
    if not prompt or isinstance(prompt, str) != isinstance(chosen, str):
        least = min(len(chosen or ""), len(rejected or ""))
        end = next((i for i in range(least) if chosen[i] != rejected[i]), None)
        if end is None:
            end = max(least - 1, 0)
        elif end and chosen[end - 1] == " ":
            end -= 1
        prompt, chosen, rejected = (chosen or "")[:end], chosen[end:], rejected[end:]
    for key, answer in zip(KEYS, (chosen, rejected)):
        if not answer:
            raise Refused("format", f"{place}: `{key}`: expected an answer, found none",
                          "mend or remove it, or leave it out with --skip-bad", of_row=True)
    return prompt, chosen, rejected


def with_runs(prompt, wholes):
    """The documents of a pair: the answers of both begin where one of them leaves the prompt."""
    begin = min(common_prefix(prompt, whole) for whole in wholes)
    return [(whole, [(begin, len(whole))] if begin < len(whole) else []) for whole in wholes]


def of_texts(tokenizer, parts):
    prompts = tokenizer.encode([prompt for prompt, *_ in parts], counts=False)
    wholes = tokenizer.encode([prompt + answer for prompt, *answers in parts for answer in answers])
    return [document for i, prompt in enumerate(prompts)
            for document in with_runs(prompt, wholes[2 * i : 2 * i + 2])]


def of_messages(chats, place, line):
    try:
        line = chats.take(line)
        prompt, *answers = split(place, line)
        before = chats.encode(prompt, line, add_generation_prompt=True)
        return with_runs(before, [chats.encode(prompt + answer, line) for answer in answers])
    except Refused:
        raise
    except Exception as error:  # a template may raise anything
        raise Refused("format", f"{place}: cannot be made a chat: {first_line(error)}",
                      "mend or remove the line, or mend the template", of_row=True) from None


def made_of_pairs(tokenizer, are_texts, lines, skip):
    """(documents, number of skipped lines). skip: takes the refusal of a line; None: refuse it."""
    made, bad = [], 0
    for place, line in lines:
        try:
            made.append(split(place, line) if are_texts
                        else of_messages(tokenizer.chats(), place, line))
        except Refused as refused:
            if skip is None or not refused.of_row:
                raise
            skip(refused)
            bad += 1
    if are_texts:
        return of_texts(tokenizer, made), bad
    return [document for pair in made for document in pair], bad
