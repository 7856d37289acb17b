# SPDX-License-Identifier: Apache-2.0
"""Drawings of the site as SVG that takes its colours from the page around it: boxes, arrows, text.

A drawing is inline in its page, so that text follows the colour scheme, and is found by the search.
"""

from html import escape

TINTS = {"plan": "#5c9fd6", "io": "#e0a458", "memory": "#57b894", "dead": "#d16b6b", "none": "none"}


class Drawing:
    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def box(self, x, y, width, height, text, tint="none", dashed=False):
        """A box with lines of text in its middle."""
        fill = "none" if tint == "none" else TINTS[tint]
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" '
            f'fill-opacity="0.28" stroke="currentColor" stroke-opacity="0.6"{dash}/>'
        )
        lines = text.split("\n")
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 17 * number, line)

    def text(self, x, y, text, anchor="middle", small=False):
        size = 12 if small else 14
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="currentColor">{escape(text)}</text>'
        )

    def arrow(self, x1, y1, x2, y2, text="", dashed=False):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="currentColor" '
            f'stroke-width="1.5" marker-end="url(#arrow)"{dash}/>'
        )
        if text:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 6, text, small=True)

    def svg(self):
        marker = (
            '<defs><marker id="arrow" markerWidth="9" markerHeight="9" refX="8" refY="4" '
            'orient="auto"><path d="M0,0 L9,4 L0,8 z" fill="currentColor"/></marker></defs>'
        )
        return (
            f'<svg class="drawing" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.title)}" font-family="inherit">'
            f"{marker}{''.join(self.parts)}</svg>"
        )


def plan_globally():
    made = Drawing(760, 300, "Every node plans the whole stream and reads its own rows")
    made.box(20, 20, 150, 60, "lengths of all\ndocuments, seed", "plan")
    made.text(95, 100, "the same on every node", small=True)
    for number, (y, rows) in enumerate(((20, "rows 0 1 2 3"), (170, "rows 4 5 6 7"))):
        made.box(250, y, 150, 60, "plan\nrow 0, 1, 2, …", "plan")
        made.arrow(170, 50, 248, y + 30)
        made.box(480, y, 120, 60, f"read, pack\n{rows}", "io")
        made.arrow(400, y + 30, 478, y + 30, "own rows")
        made.box(650, y, 95, 60, "trainers", "memory")
        made.arrow(600, y + 30, 648, y + 30)
        made.text(325, y + 80, f"node {number}", small=True)
        made.box(480, y + 75, 120, 34, "tokens on disk", "none")
        made.arrow(540, y + 75, 540, y + 62)
    return made


def documents_way():
    made = Drawing(860, 170, "The way of a document's tokens")
    steps = [
        ("corpus", "files, objects", "none"), ("plan", "which rows", "plan"),
        ("io", "io_uring", "io"), ("prefetch ring", "as read", "memory"),
        ("pack", "one copy", "io"), ("batch ring", "shared memory", "memory"),
        ("trainer", "reads in place", "none"),
    ]
    for number, (name, below, tint) in enumerate(steps):
        x = 10 + 122 * number
        made.box(x, 40, 104, 56, name, tint)
        made.text(x + 52, 120, below, small=True)
        if number:
            made.arrow(x - 18, 68, x - 1, 68)
    made.text(430, 155, "a token is copied once; the trainer copies nothing", small=True)
    return made


def kill_and_resume():
    made = Drawing(820, 270, "A kill and a resume")
    made.text(60, 40, "delivered", "end", small=True)
    for row in range(12):
        made.box(70 + 58 * row, 20, 52, 34, f"{row}", "memory" if row < 8 else "none", row >= 8)
    made.text(300, 90, "the trainer saves its state after row 5 …", small=True)
    made.arrow(418, 76, 418, 58)
    made.text(600, 90, "… and all is killed here", small=True)
    made.arrow(534, 76, 534, 58)
    made.box(290, 116, 230, 44, "state token: position, 2 KB", "plan")
    made.arrow(418, 97, 418, 114)
    made.text(60, 220, "resumed", "end", small=True)
    for row in range(6, 12):
        made.box(70 + 58 * row, 200, 52, 34, f"{row}", "memory")
    made.arrow(418, 160, 442, 198)
    made.text(420, 260, "rows 6 and 7 come again, bit for bit; the model is back at row 6 too",
              small=True)
    return made


def who_waits():
    made = Drawing(820, 240, "Who waits for whom")
    names = ["plan", "readers", "packers", "rings", "trainers"]
    for number, name in enumerate(names):
        x = 20 + 165 * number
        tint = "plan" if name == "plan" else "io" if number < 3 else "memory"
        made.box(x, 60, 110, 50, name, tint)
        if number:
            made.arrow(x - 55, 75, x - 2, 75)
            made.arrow(x - 2, 97, x - 55, 97, dashed=True)
    made.text(410, 30, "work goes on to the right as soon as there is any", small=True)
    made.text(410, 140, "dashed: waits only for room, which comes back when a batch is released",
              small=True)
    made.text(410, 180, "a slow trainer stops the others of its node: all take one stream",
              small=True)
    made.text(410, 205, "a dead trainer does not: what it has not released waits for its successor",
              small=True)
    return made


DRAWINGS = {
    made.__name__: made for made in (plan_globally, documents_way, kill_and_resume, who_waits)
}


def drawing(name):
    return f"<div>{DRAWINGS[name]().svg()}</div>"
