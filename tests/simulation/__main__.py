"""`python -m tests.simulation --seed 7`: simulate groups, each by its seed.

Each seed is a process of its own, so that it is the same alone and among others.  The
history of a seed that fails is printed, with the disturbances that it takes to fail.
"""

import logging
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import click

from tests.simulation import loads, mutations, outside
from tests.simulation.damage import DAMAGE_KINDS
from tests.simulation.run import Result, Simulation

LOG_FORMAT = "%(created).6f %(name)s: %(message)s"
CPU_LIMIT_S = 60, 60
"""Of a seed, and for each of its minutes: a node may run in a circle."""


class Task(NamedTuple):
    """What a process simulates."""

    seed: int
    minutes: float
    steps: int | None
    mutation: str | None
    is_verbose: bool
    brokers: int = 2
    without: frozenset[int] = frozenset()
    damages: tuple[str, ...] = ()


@click.command()
@click.option("--seed", default=0, help="the first one")
@click.option("--seeds", default=1, help="how many")
@click.option("--minutes", default=1.0, help="simulated time of each")
@click.option("--brokers", default=2, help="how many a group has")
@click.option(
    "--damage", multiple=True, type=click.Choice(DAMAGE_KINDS), help="kinds to add"
)
@click.option(
    "--load",
    type=click.Choice([kind.topic for kind in loads.KINDS]),
    help="take only seeds with this load",
)
@click.option("--steps", type=int, help="end after so many disturbances")
@click.option("--workers", default=1, help="how many at a time")
@click.option(
    "--mutation", type=click.Choice([*mutations.MUTATIONS]), help="a mistake to put in"
)
@click.option("--until-found", is_flag=True, help="stop at the first seed that fails")
@click.option("--verbose", is_flag=True, help="print all histories")
@click.option("--logs", is_flag=True, help="print what the nodes log")
@click.option("--shrink", is_flag=True, help="leave out what failures do not need")
def main(
    seed: int,
    seeds: int,
    minutes: float,
    brokers: int,
    damage: tuple[str, ...],
    load: str | None,
    steps: int | None,
    workers: int,
    mutation: str | None,
    *,
    until_found: bool,
    verbose: bool,
    logs: bool,
    shrink: bool,
) -> None:
    """Print a line for each seed; the exit code says whether one has failed."""
    logging.basicConfig(
        level=logging.WARNING if logs else logging.CRITICAL, format=LOG_FORMAT
    )
    chosen = (
        each for each in count(seed) if load is None or loads.has_load(load, each)
    )
    tasks = [
        Task(each, minutes, steps, mutation, verbose, brokers, damages=damage)
        for each in islice(chosen, seeds)
    ]
    began, ended_seeds, failed = time.monotonic(), 0, []
    with closing(ended(tasks, workers)) as results:
        for task, is_good in results:
            ended_seeds += 1
            if is_good:
                continue
            failed.append(task.seed)
            if shrink:
                click.echo(f"seed {task.seed} also fails without {shrunk(task)}")
            if until_found:
                steps = least_steps(task)
                click.echo(f"seed {task.seed} fails after {steps} disturbances")
                break
    took = time.monotonic() - began
    failed.sort()
    click.echo(
        f"{ended_seeds} seeds of {minutes:g} minutes in {took:.0f} s; failed: {failed}"
    )
    sys.exit(bool(failed))


def ended(tasks: list[Task], workers: int) -> Generator[tuple[Task, bool]]:
    """Run tasks, some at a time; yield each that has ended, and whether it was good.

    Others may have children: one seed is run again while further ones run.
    """
    running: dict[int, tuple[int, Task]] = {}
    waiting = iter(tasks)
    try:
        while True:
            while len(running) < workers and (task := next(waiting, None)) is not None:
                child = start(task, running)
                running[os.pidfd_open(child)] = child, task
            if not running:
                return
            for descriptor in select.select(running, [], [])[0]:
                child, task = running.pop(descriptor)
                os.close(descriptor)
                _, status = os.waitpid(child, 0)
                yield task, is_through(task, status)
    finally:
        for descriptor, (child, task) in running.items():
            os.kill(child, signal.SIGKILL)
            os.close(descriptor)
            os.waitpid(child, 0)
            discard(task)


def is_through(task: Task, status: int) -> bool:
    """Print what an ended task wrote; whether it was good."""
    click.echo(output_of(task).read_text(), nl=False)
    discard(task)
    if os.WIFSIGNALED(status):
        click.echo(f"seed {task.seed}: ended by signal {os.WTERMSIG(status)}")
    return status == 0


def discard(task: Task) -> None:
    """Remove the files of a task."""
    output_of(task).unlink(missing_ok=True)
    shutil.rmtree(place_of(task), ignore_errors=True)


def place_of(task: Task) -> Path:
    """Return the folder of a task; the order of sets may depend on its name."""
    return Path(tempfile.gettempdir()) / f"simulation-of-{task.seed:06d}"


def output_of(task: Task) -> Path:
    return place_of(task).with_suffix(".txt")


def start(task: Task, descriptors: Iterable[int]) -> int:
    """Begin a simulation in a process of its own, which writes to a file.

    It has none of these descriptors of others, so that its own have the same numbers.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    for each in descriptors:
        os.close(each)
    output = os.open(output_of(task), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    limit_s = int(CPU_LIMIT_S[0] + CPU_LIMIT_S[1] * task.minutes)
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    if task.mutation is not None:
        mutations.put_in(task.mutation)
    result = simulate(task)
    write(result, is_verbose=task.is_verbose or bool(result.faults))
    sys.stdout.flush()
    os._exit(bool(result.faults))


def simulate(task: Task) -> Result:
    place = place_of(task)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    simulation = Simulation(
        outside.library(),
        place,
        task.seed,
        task.minutes,
        brokers=task.brokers,
        steps=task.steps,
        without=task.without,
        damages=task.damages,
    )
    return simulation.run()


def write(result: Result, *, is_verbose: bool) -> None:
    if is_verbose:
        click.echo("\n".join(result.lines))
    for fault in result.faults:
        click.echo(f"  {fault}")
    click.echo(
        f"seed {result.seed}: {len(result.faults)} faults, {result.acknowledged} "
        f"acknowledged, {result.stored} stored, {result.disturbances} disturbances, "
        f"epoch {result.epoch}, digest {result.digest}"
    )


def is_good(task: Task) -> bool:
    return all(good for _, good in ended([task], 1))


def shrunk(task: Task) -> list[int]:
    """Leave out one disturbance after the other, as long as the seed fails."""
    without: set[int] = set()
    for number in range(int(task.minutes * 30)):
        if not is_good(task._replace(without=frozenset({*without, number}))):
            without.add(number)
    return sorted(without)


def least_steps(task: Task) -> int:
    """Return a number of disturbances after which the seed fails, and not before."""
    good, bad = 0, int(task.minutes * 60)
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_good(task._replace(steps=middle)):
            good = middle
        else:
            bad = middle
    return bad


if __name__ == "__main__":
    outside.ensure_preloaded()
    main()
