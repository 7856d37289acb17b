# SPDX-License-Identifier: Apache-2.0
"""The peers of a result, as a table for people and as a chart of three parts: tokens a second
beside limits, time to resume by position, and how full rows are.
"""

import math

from chart import (BOUND, INK, LOOP, OURS, RULE, SOFT, WIDTH, documents_text, line, number, svg,
                   text, time_text)

LEFT, RIGHT = 220, 150
BAR, GAP = 18, 7


def remark_of(entry):
    """What a peer does less than pack whole documents."""
    if entry["delivers"].startswith("no packing"):
        return "no packing"
    return "" if entry["delivers"].startswith("whole") else "cuts documents"


def print_peers(peers):
    print(f"\n{'the same corpus through others':22s}{'Mtok/s':>12s}{'fill':>9s}   workers 0/1/2")
    for entry in peers["speed"]:
        tried = " / ".join(number(rate / 1e6) for rate in entry["by_workers"].values())
        print(f"  {entry['corpus']:10s}{entry['name']:18s}"
              f"{number(entry['tokens_per_second']['median'] / 1e6):>12s}"
              f"{100 * entry['fill']:8.2f} %  {tried}  {remark_of(entry)}"
              f"{'' if entry['resumes_exactly'] else '  DOES NOT RESUME EXACTLY'}")
    for name, ratio in peers["ratios"].items():
        print(f"  ringpack / best of the others ({name}): {number(ratio)}")
    print(f"\n{'first batch after a resume':28s}{'rows behind':>14s}{'process':>12s}{'load':>12s}")
    for entry in peers["resume"]:
        cells = (f"{'> ' + time_text(entry['more_than_ms']):>12s}" if "more_than_ms" in entry else
                 "".join(f"{time_text(entry[key]['median']):>12s}"
                         for key in ("process_ms", "load_ms")))
        print(f"  {entry['name']:26s}{entry['rows']:14,d}{cells}")


def label_of(entry):
    count = entry["workers"]
    return entry["name"] + (f", {count} worker{'s' if count > 1 else ''}" if count else "")


def speed_rows(result):
    """(label, median, colour, remark), fastest of each group first."""
    rows = [(label, result["metrics"][name]["median"], BOUND, "") for label, name in
            (("memcpy of the corpus", "memcpy"), ("plain C loop, min", "loop_min"))
            if name in result["metrics"]]
    if "hot_min" in result["metrics"]:
        rows.append(("ringpack min, C trainer", result["metrics"]["hot_min"]["median"], OURS, ""))
    found = [e for e in result["peers"]["speed"] if e["corpus"] == "lognormal"]
    found.sort(key=lambda e: -e["tokens_per_second"]["median"])
    for ours in True, False:
        for entry in (e for e in found if e["name"].startswith("ringpack") == ours):
            label = entry["name"] + ", Python" if ours else label_of(entry)
            rows.append((label, entry["tokens_per_second"]["median"], OURS if ours else LOOP,
                         remark_of(entry)))
    return rows


def draw_speed(result, top):
    rows = speed_rows(result)
    values = [value / 1e6 for _, value, _, _ in rows]
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    scale = (WIDTH - LEFT - RIGHT) / (last - first)
    parts, y = [], top
    bottom = top + len(rows) * (BAR + GAP)
    for power in range(first, last + 1):
        x = LEFT + (power - first) * scale
        parts.append(line(x, top - 6, x, bottom, RULE))
        parts.append(text(x, bottom + 16, f"{10 ** power:,g}", 11.5, SOFT, "middle"))
    parts.append(text(WIDTH - 24, bottom + 16, "Mtok/s", 11.5, SOFT, "end"))
    for label, value, colour, remark in rows:
        width = (math.log10(value / 1e6) - first) * scale
        weight = 600 if colour == OURS else 400
        parts.append(text(LEFT - 12, y + 13.5, label, 12.5, INK, "end", weight))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" '
                     f'fill="{colour}"/>')
        said = f"{number(value / 1e6)}{'  ' + remark if remark else ''}"
        parts.append(text(LEFT + width + 8, y + 13.5, said, 12, INK, weight=weight))
        y += BAR + GAP
    return parts, bottom + 34


def draw_resume(result, top, height):
    """Process start to first batch; a peer that took too long ends above the last line."""
    found = [e for e in result["peers"]["resume"] if e["process_ms"]]
    names = dict.fromkeys(e["name"] for e in found)
    rows = sorted({e["rows"] for e in found})
    medians = [e["process_ms"]["median"] for e in found]
    first, last = math.floor(math.log10(min(medians))), math.ceil(math.log10(max(medians)))
    bottom = top + height
    across = (WIDTH - LEFT - RIGHT) / max(len(rows) - 1, 1)

    def place(ms):
        return bottom - height * (math.log10(ms) - first) / max(last - first, 1)

    parts, ends = [], []
    for power in range(first, last + 1):
        parts.append(line(LEFT, place(10**power), WIDTH - RIGHT, place(10**power), RULE))
        parts.append(text(LEFT - 12, place(10**power) + 4, time_text(10**power), 11.5, SOFT, "end"))
    for i, count in enumerate(rows):
        parts.append(text(LEFT + i * across, bottom + 18, documents_text(count), 11.5, SOFT,
                          "middle"))
    for name in names:
        points = [(LEFT + rows.index(e["rows"]) * across, place(e["process_ms"]["median"]))
                  for e in found if e["name"] == name]
        colour = OURS if name.startswith("ringpack") else LOOP
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        ends.append([points[-1][1], points[-1][0], name, colour])
    free = 0.0
    for y, x, name, colour in sorted(ends):  # no two labels on one another
        free = max(y, free + 13)
        parts.append(text(x + 10, free + 4, name, 11.5, INK, weight=600 if colour == OURS else 400))
    return parts, bottom + 34


def fill_rows(result):
    fills = result["peers"]["fills"]["lognormal"]
    rows = [(f"ringpack {name}", fill, OURS) for name, fill in fills.items()]
    return rows + [(e["name"], e["fill"], LOOP) for e in result["peers"]["speed"]
                   if e["corpus"] == "lognormal" and e["packs"]
                   and not e["name"].startswith("ringpack")]


def draw_fill(result, top):
    """By what is lost, because the rest looks alike: padding, on a logarithmic axis."""
    rows = [(label, max(1 - fill, 1e-5), colour) for label, fill, colour in fill_rows(result)]
    first, last = -5, math.ceil(math.log10(max(loss for _, loss, _ in rows)))
    scale = (WIDTH - LEFT - RIGHT) / (last - first)
    parts, y = [], top
    bottom = top + len(rows) * (BAR + GAP)
    for power in range(first, last + 1):
        x = LEFT + (power - first) * scale
        parts.append(line(x, top - 6, x, bottom, RULE))
        parts.append(text(x, bottom + 16, f"{100 * 10.0 ** power:g} %", 11.5, SOFT, "middle"))
    for label, loss, colour in rows:
        weight = 600 if colour == OURS else 400
        width = (math.log10(loss) - first) * scale
        parts.append(text(LEFT - 12, y + 13.5, label, 12.5, INK, "end", weight))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{max(width, 1):.1f}" height="{BAR}" rx="2" '
                     f'fill="{colour}"/>')
        parts.append(text(LEFT + width + 8, y + 13.5, f"{100 * (1 - loss):.3f} % full", 12, INK,
                          weight=weight))
        y += BAR + GAP
    return parts, bottom + 34


def draw_peers(result, footer):
    parts = [text(24, 38, "The same corpus through ringpack and through others", 20, weight=650),
             text(24, 62, "Real tokens a second that reach a Python loop (C where it says so); "
                  "logarithmic axis. With workers where that is faster.", 12.5, SOFT)]
    speed, y = draw_speed(result, 88)
    parts += speed
    parts.append(text(24, y + 22, "From the start of the process to the first batch of a resumed "
                      "run", 16, weight=650))
    parts.append(text(24, y + 42, "By rows of 512 tokens that lie behind; logarithmic axis. Who "
                      "took more than a minute has no point.", 12.5, SOFT))
    resume, y = draw_resume(result, y + 64, 220)
    parts += resume
    parts.append(text(24, y + 22, "Padding in the rows", 16, weight=650))
    parts.append(text(24, y + 42, "An epoch; logarithmic axis; shorter is better.", 12.5, SOFT))
    fill, y = draw_fill(result, y + 64)
    parts += fill
    parts.append(text(24, y + 12, footer, 11, SOFT))
    return svg(parts, y + 30)
