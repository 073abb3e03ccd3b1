"""Turns of a comparison: what others took meanwhile, and turns that are repeated.

In a turn every server plays the same case, one after the other.  A turn in which other
processes took too much of the machine is played again, a few times at most: what is
published is the quietest, and says so if none was quiet.
"""

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

OTHERS_LIMIT = 0.10
"""Share of all cores that processes outside the comparison may take."""
REPEATS = 3
"""A machine that is never quiet must end, too."""

FLAGS_FIELD, KERNEL_THREAD = 6, 0x00200000

Turn = dict[str, dict[str, float]]
"""Figures of each server."""


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def precise_cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process so far, which the kernel counts in ns."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except OSError:
            continue  # the thread has ended
    return total / 1e9


def kernel_threads_seconds() -> float:
    """CPU time of the kernel's own threads so far: they write what our load leaves."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[FLAGS_FIELD]) & KERNEL_THREAD:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


class OtherProcesses:
    """Watches what share of all cores goes to others than our servers and generator."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._began = time.perf_counter()
        self._before = self._taken()

    def share(self) -> float:
        """Return their share since this object was made, 0 to 1."""
        seconds = (time.perf_counter() - self._began) * os.cpu_count()
        return max(0.0, (self._taken() - self._before) / seconds)

    def _taken(self) -> float:
        """CPU seconds of the whole machine without ours; time stolen from it counts."""
        line = Path("/proc/stat").read_text().partition("\n")[0]
        user, nice, system, _, _, *rest = (int(word) for word in line.split()[1:9])
        busy = (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        servers = sum(cpu_seconds(pid) for pid in self._pids)
        ours = children.ru_utime + children.ru_stime + servers
        return busy - ours - kernel_threads_seconds()


def quiet(
    play: Callable[[], Turn],
    pids: list[int],
    watch: Callable[[list[int]], OtherProcesses] = OtherProcesses,
) -> tuple[Turn, float]:
    """Play a turn until it is quiet; its figures, and what others took of it."""
    best: tuple[Turn, float] | None = None
    for _ in range(1 + REPEATS):
        others = watch(pids)
        turn = play()
        share = others.share()
        if best is None or share < best[1]:
            best = turn, share
        if share <= OTHERS_LIMIT:
            break
    assert best is not None
    return best
