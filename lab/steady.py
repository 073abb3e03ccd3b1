"""A steady load for half an hour: memory, descriptors and waiting times must stay flat.

5,000 messages a second go to 1,000 topics, 200 consumers come and go, and log files are
cleaned: files are kept for an hour at least, so this program makes the older ones look
two hours old. A sample is taken every few seconds; the plot has them all. A figure is
flat if the median of the last third is at most so much above that of the third before.
Writes JSON to bench/results/; `--document` puts the plot and a table into docs/. Exit
code 1 if something grew.

    python lab/steady.py [--minutes 30] [--rate 5000] [--topics 1000] [--visitors 200]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import run, visitors
from lab import (
    compare_java,
    growth,
    side_by_side,
)

LIVE_FILES = 4
"""Log files that are not made old."""

AGE_S = 2 * 3600
SAMPLES_A_MINUTE = 4
SETTINGS = (
    "fileReservedTime=1",
    "mappedFileSizeCommitLog=67108864",
    f"deleteWhen={';'.join(f'{hour:02}' for hour in range(24))}",
)
PLOT = "steady.svg"
MARKS = "<!-- steady: begin -->", "<!-- steady: end -->"

FIGURES = {
    "own_mib": ("memory of its own, MiB", 1.05),
    "descriptors": ("descriptors", 1.25),
    "log_files": ("files of the log", 1.5),
    "p99_us": ("p99 of a send, µs", 1.5),
    "p999_us": ("p99.9 of a send, µs", None),
    "cpu_percent": ("CPU, % of a core", 1.2),
    "rate": ("messages a second", None),
}
"""What is plotted, and how much it may grow from one third to the next."""


def measure(options: argparse.Namespace) -> dict:
    """Run the load and take the samples."""
    seconds = 60 / SAMPLES_A_MINUTE
    count = max(3, round(options.minutes * SAMPLES_A_MINUTE))
    load = [
        f"--topics={options.topics}", f"--queues={visitors.QUEUES}", "--topic=All",
        "--connections=8", "--window=16", f"--rate={options.rate}",
    ]  # fmt: skip
    options.set = [*SETTINGS, *options.set]
    with growth.broker(options) as broker:
        growth.crowd_part(
            broker.server, "topics", count=options.topics, queues=visitors.QUEUES
        )
        first = ["--warm-up=0", f"--messages={options.topics * visitors.QUEUES}"]
        run.play(broker.server, [*load[:-1], *first], 60, None)
        with visiting(broker.server, options) as result:
            samples = [sample(broker, load, seconds) for _ in range(count)]
    return {
        "when": time.strftime("%Y-%m-%d"),
        "seconds": seconds,
        "load": f"{options.rate:,.0f} messages a second to {options.topics:,} topics, "
        f"{options.visitors} consumers that come and go",
        "samples": samples,
        **result,
    }


def sample(broker: growth.Broker, load: list[str], seconds: float) -> dict:
    """Send for some seconds; what the broker needed and how long senders waited."""
    make_old(broker.log_files())
    played = run.play(broker.server, load, seconds, None)
    return {
        "own_mib": compare_java.memory_mib(broker.server.pid)["own_mib"],
        "descriptors": broker.descriptors,
        "log_files": len(broker.log_files()),
        "p99_us": played["p99_us"],
        "p999_us": played["p999_us"],
        "cpu_percent": played["server_cpu_s"] / played["seconds"] * 100,
        "rate": played["rate"],
    }


def make_old(files: list[Path]) -> None:
    """Let all log files but the newest look as if nobody had written them lately."""
    then = time.time() - AGE_S
    for path in files[:-LIVE_FILES]:
        os.utime(path, (then, then))


@contextmanager
def visiting(server: run.Server, options: argparse.Namespace) -> Iterator[dict]:
    """Let clients come and go meanwhile; what they got is there after the block."""
    command = [sys.executable, visitors.__file__, str(server.port)]
    command += [f"--visitors={options.visitors}", f"--topics={options.topics}"]
    command += [f"--stay={options.stay}"]
    found: dict = {}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield found
            output, _ = process.communicate(timeout=60)
            if process.returncode:
                raise SystemExit("the clients that come and go have failed")
            found |= json.loads(output.splitlines()[-1])
        finally:
            process.kill()


# -- what it says


def thirds(samples: list[dict], name: str) -> tuple[float, float]:
    """Return the medians of the middle and of the last third of the samples."""
    size = len(samples) // 3
    middle, last = samples[-2 * size : -size], samples[-size:]
    return tuple(
        statistics.median(each[name] for each in part) for part in (middle, last)
    )


def grown(samples: list[dict]) -> list[str]:
    """Return sentences about what did not stay flat."""
    found = []
    for name, (title, limit) in FIGURES.items():
        middle, last = thirds(samples, name)
        if limit is not None and last > limit * middle:
            found.append(f"{title}: {middle:,.0f}, then {last:,.0f}")
    return found


def rows(samples: list[dict]) -> Iterator[tuple[str, ...]]:
    """Yield the medians and the largest sample of each figure."""
    for name, (title, _) in FIGURES.items():
        values = [each[name] for each in samples]
        figures = (*thirds(samples, name), min(values), max(values))
        yield title, *(growth.text_of(float(each)) for each in figures)


HEAD = "figure", "middle third", "last third", "least", "most"

WIDTH, PANEL_HEIGHT, LEFT, RIGHT, TOP = 720, 84, 190, 40, 40


def svg(result: dict) -> str:
    """Plot one panel for each figure, from zero, over minutes."""
    height = TOP + len(FIGURES) * PANEL_HEIGHT + 30
    minutes = len(result["samples"]) * result["seconds"] / 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        side_by_side.label(10, 22, result["load"]),
    ]
    for number, (name, (title, _)) in enumerate(FIGURES.items()):
        values = [each[name] for each in result["samples"]]
        parts += panel(TOP + number * PANEL_HEIGHT, title, values)
    bottom = height - 10
    parts.append(side_by_side.label(LEFT, bottom, "0"))
    parts.append(side_by_side.label(WIDTH - RIGHT, bottom, f"{minutes:g} min", "end"))
    return "\n".join([*parts, "</svg>", ""])


def panel(top: float, title: str, values: list[float]) -> Iterator[str]:
    """Yield a line of values, whose largest touches the top."""
    most = max(values) or 1
    bottom, high = top + PANEL_HEIGHT - 14, PANEL_HEIGHT - 24
    step = (WIDTH - LEFT - RIGHT) / max(1, len(values) - 1)
    points = " ".join(
        f"{LEFT + number * step:.1f},{bottom - high * value / most:.1f}"
        for number, value in enumerate(values)
    )
    yield (
        f'<path d="M{LEFT} {bottom - high}V{bottom}H{WIDTH - RIGHT}" fill="none" '
        'stroke="#bbbbbb"/>'
    )
    yield f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="2"/>'
    yield side_by_side.label(LEFT - 10, bottom - high / 2, title, "end")
    shown = growth.text_of(float(most))
    yield side_by_side.label(LEFT - 6, bottom - high + 4, shown, "end", size=10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=5_000)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--visitors", type=int, default=200)
    parser.add_argument("--stay", type=float, default=20, help="seconds, about")
    parser.add_argument("--directory", help="where the temporary store goes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--document", action="store_true", help="renew the document")
    options = parser.parse_args()
    run.build()
    result = measure(options)
    path = run.write_result("steady", result)
    table = result["load"], HEAD, list(rows(result["samples"]))
    print(side_by_side.table_text(*table))
    print(
        f"{result['visits']:,} consumers came, {result['messages']:,} messages for them"
    )
    print(f"written to {path.relative_to(ROOT)}")
    if options.document:
        document = ROOT / "docs" / "internals/measurements.md"
        text = f"{result['when']}, {options.minutes:g} minutes.\n\n"
        text += f"![samples](../images/{PLOT})\n"
        text += f"\n{side_by_side.table_markdown(*table)}"
        side_by_side.replace_between(document, MARKS, text)
        (ROOT / "docs/images" / PLOT).write_text(svg(result))
    for sentence in (found := grown(result["samples"])):
        print(f"grew: {sentence}")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
