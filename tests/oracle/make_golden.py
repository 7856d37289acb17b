#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the golden vectors of stream version 1 into tests/golden/stream-v1, from the oracle.

Each file holds a spec and the oracle's result: the first rows, the number of rows, the state token
(of version 1) at a few rows, and counts and digest after `end` rows (the whole stream, unless it is
endless). Next to the folder, contract-v1.json has their stream contracts, and token-v3.json plan
digests at the same rows and one token of version 3. Files of a released version never change: a new
stream version gets a new folder, a new token version a new file.
"""

import json
import os

from oracle import make_spec
from state import identity, row_digest, save_token, stream_contract
from stream import Plan, count_rows, philox4x32

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "stream-v1")
TOKENS = os.path.join(FOLDER, "..", "token-v3.json")
CONTRACTS = os.path.join(FOLDER, "..", "contract-v1.json")
ENDLESS_END = 150
FIRST_ROWS = 24

# Each line is one file; together every value of every parameter, and every branch of the oracle.
# W is the window, E num_epochs; sources are (documents, weight, kind of lengths).
COLUMNS = "name packing fill long_doc shuffle lanes L W D E sources"
ONE = [(120, 1, "mixed")]
TWO = [(90, 3, "mixed"), (61, 1, "short")]
THREE = [(70, 5, "short"), (40, 1, "mixed"), (33, 4000000000, "long")]
TINY = [(20, 1, "tiny")]
STEEP = [(300, 1, "steep")]
FEW = [(2, 2, "mixed"), (1, 1, "short"), (3, 2, "mixed")]
PAIR_48 = [(52, 1, "scripted")]
PAIR_49 = [(53, 1, "scripted")]
FULL = [(300, 1, "full")]
CASES = [
    ("lookahead-pad", "lookahead", "pad", "split", "document", 1, 64, 8, 64, 1, ONE),
    ("lookahead-split-lanes", "lookahead", "split", "split", "block", 3, 64, 8, 64, 2, THREE),
    ("lookahead-none", "lookahead", "pad", "truncate", "none", 3, 100, 5, 100, 1, TWO),
    ("lookahead-endless", "lookahead", "split", "drop", "document", 1, 64, 16, 64, 0, TWO),
    ("lookahead-window-1", "lookahead", "split", "truncate", "block", 1, 32, 1, 32, 1, ONE),
    ("lookahead-max-docs", "lookahead", "split", "drop", "document", 3, 64, 12, 3, 3, THREE),
    ("lookahead-pairs", "lookahead", "pad", "split", "block", 1, 190, 192, 190, 2, STEEP),
    ("lookahead-pair-48", "lookahead", "pad", "split", "none", 1, 190, 60, 190, 1, PAIR_48),
    ("lookahead-pair-49", "lookahead", "pad", "split", "none", 1, 190, 60, 190, 1, PAIR_49),
    ("lookahead-no-pairs", "lookahead", "pad", "split", "none", 1, 190, 192, 2, 1, STEEP),
    ("lookahead-few", "lookahead", "split", "split", "document", 1, 16, 8, 16, 5, FEW),
    ("lookahead-one-token", "lookahead", "pad", "split", "document", 1, 1, 4, 1, 1, TINY),
    ("concat", "concat", "split", "split", "document", 1, 64, 0, 64, 1, ONE),
    ("concat-max-docs", "concat", "pad", "truncate", "block", 3, 64, 0, 2, 2, THREE),
    ("concat-endless", "concat", "split", "split", "block", 3, 50, 0, 50, 0, TWO),
    ("concat-none-drop", "concat", "pad", "drop", "none", 1, 64, 0, 64, 2, TWO),
    ("best-fit-pad", "best_fit", "pad", "split", "document", 1, 64, 8, 64, 1, ONE),
    ("best-fit-split-lanes", "best_fit", "split", "split", "block", 3, 64, 4, 64, 2, THREE),
    ("best-fit-none", "best_fit", "pad", "truncate", "none", 3, 100, 5, 100, 1, TWO),
    ("best-fit-endless", "best_fit", "split", "drop", "document", 1, 64, 16, 64, 0, TWO),
    ("best-fit-window-1", "best_fit", "split", "truncate", "block", 1, 32, 1, 32, 1, ONE),
    ("best-fit-max-docs", "best_fit", "pad", "drop", "document", 3, 64, 12, 3, 3, THREE),
    ("best-fit-one-document", "best_fit", "split", "split", "block", 1, 64, 4, 1, 2, THREE),
    ("best-fit-old-rows", "best_fit", "split", "split", "document", 1, 40, 2, 40, 2, FULL),
]


def draw(case, source, document, purpose, below):
    """A number below `below` that no library's release can change."""
    return philox4x32((case, source), (document, purpose, 0, 0))[0] % below


def make_length(kind, case, source, document, L):
    def draw_here(purpose, below):
        return draw(case, source, document, purpose, below)

    if kind == "scripted":  # the pair 50 + 50 comes after documents - 5 longer candidates
        return (90, 98, 3, 50, 50)[document] if document < 5 else 90
    if draw_here(0, 9) == 0:
        return 0
    if kind == "tiny":
        return draw_here(1, 4)
    if kind == "short":
        return 1 + draw_here(1, max(1, L // 3))
    if kind == "long":
        return 1 + draw_here(1, 4 * L)
    if kind == "steep":  # more long pieces than the pair search tries, and none of them fits well
        return (90, 90, 90, 90, 98, 98, 98, 98, 50, 3)[draw_here(1, 10)]
    if kind == "full":  # rows that are opened and then find no piece that fits
        return L if draw_here(1, 20) else L - draw_here(2, L // 2)
    return 1 + draw_here(2, L if draw_here(1, 6) else 3 * L)


def make_inputs(number, case):
    inputs = {
        # Half of the seeds need all 64 bits.
        "seed": "0x%016x" % (0x9E3779B97F4A7C15 * (number + 1) % 2 ** (64 if number % 2 else 40)),
        "seq_len": case["L"],
        "shuffle": case["shuffle"],
        "packing": case["packing"],
        "window": case["W"],
        "fill": case["fill"],
        "long_doc": case["long_doc"],
        "max_docs_per_row": case["D"],
        "lanes": case["lanes"],
        "num_epochs": case["E"],
    }
    if case["shuffle"] == "block":
        inputs["block_documents"], inputs["window_blocks"] = 4 + number % 3, 1 + number % 4
    inputs["corpus_sampled"] = "%032x" % (0x0123456789ABCDEF0011223344556677 + number)
    inputs["corpus_full"] = "%032x" % ((number % 2) * (0xFEDCBA98765432100000000000000001 + number))
    inputs["sources"] = [
        {
            "weight": weight,
            "lengths": [make_length(kind, number, j, d, case["L"]) for d in range(documents)],
        }
        for j, (documents, weight, kind) in enumerate(case["sources"])
    ]
    return inputs


def places(spec):
    """The number of rows, the end of a vector, and the rows of its states."""
    N = count_rows(Plan(spec))
    end = ENDLESS_END if N is None else N
    return N, end, sorted({min(7, end), end // 2, end})


def make_digests(spec):
    """Plan digests at the rows of the states, and the token of the one in the middle."""
    _, end, state_rows = places(spec)
    plan, made = Plan(spec), {"digests": {}}
    while True:
        if plan.next_row in state_rows:
            low, high = plan.digest
            made["digests"][str(plan.next_row)] = "%016x%016x" % (high, low)
        if plan.next_row == end // 2:
            made.update(row=end // 2, token=save_token(plan).hex())
        if plan.next_row == end:
            return made
        plan.row()


def make_golden(inputs):
    spec = make_spec(inputs)
    N, end, state_rows = places(spec)
    plan, rows, states, digest = Plan(spec), [], [], 0
    plan.digest = None  # version 1 of the token is without it
    while True:
        if plan.next_row in state_rows:
            states.append({"row": plan.next_row, "token": save_token(plan).hex()})
        if plan.next_row == end:
            break
        g, row = plan.next_row, plan.row()
        digest = (digest + row_digest(spec, g, row)) % 2**128
        if g < FIRST_ROWS:
            rows.append([list(fragment) for fragment in row])
    return {
        "stream_version": 1,
        "spec": inputs,
        "N": N,
        "end": end,
        "rows": rows,
        "counts": plan.counts(),
        "digest": "%032x" % digest,
        "states": states,
    }


def as_text(value, indent=""):
    """JSON with a row, or a source's lengths, on one line."""
    inner = indent + " "
    if isinstance(value, dict):
        lines = [json.dumps(key) + ": " + as_text(value[key], inner) for key in value]
        return "{\n" + inner + (",\n" + inner).join(lines) + "\n" + indent + "}"
    if isinstance(value, list) and value and not isinstance(value[0], int):
        if isinstance(value[0], dict) or indent == " ":
            lines = [as_text(item, inner) for item in value]
            return "[\n" + inner + (",\n" + inner).join(lines) + "\n" + indent + "]"
    return json.dumps(value, separators=(",", ":"))


def golden_files():
    """Name and text of every golden file."""
    for number, line in enumerate(CASES):
        case = dict(zip(COLUMNS.split(), line))
        yield case["name"] + ".json", as_text(make_golden(make_inputs(number, case))) + "\n"


def contract_file():
    """The records and identities of the specs of all golden files."""
    contracts = {}
    for number, line in enumerate(CASES):
        case = dict(zip(COLUMNS.split(), line))
        spec = make_spec(make_inputs(number, case))
        contracts[case["name"]] = {"record": stream_contract(spec), "identity": identity(spec)}
    return json.dumps(contracts, indent=1) + "\n"


def token_file():
    """Plan digests, and tokens that have them."""
    cases = [dict(zip(COLUMNS.split(), line)) for line in CASES]
    made = {
        case["name"]: make_digests(make_spec(make_inputs(number, case)))
        for number, case in enumerate(cases)
    }
    return json.dumps(made, indent=1) + "\n"


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for name, text in golden_files():
        with open(os.path.join(FOLDER, name), "w") as file:
            file.write(text)
        print(name, len(text))
    with open(TOKENS, "w") as file:
        file.write(token_file())
    with open(CONTRACTS, "w") as file:
        file.write(contract_file())


if __name__ == "__main__":
    main()
