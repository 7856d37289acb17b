# SPDX-License-Identifier: Apache-2.0
"""The chart of the first mix of steps.py, and the tables of bench/findings/steps.md."""

import json
from pathlib import Path

from chart import INK, LOOP, OURS, RULE, SOFT, WIDTH, line, number, svg, text
from documents import write_between

SOURCE = Path(__file__).resolve().parent.parent.parent
LEFT, RIGHT, BAR, GAP = 220, 90, 18, 7
SHOWN = ["as planned", "next-fit", "sorted", "partitioned", "queues", "dealt, window 1",
         "dealt, window 8"]
LABELS = {"as planned": "rows as planned", "next-fit": "next-fit in order",
          "sorted": "sorted by length", "partitioned": "Karmarkar-Karp of a step",
          "queues": "queues for long documents", "dealt, window 1": "ringpack, dealt in a step",
          "dealt, window 8": "ringpack, over 8 steps"}
COLUMNS = [("step", "step", 4), ("micro_step", "micro-step", 4), ("pipeline", "1F1B", 3),
           ("interleaved", "interleaved", 3),
           ("step_cost_spread", "cost of steps differs", 1),
           ("long_share_deviation", "share of long documents differs", 3),
           ("tokens_of_largest", "largest micro-batch, rows", 2)]


def draw(found):
    shape, methods = found["shapes"][0], found["shapes"][0]["methods"]
    parts = [text(24, 30, "Time of a step whose ranks wait for each other at each micro-batch",
                  16, INK, weight=600),
             text(24, 50, f"1 is perfect balance. {shape['label']}; cost l * ({shape['k']:,} + l) "
                  "as on an H100", 12, SOFT)]
    rows = [(name, methods[name]["micro_step"]) for name in SHOWN if name in methods]
    scale = (WIDTH - LEFT - RIGHT) / max(value for _, value in rows)
    top, bottom = 68, 68 + len(rows) * (BAR + GAP)
    for i, (name, value) in enumerate(rows):
        y, is_ours = top + i * (BAR + GAP), name.startswith("dealt")
        weight = 600 if is_ours else 400
        parts += [text(LEFT - 12, y + 13.5, LABELS[name], 12.5, INK, "end", weight),
                  f'<rect x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="{BAR}" rx="2" '
                  f'fill="{OURS if is_ours else LOOP}"/>',
                  text(LEFT + value * scale + 8, y + 13.5, number(value), 12, INK, weight=weight)]
    parts.append(line(LEFT + scale, top - 6, LEFT + scale, bottom, RULE))
    parts.append(text(24, bottom + 18, "build/venv/bin/python bench/steps.py --docs", 11.5, SOFT))
    return svg(parts, bottom + 34)


def cell(value, key, digits):
    if value is None:
        return "–"
    return f"{value:.1%}" if key == "step_cost_spread" else f"{value:.{digits}f}"


def table(found):
    lines = []
    for shape in found["shapes"]:
        lines += [f"{shape['label']}, {shape['steps']} steps:\n",
                  "| | " + " | ".join(head for _, head, _ in COLUMNS) + " |",
                  "|---|" + "---:|" * len(COLUMNS)]
        for name, own in shape["methods"].items():
            cells = " | ".join(cell(own[key], key, digits) for key, _, digits in COLUMNS)
            lines.append(f"| {name} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def write_documents(found):
    (SOURCE / "bench/results/steps.json").write_text(json.dumps(found, indent=1) + "\n")
    (SOURCE / "bench/results/steps.svg").write_text(draw(found))
    write_between(SOURCE / "bench/findings/steps.md", "steps", table(found))
