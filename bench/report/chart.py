# SPDX-License-Identifier: Apache-2.0
"""The common part of the charts: colours, numbers for people, and a few shapes of SVG."""

import math
from html import escape

WIDTH = 920
INK, SOFT, RULE, PAPER = "#1f2933", "#66727f", "#e4e8ec", "#ffffff"
OURS, LOOP, BOUND = "#0f766e", "#9fb3c8", "#d5dde5"


def number(value):
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}"


def time_text(ms):
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"


def documents_text(count):
    return f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count:,d}"


def text(x, y, words, size=13, colour=INK, anchor="start", weight=400):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>')


def line(x1, y1, x2, y2, colour, width=1.0):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"/>')


def svg(parts, height):
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'width="{WIDTH}" height="{height:.0f}" '
            f'font-family="Inter, Helvetica Neue, Arial, sans-serif">\n'
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="{PAPER}"/>\n{body}\n</svg>\n')
