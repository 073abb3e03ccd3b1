"""Where the broker's CPU goes: each case sampled by perf, as a table and flame graphs.

For each case a new broker is loaded by the generator while `perf record` samples it.
Prints the CPU microseconds of a message by part (receive, scan, encode, append, queues,
reply, index, writer and what is left), and writes a flame graph of each case as SVG to
bench/results/. With --before the cases are also played with other settings, for a
comparison: a ring or none, for example. --document puts table and graphs into docs/.
Exit code 2 if there is no perf here.

    python bench/load/profiles.py [--seconds 4] [--profiles send-4x64,send-4x64-1k]
                                 [--set KEY=VALUE] [--before KEY=VALUE] [--document]
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.load import flames, run  # noqa: E402
from lab import side_by_side  # noqa: E402 - found by the line above

PROFILES = (
    "send-4x64", "send-4x64-1k", "send-64x16", "send-64x1", "send-1x1", "pull-128",
)  # fmt: skip
HERTZ = 997
STACK_SIZE = 8192
"""Bytes of a stack that are kept: the compiled modules have no frame pointers."""
LEAST_SHARE = 0.005
TITLE = "CPU µs of a message, by part"
DOCS = run.ROOT / "docs"
MARKS = "<!-- profile: begin -->", "<!-- profile: end -->"

Played = tuple[dict, "flames.Counter[flames.Stack]"]


def perf_error() -> str:
    """Why perf cannot sample here, or ""."""
    if not shutil.which("perf"):
        return "perf is not installed"
    with tempfile.NamedTemporaryFile() as data:
        done = subprocess.run(
            ["perf", "record", "-q", "-o", data.name, "true"],
            capture_output=True,
            text=True,
            check=False,
        )
    return done.stderr.strip() if done.returncode else ""


def sampled(broker: run.Server, options: list[str], seconds: float) -> Played:
    """Load a broker for so long while perf watches it; the figures and the stacks."""
    with tempfile.NamedTemporaryFile(prefix="rmq-perf-") as data:
        command = ["perf", "record", "-q", "-F", str(HERTZ), "-p", str(broker.pid)]
        command += ["--call-graph", f"dwarf,{STACK_SIZE}", "-o", data.name]
        with subprocess.Popen(
            [*command, "--", "sleep", str(seconds)], stderr=subprocess.DEVNULL
        ) as perf:
            figures = run.play(broker, options, seconds, None)
            perf.wait(60)
        fields = "comm,tid,time,ip,sym,dso"
        script = ["perf", "script", "--no-inline", "-F", fields, "-i", data.name]
        text = subprocess.run(
            script, capture_output=True, text=True, check=True, timeout=600
        ).stdout
    return figures, flames.stacks_of(text)


def profile(case: str, settings: list[str], options: argparse.Namespace) -> Played:
    """Play one case with a broker of its own."""
    with tempfile.TemporaryDirectory(
        prefix="rmq-profile-", dir=options.directory
    ) as name:
        command = run.broker_command(Path(name) / "store", settings)
        ready = r"ready broker=\S+ address=\S+:(\d+)"
        with run.serving(command, ready, "stderr", None) as broker:
            return sampled(broker, run.prepare(broker, case), options.seconds)


def head_and_rows(
    played: dict[str, Played],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """CPU us of a message: a row for a part, a column for a case."""
    costs = {
        name: {
            part: share * figures["s_per_million"]
            for part, share in flames.shares(stacks).items()
        }
        for name, (figures, stacks) in played.items()
    }
    wholes = [sum(parts.values()) for parts in costs.values()]
    table = []
    for part in flames.COLOURS:
        cells = [parts.get(part, 0.0) for parts in costs.values()]
        least = (LEAST_SHARE * whole for whole in wholes)
        if any(cost >= limit for cost, limit in zip(cells, least, strict=True)):
            table.append((part, *(f"{cost:.3f}" for cost in cells)))
    table.append(("all", *(f"{whole:.3f}" for whole in wholes)))
    return ("part", *costs), table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument(
        "--profiles", type=lambda text: text.split(","), default=list(PROFILES)
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--before", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--directory", help="where the temporary stores go")
    parser.add_argument("--document", action="store_true", help="renew the document")
    options = parser.parse_args()
    unknown = set(options.profiles) - set(run.PROFILES)
    if unknown or not 0 < options.seconds <= 60:
        parser.error(f"{sorted(unknown)} is not known, or seconds are not in 0…60")
    error = perf_error()
    if error:
        print(f"not run: {error}")
        return 2
    run.build()
    run.RESULTS.mkdir(exist_ok=True)
    played: dict[str, Played] = {}
    for case in options.profiles:
        sides = {"before": options.before, "after": options.set}
        for side, settings in sides.items():
            if side == "before" and not options.before:
                continue
            name = f"{case} {side}" if options.before else case
            played[name] = profile(case, settings, options)
            title = f"{case}; {' '.join(settings) or 'the settings of a new broker'}"
            path = (DOCS / "images" if options.document else run.RESULTS) / picture_of(
                name
            )
            path.write_text(flames.svg(played[name][1], title))
            print(f"written to {path.relative_to(run.ROOT)}", flush=True)
    if options.document:
        text = side_by_side.table_markdown(TITLE, *head_and_rows(played))
        pictures = (f"![{name}](../images/{picture_of(name)})" for name in played)
        text = "\n\n".join([text.strip(), *pictures, ""])
        side_by_side.replace_between(DOCS / "internals/measurements.md", MARKS, text)
    print(f"\n{side_by_side.table_text(TITLE, *head_and_rows(played))}")
    return 0


def picture_of(name: str) -> str:
    """The file of a flame graph."""
    return f"flames-{name.replace(' ', '-')}.svg"


if __name__ == "__main__":
    raise SystemExit(main())
