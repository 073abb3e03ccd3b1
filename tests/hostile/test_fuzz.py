"""A short run of the fuzz; `make fuzz` is the long one."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("fuzz.py")


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("rmq_test_fuzz", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_thousand_frames(fuzz, tmp_path, golden, seed):
    report = fuzz.fuzz(tmp_path, 20_000, seed, golden)
    assert not report.crashes, report.crashes
    assert not report.leaks, report.leaks
    assert report.frames == 20_000
    assert report.answers.total() > 10_000


def test_a_seed_gives_the_same_frames(fuzz, golden):
    corpus = fuzz.recorded(golden)
    both = [fuzz.Frames(fuzz.random.Random(5), corpus) for _ in range(2)]
    assert [both[0].next() for _ in range(500)] == [both[1].next() for _ in range(500)]
