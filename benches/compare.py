"""compare.py OLD NEW PAIRS: the ratios of two folders of bench runs, as scripts/compare leaves them.

Every row is one figure of our side (peers are not compared with themselves). A ratio is taken within a pair, and is
above 1 where the new program is better: rates new / old, times and sizes old / new. Exit 1 where a median is below
0.93, where only one side has a row, and where a row has fewer pairs than were asked for.
"""

import json
import statistics
import sys
from pathlib import Path

LEAST = 0.93


def table(path):
    """Our rates from the table of ratios, and the table of plain figures."""
    figures = {}
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 14 and cells[0].isdigit():
            _, family, op, tasks, ours, rate = cells[:6]
            # A figure that stands beside several peers is measured once for each: the first will do.
            figures.setdefault((family, f"{op}, {tasks} tasks: {ours}", "a second"), float(rate.replace(",", "")))
        if len(cells) == 7 and cells[2].startswith("**"):
            figures[(cells[0], cells[1], cells[4])] = float(cells[2].strip("*"))
    return figures


def payments(path):
    """Of the payment mix: the median times at the asked rate, and the highest rate that held."""
    figures = {}
    for run in map(json.loads, path.read_text().splitlines()):
        if run["family"] != "psp" or "document" in run["peer"]:
            continue
        way = run["peer"]
        for kind in ("single", "compound"):
            # The first run is the one at the asked rate; the others look for the highest.
            figures.setdefault(("psp", f"{kind} p50: {way}", "ms"), run[f"{kind}_p50_p95_p99_ms"][0])
        if run["holds"]:
            highest = ("psp", f"highest rate that holds: {way}", "a second")
            figures[highest] = max(figures.get(highest, 0), run["asked_per_s"])
    return figures


def run(folder, round):
    return table(folder / f"{round}.md") | payments(folder / f"{round}.jsonl")


def main(old, new, pairs):
    ratios, amiss = {}, []
    for round in range(1, pairs + 1):
        before, after = run(Path(old), round), run(Path(new), round)
        amiss += [f"round {round}: only one side has {row}" for row in sorted(before.keys() ^ after.keys())]
        for row in before.keys() & after.keys():
            pair = (after[row], before[row]) if row[2] == "a second" else (before[row], after[row])
            if pair[1] > 0:
                ratios.setdefault(row, []).append(pair[0] / pair[1])
    if not ratios:
        sys.exit("no figures were found")
    print("| family | figure | ratio | low–high | pairs | kept |\n|---|---|--:|--:|--:|---|")
    worst = min(statistics.median(found) for found in ratios.values())
    for (family, figure, unit), found in sorted(ratios.items()):
        median = statistics.median(found)
        kept = "yes" if median >= LEAST else "**no**"
        if len(found) < pairs:
            amiss.append(f"{family}, {figure}: {len(found)} of {pairs} pairs")
        print(f"| {family} | {figure} ({unit}) | **{median:.2f}** | {min(found):.2f}–{max(found):.2f} | {len(found)} | {kept} |")
    for what in amiss:
        print(what, file=sys.stderr)
    sys.exit(0 if worst >= LEAST and not amiss else 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
