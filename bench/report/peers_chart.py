# SPDX-License-Identifier: Apache-2.0
"""The chart of the peers: tokens a second by classes, time to resume by position, and how full the
rows are. Each class has a heading, its own bar of ringpack, and the ratio to its best member.
"""

import math

from chart import (INK, LOOP, OURS, RULE, SOFT, WIDTH, documents_text, line, number, svg, text,
                   time_text)

LEFT, RIGHT = 220, 150
BAR, GAP, HEADING = 18, 7, 30
CLASSES = ["own packer", "packer written around it", "windows"]
HEADINGS = {
    "own packer": "What the library itself packs",
    "packer written around it": "The best packer that was written around the library, in numpy",
    "windows": "No packing: windows of a corpus that was concatenated before (a lighter task)",
}


def ratio_text(ratio):
    """A ratio with its interval, if the rounds suffice for one."""
    ends = ratio["interval"] and " to ".join(number(end) for end in ratio["interval"])
    return f"{number(ratio['median'])} ×" + (f" ({ends})" if ends else "")


def label_of(entry):
    count = entry["workers"]
    return entry["name"] + (f", {count} worker{'s' if count > 1 else ''}" if count else "")


def speed_rows(result, kind):
    """Entries of the class, ringpack's first, then the fastest first."""
    found = [e for e in result["speed"] if e["corpus"] == "lognormal" and e["kind"] == kind]
    return sorted(found, key=lambda e: (not e.get("ours"), -e["tokens_per_second"]["median"]))


def remark_of(entry):
    return "cuts documents" if "cut at row ends" in entry["delivers"] else ""


def draw_speed(result, top):
    values = [e["tokens_per_second"]["median"] / 1e6 for e in result["speed"]] or [1]
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    scale = (WIDTH - LEFT - RIGHT) / max(last - first, 1)
    parts, y = [], top
    for kind in CLASSES:
        rows = speed_rows(result, kind)
        ratio = next((r for r in result["ratios"]
                      if (r["corpus"], r["kind"]) == ("lognormal", kind)), None)
        said = f"ringpack / the best of them: {ratio_text(ratio)}" if ratio else "nobody measured"
        parts.append(text(24, y + 14, HEADINGS[kind], 13, INK, weight=600))
        parts.append(text(WIDTH - 24, y + 14, said, 12, SOFT, "end"))
        y += HEADING
        for entry in rows:
            parts += bar_of(entry, y, first, scale)
            y += BAR + GAP
        y += 12
    axis = []
    for power in range(first, last + 1):
        x = LEFT + (power - first) * scale
        axis.append(text(x, y + 10, f"{10 ** power:,g}", 11.5, SOFT, "middle"))
    axis.append(text(WIDTH - 24, y + 10, "Mtok/s", 11.5, SOFT, "end"))
    return parts + axis, y + 32


def bar_of(entry, y, first, scale):
    ours = entry.get("ours")
    value, weight = entry["tokens_per_second"]["median"] / 1e6, 600 if ours else 400
    width = (math.log10(value) - first) * scale
    remark = remark_of(entry)
    said = f"{number(value)}{'  ' + remark if remark else ''}"
    return [
        text(LEFT - 12, y + 13.5, entry["name"] if ours else label_of(entry), 12.5, INK, "end",
             weight),
        f'<rect x="{LEFT}" y="{y}" width="{max(width, 1):.1f}" height="{BAR}" rx="2" '
        f'fill="{OURS if ours else LOOP}"/>',
        text(LEFT + max(width, 1) + 8, y + 13.5, said, 12, INK, weight=weight)]


def draw_resume(result, top, height):
    """Process start to first batch; a peer that took too long ends above the last line."""
    found = [e for e in result["resume"] if e["process_ms"]]
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
    fills = result["fills"]["lognormal"]
    rows = [(f"ringpack {name}", fill, OURS) for name, fill in fills.items()]
    return rows + [(e["name"], e["fill"], LOOP) for e in result["speed"]
                   if e["corpus"] == "lognormal" and e["packs"]
                   and not e.get("ours")]


def draw_fill(result, top):
    """By the loss, because the rest looks alike: padding, on a logarithmic axis."""
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
             text(24, 62, "Real tokens a second that reach a Python loop; logarithmic axis. With "
                  "workers where that is faster. Classes are not to be compared.", 12.5, SOFT)]
    speed, y = draw_speed(result, 84)
    parts += speed
    if result["resume"]:
        parts.append(text(24, y + 22, "From the start of the process to the first batch of a "
                          "resumed run", 16, weight=650))
        parts.append(text(24, y + 42, "By rows of 512 tokens that lie behind; logarithmic axis. "
                          "Who took more than a minute has no point.", 12.5, SOFT))
        resume, y = draw_resume(result, y + 64, 220)
        parts += resume
    parts.append(text(24, y + 22, "Padding in the rows", 16, weight=650))
    parts.append(text(24, y + 42, "An epoch; logarithmic axis; shorter is better.", 12.5, SOFT))
    fill, y = draw_fill(result, y + 64)
    return svg([*parts, *fill, text(24, y + 12, footer, 11, SOFT)], y + 30)
