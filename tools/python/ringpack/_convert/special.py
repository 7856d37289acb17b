# SPDX-License-Identifier: Apache-2.0
"""Special tokens in texts, for `ringpack convert`: by default a text that has the name of one, for
instance <|endoftext|>, is text as any other. In a chat, names written by the template are tokens.

A chat is rendered while each such name in its own strings stands as one private-use character, and
then the names that are left are the template's. They are encoded as added tokens that no text can
have, by a copy of the tokenizer that does not know the names.
"""

import json
import re

from .columns import Refused

HIDDEN, WRITTEN = 0xF0000, 0x100000  # private-use planes: of a name in a chat, of the template's
PRIVATE = re.compile("[\U000f0000-\U0010ffff]")
LEAST = 2  # characters of a name: texts without them have no name


def is_supported(tokenizer):
    return hasattr(tokenizer, "encode_special_tokens")


def need_support(tokenizer):
    if not is_supported(tokenizer):
        raise Refused("resource", "the Python package `tokenizers` makes tokens of the names of "
                                  "special tokens in texts",
                      "`pip install -U tokenizers` (0.19 or later), or give --special-tokens")


class Specials:
    """The special tokens of a tokenizer by name, and where texts have these names."""

    def __init__(self, tokens):
        self.names = sorted(tokens, key=lambda name: (-len(name), name))
        self.ids = [tokens[name] for name in self.names]
        self.places = {name: i for i, name in enumerate(self.names)}
        self.all = pattern_of(self.names)
        groups = {}
        for name in self.names:
            groups.setdefault(name[:LEAST], []).append(name)
        self.groups = [(begin, pattern_of(names)) for begin, names in groups.items()]

    def count(self, texts):
        """How often the names stand in texts; most texts lack even the beginnings of them."""
        return sum(len(names.findall(text)) for text in texts for begin, names in self.groups
                   if begin in text)

    def hide(self, value):
        """The value with a private-use character in the place of each name, and their number."""
        found, private = 0, False

        def within(value):
            nonlocal found, private
            if isinstance(value, dict):
                return {within(key): within(item) for key, item in value.items()}
            if isinstance(value, list):
                return [within(item) for item in value]
            if not isinstance(value, str):
                return value
            private = private or PRIVATE.search(value) is not None
            if not self.count([value]):
                return value
            value, count = self.all.subn(self.stand_in, value)
            found += count
            return value

        value = within(value)
        if found and private:
            raise ValueError("it has names of special tokens next to characters from U+F0000 on")
        return value, found

    def stand_in(self, match):
        return chr(HIDDEN + self.places[match.group()])


def pattern_of(names):
    return re.compile("|".join(map(re.escape, names)) or "(?!)")


def special_tokens(tokenizer, *others):
    """Ids of the special tokens by name, and of other added tokens that are to be as these."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: number for number, token in added.items()
            if token.special or token.content in others}


def with_special(tokenizer, names):
    """A tokenizer with these added tokens as further special ones."""
    fields = json.loads(tokenizer.to_str())
    found = [token for token in fields.get("added_tokens", [])
             if token["content"] in names and not token["special"]]
    for token in found:
        token["special"] = True
    return type(tokenizer).from_str(json.dumps(fields)) if found else tokenizer


class Rendered:
    """Encodes rendered chats with hidden names."""

    def __init__(self, tokenizer, specials):
        need_support(tokenizer)
        from tokenizers import AddedToken

        self.specials = specials
        self.own = type(tokenizer).from_str(tokenizer.to_str())
        self.own.no_truncation()
        self.own.no_padding()
        added = tokenizer.get_added_tokens_decoder()
        self.own.add_tokens([
            AddedToken(chr(WRITTEN + i), normalized=False, special=False,
                       lstrip=added[number].lstrip, rstrip=added[number].rstrip,
                       single_word=added[number].single_word)
            for i, number in enumerate(specials.ids)
        ])
        self.own.encode_special_tokens = True
        self.real = {self.own.token_to_id(chr(WRITTEN + i)): number
                     for i, number in enumerate(specials.ids)}

    def encode(self, text, spans=()):
        """Ids of a text, and flags of the ids in these spans of its characters."""
        if "\\udb80" in text.lower():
            raise ValueError("its chat template escapes characters, so special tokens in messages "
                             "cannot be told from its own; --special-tokens makes tokens of them")
        pieces, moved, at, grown = [], [], 0, 0
        hidden = "[%c-%c]" % (HIDDEN, HIDDEN + max(len(self.specials.names) - 1, 0))
        for match in re.finditer(f"{self.specials.all.pattern}|{hidden}", text):
            found = match.group()
            place = self.specials.places.get(found)
            stands = self.specials.names[ord(found) - HIDDEN] if place is None else (
                chr(WRITTEN + place))
            pieces += [text[at : match.start()], stands]
            at = match.end()
            grown += len(stands) - len(found)
            moved.append((at, grown))
        made = self.own.encode("".join((*pieces, text[at:])), add_special_tokens=False)
        ids = [self.real.get(number, number) for number in made.ids]
        flags = [0] * len(ids)
        for begin, end in spans:
            begin, end = (place + shift_at(moved, place) for place in (begin, end))
            inside = [made.char_to_token(place) for place in range(begin, end)]
            inside = [token for token in inside if token is not None]  # some spaces
            if inside:
                flags[inside[0] : inside[-1] + 1] = [1] * (inside[-1] + 1 - inside[0])
        return ids, flags


def shift_at(moved, place):
    """The distance by which a place after the rewritten names moves."""
    shift = 0
    for end, grown in moved:
        if end > place:
            break
        shift = grown
    return shift
