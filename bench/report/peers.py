# SPDX-License-Identifier: Apache-2.0
"""The result of peers/compare.py as a table and goals for people; with --docs also as the chart,
the sentence of README.md and the table of bench/findings/peers.md.

    python bench/report/peers.py bench/results/peers.json [--docs]

The text of the documents between `<!-- peers -->` and `<!-- end -->` comes only from the file. A
ratio is only ever of one class: ringpack over the best member of that class, in the same round.
"""

import json
import math
import sys
from pathlib import Path

from chart import number, time_text
from documents import write_between
from peers_chart import CLASSES, HEADINGS, draw_peers, ratio_text, remark_of, speed_rows
from report import load_text, machine_line

SOURCE = Path(__file__).resolve().parent.parent.parent
GOAL = 40  # times as many tokens a second as the best of each class
RESUME_GOAL = 5  # times as fast to the first batch, deepest position


def failed_in(result, kind):
    return [entry for entry in result["failed"] if entry["kind"] == kind]


def rounds_of(result):
    return max((len(ratio["values"]) for ratio in result["ratios"]), default=0)


def ratio_of(result, corpus, kind):
    return next((ratio for ratio in result["ratios"]
                 if (ratio["corpus"], ratio["kind"]) == (corpus, kind)), None)


def mtok(entry):
    return number(entry["tokens_per_second"]["median"] / 1e6)


def print_speed(result, corpus, kind):
    print(f"\n{corpus}: {HEADINGS[kind]}")
    rows = [e for e in result["speed"] if (e["corpus"], e["kind"]) == (corpus, kind)]
    for entry in sorted(rows, key=lambda e: (not e.get("ours"),
                                             -e["tokens_per_second"]["median"])):
        tried = " / ".join(number(rate / 1e6) for rate in entry.get("by_workers", {}).values())
        print(f"  {entry['name']:18s}{mtok(entry):>9s} Mtok/s{100 * entry['fill']:8.2f} % full  "
              f"{tried and 'workers 0/1/2: '}{tried}  {remark_of(entry)}"
              f"{'' if entry['resumes_exactly'] else '  DOES NOT RESUME EXACTLY'}")
        if "ringpack_per_this" in entry:
            print(f"{'':18s}  ringpack / this: {ratio_text(entry['ringpack_per_this'])}")
    for entry in failed_in(result, kind):
        print(f"  {entry['name']:18s} not measured: {entry['reason']}")
    ratio = ratio_of(result, corpus, kind)
    print(f"  {ratio['ours']} / the best of this class: {ratio_text(ratio)}" if ratio
          else "  nobody of this class was measured")


def print_resume(result):
    print(f"\n{'first batch after a resume':28s}{'rows behind':>14s}{'process':>12s}{'load':>12s}")
    for entry in result["resume"]:
        cells = (f"{'> ' + time_text(entry['more_than_ms']):>12s}" if "more_than_ms" in entry else
                 "".join(f"{time_text(entry[key]['median']):>12s}"
                         for key in ("process_ms", "load_ms")))
        print(f"  {entry['name']:26s}{entry['rows']:14,d}{cells}")
    for name, reason in result["no_deep_resume"].items():
        print(f"  {name:26s} not measured: {reason}")


# ---- goals ---------------------------------------------------------------------------------------


def deepest_resume(result):
    """(ringpack's ms, the best of the others' ms, the other's name, rows); None without a pair to
    compare."""
    timed = [e for e in result["resume"] if e["process_ms"]]
    rows = max((e["rows"] for e in timed), default=0)
    times = sorted((e["process_ms"]["median"], e["name"]) for e in timed if e["rows"] == rows)
    ours = [ms for ms, name in times if name.startswith("ringpack")]
    others = [(ms, name) for ms, name in times if not name.startswith("ringpack")]
    return (ours[0], *others[0], rows) if ours and others else None


def verdict_of(ratio, bound):
    """Inside the interval, and without one, a goal is undecided."""
    if ratio is None:
        return "not measured"
    low, high = ratio["interval"] or (0, math.inf)
    if low >= bound:
        return "met"
    return "NOT MET" if high < bound else "undecided"


def goals(result):
    """[(label, found or None, bound, verdict)]"""
    found = []
    for corpus in result["fills"]:
        for kind in CLASSES:
            ratio = ratio_of(result, corpus, kind)
            found.append((f"{corpus}, {kind}: tokens/s / best", ratio and ratio["median"], GOAL,
                          verdict_of(ratio, GOAL)))
    deepest = deepest_resume(result)
    times = deepest and deepest[1] / deepest[0]
    verdict = ("not measured" if times is None else "met" if times >= RESUME_GOAL else "NOT MET")
    return [*found, ("resume at the deepest row: best / ringpack's", times, RESUME_GOAL, verdict)]


def print_goals(result):
    print(f"\n{'goal':50s}{'found':>10s}{'bound':>8s}")
    for label, value, bound, verdict in goals(result):
        shown = "-" if value is None else number(value)
        print(f"  {label:48s}{shown:>10s}{bound:>6g} x  {verdict}")


# ---- documents -----------------------------------------------------------------------------------


SAID = {"own packer": "the fastest loader that packs by itself",
        "packer written around it": "the fastest packer that we wrote around a loader, in numpy",
        "windows": "the fastest of the loaders that cut an already concatenated corpus"}
SAID_ABSENT = {"own packer": "loaders that pack by themselves",
               "packer written around it": "packers that we wrote around a loader",
               "windows": "loaders that cut an already concatenated corpus"}


def members_of(result, kind, best):
    """The best one, and who else was measured."""
    others = [entry["name"] for entry in speed_rows(result, kind)
              if not entry.get("ours") and entry["name"] != best]
    return best + (f"; slower: {', '.join(others)}" if others else "")


def sentence(result):
    """The sentence of README.md: the classes and members that this run measured, and its date."""
    measured = {kind: ratio for kind in CLASSES
                if (ratio := ratio_of(result, "lognormal", kind))}
    said = [f"{ratio_text(ratio)} {SAID[kind]} ({members_of(result, kind, ratio['best'])})"
            for kind, ratio in measured.items()]
    lines = ["Tokens per second of ringpack in a Python loop, relative to other "
             "loaders on the same machine: " + "; ".join(said) + "."]
    absent = [SAID_ABSENT[kind] for kind in CLASSES if kind not in measured]
    if absent:
        lines.append(f"Not measured in that run: {'; '.join(absent)}.")
    deepest = deepest_resume(result)
    if deepest:
        ours, best, name, rows = deepest
        lines.append(f"After a resume at row {rows / 1e6:.0f} M the first batch takes ringpack "
                     f"{time_text(ours)}, the fastest of them ({name}) {time_text(best)}.")
    few = "" if all(ratio["interval"] for ratio in measured.values()) else (
        ", too few for an interval")
    lines.append(f"These figures are of one run on {result['date'][:10]}, at commit "
                 f"{result['machine']['commit']}, with {rounds_of(result)} rounds{few}: "
                 "[chart](bench/results/peers.svg), [peers.json](bench/results/peers.json).")
    return "\n".join(lines) + "\n"


def table(result):
    """The table of bench/findings/peers.md: every peer in its class."""
    lines = [f"Run of {result['date'][:16].replace('T', ' ')} UTC, {machine_line(result)}; "
             f"{load_text(result)}; {rounds_of(result)} rounds, "
             f"{result['settings']['seconds']:g} s each. {', '.join(result['versions'])}.\n"]
    for kind in CLASSES:
        rows = speed_rows(result, kind)
        between = any(entry.get("ringpack_per_this", {}).get("interval") for entry in rows)
        lines += [f"| {HEADINGS[kind]} | workers | Mtok/s | full | ringpack is … times as fast "
                  f"{'(interval) ' if between else ''}|", "|---|---:|---:|---:|---:|"]
        for entry in rows:
            ratio = entry.get("ringpack_per_this")
            name = entry["name"] + (f", {remark_of(entry)}" if remark_of(entry) else "")
            lines.append(f"| {'**' + name + '**' if entry.get('ours') else name} | "
                         f"{entry['workers']} | {mtok(entry)} | {100 * entry['fill']:.2f} % | "
                         f"{ratio_text(ratio) if ratio else ''} |")
        lines += [f"| {entry['name']} | | not measured | | {entry['reason']} |"
                  for entry in failed_in(result, kind)]
        lines.append("")
    return "\n".join(lines)


def chart(result):
    return draw_peers(result, f"{machine_line(result)}, {result['date'][:10]}; {load_text(result)}")


def write_documents(result, source):
    (source / "bench/results/peers.svg").write_text(chart(result))
    for name, words in ("README.md", sentence(result)), ("bench/findings/peers.md", table(result)):
        write_between(source / name, "peers", words)


def main():
    result = json.loads(Path(sys.argv[1]).read_text())
    print(f"{machine_line(result)}\n{load_text(result)}; {rounds_of(result)} rounds")
    for corpus in result["fills"]:
        for kind in CLASSES:
            print_speed(result, corpus, kind)
    print_resume(result)
    print_goals(result)
    if "--docs" in sys.argv[2:]:
        write_documents(result, SOURCE)


if __name__ == "__main__":
    main()
