"""A short run of the fuzz; `make lab NAME=fuzz` is the long one."""

import importlib.util
import os
import random
import sys
from pathlib import Path

import pytest

from rmq.namesrv.request_gate import KINDS, Kind
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from tests.model.rights import NAMES_FREE, NAMES_GET
from tests.security.fuzz_node import Watch
from tests.security.identities import Identities

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("fuzz.py")


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("rmq_test_fuzz", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("seed", "has_policies"), [(1, False), (2, False), (3, True)])
def test_twenty_thousand_frames(fuzz, tmp_path, seed, has_policies):
    report = fuzz.fuzz(tmp_path, 20_000, seed, has_policies=has_policies)
    assert not report.holes, report.holes
    assert (report.forbidden > 2_000) is has_policies
    assert not report.crashes, report.crashes
    assert not report.leaks, report.leaks
    assert report.frames == 20_000
    assert report.answers.total() > 10_000


def test_a_seed_gives_the_same_frames(fuzz):
    corpus = fuzz.recorded()
    both = [fuzz.Frames(fuzz.random.Random(5), corpus) for _ in range(2)]
    assert [both[0].next() for _ in range(500)] == [both[1].next() for _ in range(500)]


@pytest.mark.parametrize("has_policies", [False, True])
def test_codes_of_tools_alone(fuzz, tmp_path, has_policies):
    codes = fuzz.ADMIN_CODES
    report = fuzz.fuzz(tmp_path, 10_000, 3, codes, has_policies=has_policies)
    assert report.is_good, list(report.lines())
    assert report.answers[0] > 1_000
    frames = fuzz.Frames(fuzz.random.Random(3), fuzz.recorded(), codes)
    assert {decode(frame).code for _, frame in frames.corpus} <= set(codes)
    assert len(frames.corpus) > 500


def test_what_leaves_the_store_is_seen(fuzz, tmp_path):
    store = tmp_path / "store"
    watch = Watch(store)
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
    talk.tail, talk.secrets = b"", 0
    talk.count_secrets(b"password=" + fuzz.SECRET.encode()[:4])
    assert talk.secrets == 0
    talk.count_secrets(fuzz.SECRET.encode()[4:] + b"1")
    talk.count_secrets(b"more")
    assert talk.secrets == 1


def test_an_answer_that_a_user_may_not_have_is_seen():
    identities = Identities(random.Random(1))
    for _ in range(200):
        request = Command(
            RequestCode.PULL_MESSAGE, {"topic": "GoldenB", "consumerGroup": "G"}
        )
        identities.put_into(request, "broker")
        identities.hear(request.reply(0))
    assert identities.forbidden == len(identities.holes) > 50
    senders = {hole.split(" of ")[1].split(" ")[0] for hole in identities.holes}
    assert senders == {"penny", "nora", "forger", "unsigned"}


def test_a_refusal_is_no_hole():
    identities = Identities(random.Random(1))
    for _ in range(100):
        request = Command(RequestCode.SEND_MESSAGE_V2, {"b": "Theirs"})
        identities.put_into(request, "broker")
        identities.hear(request.reply(16))
    assert identities.forbidden > 20
    assert not identities.holes


def test_a_forbidden_answer_of_the_name_server_is_a_hole():
    identities = Identities(random.Random(7))
    for _ in range(200):
        for code in (105, 106, 318):
            request = Command(code, {})
            identities.put_into(request, "namesrv")
            identities.hear(request.reply(0))
    assert identities.forbidden == len(identities.holes) > 50
    assert {hole.split(" ")[2] for hole in identities.holes} == {"106", "318"}


def test_the_oracle_of_the_name_server_agrees_with_its_door():
    kinds = {kind: {c for c in KINDS if KINDS[c] is kind} for kind in Kind}
    assert kinds[Kind.ROUTE] == NAMES_FREE
    assert kinds[Kind.READ] == NAMES_GET
