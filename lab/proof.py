"""Tries each promise of docs/reference/proof.md, and writes the table of that page.

A row has a class of faults, the promise, the trials, and two commands: one of minutes
and one of hours. A row fails if its command fails. Its figures are the lines that the
command prints. The page gets them with the commit and the day; rows that are not tried
keep their last run.

    python lab/proof.py [--short] [--rows kill,power] [--no-page]
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/proof.md"
BEGIN, END = "<!-- proof: begin -->", "<!-- proof: end -->"
PYTEST = (sys.executable, "-m", "pytest", "-q", "-s")
SHOWN_LINES = 6
"""Lines of figures of one row on the page; the log of the run has all."""


Form = Callable[[bool], tuple[str, ...]]
"""Returns a command: with True its short form, else the long one."""


class Proof(NamedTuple):
    """One row of the page."""

    name: str
    faults: str
    promise: str
    trials: str
    command: Form
    figures: str
    """Pattern of the lines with figures."""

    rounds: tuple[int, int] = (0, 0)
    """RMQ_CRASH_ROUNDS of the short form and of the long one; 0: as the test has it."""


class Outcome(NamedTuple):
    """The result of a row."""

    is_good: bool
    seconds: float
    lines: tuple[str, ...]


def crash_tests(*tests: str) -> Form:
    """Return the command of crash tests, which is the same in both forms."""
    paths = tuple(f"tests/crash/{test}" for test in tests)
    return lambda _is_short: (*PYTEST, "-m", "crash", *paths)


def script_of(*words: str, short: tuple[str, ...], long: tuple[str, ...]) -> Form:
    """Return the command of a script with other arguments in each form."""
    return lambda is_short: (sys.executable, *words, *(short if is_short else long))


PROOFS = (
    Proof(
        "kill",
        "the broker's process is killed",
        "the store has each acknowledged message once, at its offset; consumers "
        "continue",
        "`kill -9` of a broker under load; the store is opened and read whole",
        crash_tests("test_kill_broker.py::test_a_killed_broker_keeps_its_word"),
        r"kills, .* acknowledged",
        (5, 200),
    ),
    Proof(
        "delivery",
        "the broker is killed amid delays, timers, transactions and retries",
        "no message is lost, and no message comes early",
        "`kill -9` under a load of each kind, with consumers",
        crash_tests("test_kill_delivery.py"),
        r"kills; ",
        (3, 100),
    ),
    Proof(
        "pop",
        "the broker is killed while POP consumers have messages without an ack",
        "no message is lost; an acknowledged message comes again only around the crash",
        "`kill -9` under POP consumers that acknowledge, and images of power cuts",
        crash_tests("test_kill_pop.py", "test_power_cut_pop.py"),
        r"kills; |images, ",
        (3, 60),
    ),
    Proof(
        "power",
        "the machine loses its power",
        "SYNC_FLUSH: no acknowledged message is lost; ASYNC_FLUSH: no flushed message "
        "is lost",
        "all writes and syncs are recorded; a broker opens images with any subset of "
        "the unsynced writes; brokers with a known bug must fail",
        crash_tests("test_power_cut.py"),
        r"images, |caught by|faults,",
        (1, 20),
    ),
    Proof(
        "pair",
        "both machines of a group lose their power",
        "the same for the group, also if a master must copy messages back from its "
        "slave",
        "images of both disks, each order of starts; a group without these copies must "
        "fail",
        crash_tests("test_power_cut_pair.py"),
        r"cuts of a pair|caught by",
        (2, 60),
    ),
    Proof(
        "replicas",
        "a master or a slave is killed",
        "each acknowledged message is on the slave after it has caught up",
        "`kill -9` of a pair in turns",
        crash_tests("test_kill_replicas.py"),
        r"kills of a pair",
        (3, 100),
    ),
    Proof(
        "bits",
        "bits of a store change on the disk",
        "the broker serves no changed message as an intact message; `verify` and "
        "recovery find it",
        "each bit of records and queue entries is flipped",
        crash_tests("test_bit_flips.py", "test_flips_heal.py"),
        r"flips in ",
    ),
    Proof(
        "damage",
        "a log, a queue, a table or the controller's state is damaged, in any order of "
        "starts",
        "brokers serve within 60 s, no acknowledged message is lost, and a log line "
        "names the damage",
        "real processes; flipped bits, lost files, torn tables, older copies",
        script_of(
            "lab/damage.py",
            short=("--seeds", "1", "--row", "bit-slave-first"),
            long=("--seeds", "3"),
        ),
        r"good|bad|rows",
    ),
    Proof(
        "disk",
        "the disk is full, fails, or is slow",
        "senders get the reason, consumers finish, and no acknowledged message is lost",
        "a file system that fails at each call in turn; a full disk at the start",
        crash_tests(
            "test_disk_errors.py", "test_full_disk_start.py", "test_full_slave.py"
        ),
        r"errors|calls|passed",
        (2, 0),
    ),
    Proof(
        "groups",
        "kills, power cuts, broken and slow networks, disks that lose confirmed bytes",
        "no acknowledged message is lost; one master at a time",
        "whole brokers and controllers in one process, whose seed determines time and "
        "faults; histories of all clients are checked, and brokers with a known bug "
        "must fail",
        script_of(
            "-m", "tests.simulation", short=("--seeds", "4"), long=("--seeds", "1000")
        ),
        r"good|disturbances|acknowledged",
    ),
    Proof(
        "histories",
        "a checker that finds nothing",
        "the checker of histories finds each kind of bad history",
        "good histories get lost, moved, changed, repeated, refused, unknown, early "
        "and overtaking messages, and holes",
        lambda _is_short: (*PYTEST, "tests/test_history.py"),
        r"passed",
    ),
    Proof(
        "frames",
        "hostile frames",
        "the broker answers, or closes the connection; it does not end, and its memory "
        "does not grow",
        "bad frames by seed, half of them with access control on",
        script_of(
            "tests/security/fuzz.py",
            short=("--frames", "20000"),
            long=("--frames", "1000000"),
        ),
        r"frames",
    ),
    Proof(
        "attacks",
        "floods, slow readers, storms of connections",
        "the broker continues to serve an honest client, whose p99 stays within the "
        "limits of security.md",
        "attackers and an honest client at the same time",
        script_of(
            "lab/abuse.py",
            short=("--seconds", "5", "--attacks", "silent,never-reads"),
            long=("--seconds", "20"),
        ),
        r" good$| over | more than before",
    ),
    Proof(
        "compiled",
        "a fault of memory in compiled code",
        "no read or write outside of a buffer",
        "the tests of compiled code under AddressSanitizer",
        lambda is_short: (
            sys.executable,
            "tests/asan.py",
            "tests/fastpath/reactor" if is_short else "tests/fastpath",
            *(("-k", "not 130000") if is_short else ()),
        ),
        r"passed|reports",
    ),
)


def main() -> int:
    """Try the rows; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="minutes instead of hours")
    parser.add_argument("--rows", help="names of rows, with commas")
    parser.add_argument(
        "--no-page", action="store_true", help="leave the page as it is"
    )
    given = parser.parse_args()
    names = given.rows.split(",") if given.rows else [each.name for each in PROOFS]
    unknown = set(names) - {each.name for each in PROOFS}
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}")
    found = {}
    for proof in PROOFS:
        if proof.name in names:
            print(f"{proof.name}: {proof.promise}", flush=True)
            found[proof.name] = outcome = try_proof(proof, is_short=given.short)
            word = "good" if outcome.is_good else "FAILED"
            print(f"  {word} after {outcome.seconds:.0f} s", flush=True)
            for line in outcome.lines:
                print(f"    {line}")
    if not given.no_page:
        write_page(found, is_short=given.short)
    return not all(outcome.is_good for outcome in found.values())


def try_proof(proof: Proof, *, is_short: bool) -> Outcome:
    """Run the command of a row, and collect its figures."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join((".", "spark")))
    rounds = proof.rounds[0 if is_short else 1]
    if rounds:
        environment["RMQ_CRASH_ROUNDS"] = str(rounds)
    began = time.monotonic()
    done = subprocess.run(
        proof.command(is_short),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    is_good = done.returncode == 0
    lines = done.stdout.splitlines()
    found = [line.strip(" .") for line in lines if re.search(proof.figures, line)]
    shown = list(dict.fromkeys(found))  # some laboratories print a table twice
    if not is_good:
        shown = [*shown, *lines[-30:]]
    return Outcome(is_good, time.monotonic() - began, tuple(shown))


def write_page(found: dict[str, Outcome], *, is_short: bool) -> None:
    """Write the table into the page, between its marks."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    runs = last_runs(old)
    for name, outcome in found.items():
        runs[name] = result_text(outcome, is_short=is_short)
    table = "\n".join(table_lines(runs))
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def last_runs(table: str) -> dict[str, str]:
    """Return the last cell of each row of a table, by the name of the row."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "|" in line]
    return {cells[0]: cells[-1] for cells in rows}


def table_lines(runs: dict[str, str]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| row | faults | promise | trials | last run |"
    yield "|---|---|---|---|---|"
    for proof in PROOFS:
        result = runs.get(proof.name, "not tried")
        cells = (proof.name, proof.faults, proof.promise, proof.trials, result)
        yield "| " + " | ".join(cells) + " |"


def result_text(outcome: Outcome, *, is_short: bool) -> str:
    """Return the cell of a result."""
    commit = output_of("git", "rev-parse", "--short=12", "HEAD")
    day = output_of("git", "log", "-1", "--format=%cs")
    form = "short" if is_short else "long"
    lines = [line.replace("|", "/") for line in outcome.lines[:SHOWN_LINES]]
    run = f"{form} form, {outcome.seconds:.0f} s, commit {commit} of {day}"
    return "<br>".join((*(lines if outcome.is_good else ["**failed**"]), run))


def output_of(*command: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
