"""Results of lab/compare_java.py as text, as Markdown and as a plot (SVG).

Puts the tables of a result, and its doubts, into docs/reference/performance.md, with
the plot. It shows Redis if a result has it.

    python lab/side_by_side.py bench/results/compare-java-….json
"""

import argparse
import json
from collections.abc import Iterator
from html import escape
from math import log
from pathlib import Path

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
PLOT = "compare-java.svg"
SERVERS = ("echo", "rmq", "java", "redis")
OTHERS = ("java", "redis")
LABELS = {"echo": "C echo", "rmq": "rmq", "java": "Java", "redis": "Redis"}
COLOURS = {"echo": "#9aa5b1", "rmq": "#2f7d5b", "java": "#c0562f", "redis": "#5b6fb0"}
NAMES = {
    "send-4x64": "128 B, 4 x 64",
    "send-4x64-1k": "1 KiB, 4 x 64",
    "send-64x16": "128 B, 64 x 16",
    "send-64x1": "128 B, 64 x 1",
    "send-1x1": "128 B, 1 x 1",
}
COLUMNS = (
    "case", "server", "messages/s", "CPU s per million", "x echo", "p50 µs", "p99 µs",
    "p99.9 µs",
)  # fmt: skip
PROCESS_COLUMNS = (
    "server", "start s", "memory MiB when new", "after the load",
    "the same with mapped files", "CPU when idle",
)  # fmt: skip


def rows(cases: dict) -> Iterator[tuple[str, ...]]:
    """A row for each server of each case; the name of a case stands once."""
    for case, servers in cases.items():
        name = NAMES.get(case, case)
        echo = servers["echo"]["s_per_million"]
        for kind in present(servers):
            f = servers[kind]
            yield (
                name,
                LABELS[kind],
                f"{f['rate']:,.0f}",
                f"{f['s_per_million']:.2f}",
                f"{f.get('ratio') or f['s_per_million'] / echo:.1f}",
                *(f"{f[key]:,.0f}" for key in ("p50_us", "p99_us", "p999_us")),
            )
            name = ""
        for kind in present(servers, OTHERS):
            yield ("", f"rmq : {LABELS[kind]}", *factors(servers["rmq"], servers[kind]))


def present(figures: dict, kinds: tuple[str, ...] = SERVERS) -> list[str]:
    """Those of the servers that took part."""
    return [kind for kind in kinds if kind in figures]


def factors(rmq: dict, other: dict) -> Iterator[str]:
    """How many times faster, cheaper and sooner rmq is."""
    yield f"{rmq['rate'] / other['rate']:.1f} x"
    yield part(rmq["s_per_million"], other["s_per_million"])
    yield ""
    for key in ("p50_us", "p99_us", "p999_us"):
        yield part(rmq[key], other[key])


def part(cost: float, other: float) -> str:
    """The part of the other's cost; how many times as much where it is more."""
    return f"1/{other / cost:.1f}" if cost <= other else f"{cost / other:.1f} x"


def process_rows(processes: dict) -> Iterator[tuple[str, ...]]:
    """A row for each server but the echo."""
    for kind in present(processes):
        process = processes[kind]
        yield (
            LABELS[kind],
            f"{process['start_s']:.2f}",
            f"{process['new']['own_mib']:,.0f}",
            f"{process['loaded']['own_mib']:,.0f}",
            f"{process['loaded']['with_files_mib']:,.0f}",
            f"{process['idle_percent']:.1f} %",
        )


def tables(result: dict) -> Iterator[tuple[str, tuple, list[tuple]]]:
    """Title, head and rows of each table."""
    for mode, cases in result["modes"].items():
        yield f"Sends under {mode}", COLUMNS, list(rows(cases))
        yield (
            f"Processes under {mode}",
            PROCESS_COLUMNS,
            list(process_rows(result["processes"][mode])),
        )


def text(result: dict) -> str:
    """The tables for a terminal."""
    return "\n".join(table_text(*table) for table in tables(result))


def table_text(title: str, head: tuple, body: list[tuple]) -> str:
    """One table; its first two columns are words."""
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    lines = [title]
    for row in [head, *body]:
        cells = (
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, ""])


def markdown(result: dict) -> str:
    """The tables and the machine for docs/reference/performance.md."""
    names = ", ".join(LABELS[kind] for kind in kinds_of(result))
    parts = [f"![rates and CPU of {names}](../images/{PLOT})\n"]
    parts += [table_markdown(*table) for table in tables(result)]
    facts = "\n".join(f"| {k} | {v} |" for k, v in result["machine"].items())
    parts.append(f"### Machine\n\n| | |\n|---|---|\n{facts}\n")
    parts.append(
        f"Measured on {result['when']}: medians of {result['rounds']} rounds of "
        f"{result['seconds']:g} s for each case and server.\n"
    )
    if result["doubts"]:
        parts.insert(
            0,
            f"**Disturbed: {result['doubts']}**, also when turns were played again. "
            "The order of the servers and the ratios to the echo hold; the rates do "
            "not. Measure on a quiet machine before you quote a figure.\n",
        )
    return "\n".join(parts)


def table_markdown(title: str, head: tuple, body: list[tuple]) -> str:
    """One table for a document."""
    rule = ["---" if index < 2 else "---:" for index in range(len(head))]
    lines = ["| " + " | ".join(row) + " |" for row in [head, rule, *body]]
    return "\n".join([f"### {title}\n", *lines]) + "\n"


def kinds_of(result: dict) -> list[str]:
    """The servers of a result; all its cases have the same."""
    return present(next(iter(next(iter(result["modes"].values())).values())))


# -- the plot: two panels of bars, logarithmic


WIDTH, BAR, GAP, LABEL_WIDTH, PANEL_WIDTH = 980, 13, 12, 150, 330
TOP, PANEL_GAP = 76, 80


def svg(result: dict) -> str:
    """Rates to the left, CPU per million to the right, a group for each case."""
    groups = [
        (f"{NAMES.get(case, case)}{' (sync)' if mode == 'SYNC_FLUSH' else ''}", servers)
        for mode, cases in result["modes"].items()
        for case, servers in cases.items()
    ]
    kinds = kinds_of(result)
    group_height = len(kinds) * BAR + GAP
    height = TOP + len(groups) * group_height + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *legend(kinds),
    ]
    for index, (name, _) in enumerate(groups):
        y = TOP + index * group_height + len(kinds) * BAR / 2 + 4
        parts.append(label(LABEL_WIDTH - 10, y, name, "end"))
    left = LABEL_WIDTH
    for title, key in (
        ("messages per second (longer is better)", "rate"),
        ("CPU seconds per million (shorter is better)", "s_per_million"),
    ):
        parts += panel(left, title, kinds, [(f, key) for _, f in groups])
        left += PANEL_WIDTH + PANEL_GAP
    return "\n".join([*parts, "</svg>", ""])


def legend(kinds: list[str]) -> Iterator[str]:
    for index, kind in enumerate(kinds):
        x = LABEL_WIDTH + index * 90
        yield f'<rect x="{x}" y="16" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield label(x + 18, 27, LABELS[kind])
    end = LABEL_WIDTH + len(kinds) * 90 + 20
    yield label(end, 27, "logarithmic; (sync) is SYNC_FLUSH")


def panel(
    left: float, title: str, kinds: list[str], groups: list[tuple[dict, str]]
) -> list[str]:
    values = [f[kind][key] for f, key in groups for kind in kinds]
    low, high = decade_below(min(values)), max(values)
    parts = [label(left, TOP - 14, title)]
    for index, (figures, key) in enumerate(groups):
        y = TOP + index * (len(kinds) * BAR + GAP)
        for row, kind in enumerate(kinds):
            value = figures[kind][key]
            width = PANEL_WIDTH * log_share(value, low, high)
            at = y + row * BAR
            parts.append(
                f'<rect x="{left}" y="{at}" width="{width:.1f}" height="{BAR - 2}" '
                f'fill="{COLOURS[kind]}"/>'
            )
            shown = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
            parts.append(label(left + width + 4, at + BAR - 3, shown, size=10))
    return parts


def decade_below(value: float) -> float:
    """Return the power of ten where the axis begins, so that no bar is empty."""
    decade = 1e-6
    while decade * 10 < value:
        decade *= 10
    return decade


def log_share(value: float, low: float, high: float) -> float:
    return log(value / low) / log(high / low)


def label(x: float, y: float, words: str, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="#222222">{escape(words)}</text>'
    )


def renew(folder: Path, result: dict) -> None:
    """Put the figures into performance.md, and the plot beside it."""
    page = folder / "reference/performance.md"
    replace_between(page, (BEGIN, END), markdown(result))
    (folder / "images" / PLOT).write_text(svg(result))


def replace_between(path: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what a document has between two marks."""
    before, begin, rest = path.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise SystemExit(f"{path.name} has lost its marks {' and '.join(marks)}")
    path.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    options = parser.parse_args()
    docs = Path(__file__).resolve().parents[1] / "docs"
    renew(docs, json.loads(options.result.read_text()))


if __name__ == "__main__":
    main()
