"""`python -m tests.simulation --seed 7`: simulate groups, each by its seed.

Each seed is a process of its own, so that it is the same alone and among others.  The
history of a seed that fails is printed, with the disturbances that it takes to fail.
"""

import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import click

from tests.simulation import outside
from tests.simulation.run import Result, Simulation

LOG_FORMAT = "%(created).6f %(name)s: %(message)s"


@click.command()
@click.option("--seed", default=0, help="the first one")
@click.option("--seeds", default=1, help="how many")
@click.option("--minutes", default=1.0, help="simulated time of each")
@click.option("--verbose", is_flag=True, help="print all histories")
@click.option("--logs", is_flag=True, help="print what the nodes log")
@click.option("--shrink", is_flag=True, help="leave out what failures do not need")
def main(
    seed: int,
    seeds: int,
    minutes: float,
    *,
    verbose: bool,
    logs: bool,
    shrink: bool,
) -> None:
    """Print a line for each seed; the exit code says whether one has failed."""
    logging.basicConfig(
        level=logging.WARNING if logs else logging.CRITICAL, format=LOG_FORMAT
    )
    began, failed = time.monotonic(), []
    for each in range(seed, seed + seeds):
        if not _is_good(each, minutes, (), verbose=verbose):
            failed.append(each)
            if shrink:
                _shrink(each, minutes)
    took = time.monotonic() - began
    click.echo(
        f"{seeds} seeds of {minutes:g} minutes in {took:.0f} s; failed: {failed}"
    )
    sys.exit(bool(failed))


def _is_good(
    seed: int, minutes: float, without: Collection[int], *, verbose: bool
) -> bool:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    root = Path(tempfile.gettempdir()) / f"simulation-of-{seed:06d}"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    result = Simulation(outside.library(), root, seed, minutes, without).run()
    shutil.rmtree(root, ignore_errors=True)
    _print(result, verbose=verbose or bool(result.faults))
    sys.stdout.flush()
    os._exit(bool(result.faults))


def _print(result: Result, *, verbose: bool) -> None:
    if verbose:
        click.echo("\n".join(result.lines))
    for fault in result.faults:
        click.echo(f"  {fault}")
    click.echo(
        f"seed {result.seed}: {len(result.faults)} faults, {result.acknowledged} "
        f"acknowledged, {result.stored} stored, {result.disturbances} disturbances, "
        f"epoch {result.epoch}, digest {result.digest}"
    )


def _shrink(seed: int, minutes: float) -> None:
    """Leave out one disturbance after the other, as long as the seed fails."""
    without: set[int] = set()
    for number in range(int(minutes * 30)):
        if not _is_good(seed, minutes, without | {number}, verbose=False):
            without.add(number)
    click.echo(f"seed {seed} also fails without {sorted(without)}")


if __name__ == "__main__":
    outside.ensure_preloaded()
    main()
