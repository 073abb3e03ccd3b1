"""A short run of the fuzz; `make fuzz` is the long one."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from rmq.protocol.frames import decode

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
def test_twenty_thousand_frames(fuzz, tmp_path, seed):
    report = fuzz.fuzz(tmp_path, 20_000, seed)
    assert not report.crashes, report.crashes
    assert not report.leaks, report.leaks
    assert report.frames == 20_000
    assert report.answers.total() > 10_000


def test_a_seed_gives_the_same_frames(fuzz):
    corpus = fuzz.recorded()
    both = [fuzz.Frames(fuzz.random.Random(5), corpus) for _ in range(2)]
    assert [both[0].next() for _ in range(500)] == [both[1].next() for _ in range(500)]


@pytest.mark.parametrize("is_signed", [False, True])
def test_codes_of_tools_alone(fuzz, tmp_path, is_signed):
    codes = fuzz.ADMIN_CODES
    report = fuzz.fuzz(tmp_path, 10_000, 3, codes, is_signed=is_signed)
    assert report.is_good, list(report.lines())
    assert report.answers[0] > 1_000
    frames = fuzz.Frames(fuzz.random.Random(3), fuzz.recorded(), codes)
    assert {decode(frame).code for _, frame in frames.corpus} <= set(codes)
    assert len(frames.corpus) > 500


def test_what_leaves_the_store_is_seen(fuzz, tmp_path):
    store = tmp_path / "store"
    watch = fuzz.Watch(store)
    watch("open", (str(store / "x"), "w", os.O_WRONLY | os.O_CREAT))
    watch("os.rename", (store / "x", store / "y", -1, -1))
    watch("open", (os.__file__, "r", os.O_RDONLY))
    watch("os.listdir", ("/",))
    assert not watch.found
    watch("open", (str(store / ".." / "x"), "w", os.O_WRONLY | os.O_CREAT))
    watch("open", ("/etc/hostname", "r", os.O_RDONLY))
    watch("os.rename", (store / "x", tmp_path / "y", -1, -1))
    watch("subprocess.Popen", ("sh", ["-c", "id"], None, None))
    assert [each.split(" ")[0] for each in sorted(watch.found)] == [
        "open", "open", "os.rename", "subprocess.Popen"
    ]  # fmt: skip


def test_a_secret_in_two_parts_is_seen(fuzz):
    talk = fuzz.Conversation.__new__(fuzz.Conversation)
    talk._tail, talk.secrets = b"", 0
    talk._look(b"password=" + fuzz.SECRET.encode()[:4])
    assert talk.secrets == 0
    talk._look(fuzz.SECRET.encode()[4:] + b"1")
    talk._look(b"more")
    assert talk.secrets == 1
