"""`setup.py`: the shared module, and the time left that its bar shows."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOT = (
    "arrow.columns", "bytes.checksum", "handlers.pull_path", "handlers.send_path",
    "log.decode", "log.encode", "log.log_writer", "log.tail", "reactor.header_scan",
)  # fmt: skip
QUICK_START = Path("docs/start/quickstart.md")
RECORDED = Path(__file__).with_name("build_times.txt")


@pytest.fixture(scope="module")
def build():
    """Return setup.py as a module; it sets up nothing."""
    spec = importlib.util.spec_from_file_location("build_of_rmq", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        spec.loader.exec_module(module)
    return module


def recordings() -> dict[str, list[tuple[int, float]]]:
    """Return cost and seconds of each module, in the order of the build."""
    found = {}
    for line in RECORDED.read_text().splitlines():
        name, _, pairs = line.partition(": ")
        words = (pair.split("/") for pair in pairs.split())
        found[name] = [(int(cost), float(took_s)) for cost, took_s in words]
    return found


def time_left(
    build, times: list[tuple[int, float]], workers: int
) -> list[tuple[float, int]]:
    """Play a build; return what is really left and what the bar shows each second."""
    now = 0.0
    progress = build.Progress([cost for cost, _ in times], workers, lambda: now)
    ends, free = [], [0.0] * workers
    for number, (_, took_s) in enumerate(times):
        first = free.index(min(free))
        free[first] += took_s
        ends.append((free[first], number))
    shown, end_s = [], max(free)
    ends.sort()
    while now < end_s - 1:
        now += 1
        while ends[0][0] <= now:
            progress.add(ends[0][1], times[ends.pop(0)[1]][1])
        if match := re.search(r"(\d+) s left", progress.line()):
            shown.append((end_s - now, int(match[1])))
    return shown


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("name", recordings())
def test_the_time_left_hardly_rises_and_is_about_right(build, name, workers):
    shown = time_left(build, recordings()[name], workers)
    assert len(shown) > 10
    least = shown[0][1]
    for _, estimate in shown:
        assert estimate <= least * 1.1, shown
        least = min(least, estimate)
    for real, estimate in shown[len(shown) // 4 :]:
        assert abs(estimate - real) <= max(3, 0.35 * real), shown


def test_a_module_shares_the_code_that_cython_gives_to_each(build):
    shared, *others = build.EXTENSIONS
    assert shared.name == build.SHARED
    assert not (ROOT / shared.sources[0]).exists()
    assert len(others) == len(list(ROOT.glob("rmq/_fastpath/*/*.pyx")))


def test_the_plain_build_shows_no_warnings_and_hot_modules_are_optimised(build):
    levels = {}
    for each in build.EXTENSIONS:
        level, *others = each.extra_compile_args
        levels[each.name.removeprefix("rmq._fastpath.")] = level
        assert "-w" in others
    assert {name for name, level in levels.items() if level == "-O2"} == build.AT_O2
    for name in HOT:
        assert levels[name] == "-O3"


def test_the_quick_start_names_the_number_of_modules(build):
    text = (ROOT / QUICK_START).read_text()
    numbers = re.findall(r"(?:compil\w+|its) (\d+) (?:compiled )?modules", text)
    assert {int(each) for each in numbers} == {len(build.EXTENSIONS)}


def test_the_small_set_of_libraries_is_a_part_of_all():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    assert {"include-group": "test"} in groups["check"]
    assert {"include-group": "check"} in groups["dev"]
