"""Two copies of a controller's state: what is sure, and what is doubtful."""

import itertools
import math
import os

import pytest

from rmq.controller.engine import Term
from rmq.controller.file_engine import FileEngine
from rmq.core.errors import EngineAway
from tests.controller.test_groups import group

TERM = Term(1, math.inf)
NAMES = "groups.json", "groups.2.json"


class Folder:
    """A controller's folder between two runs."""

    def __init__(self, path):
        self.path = path
        self.revision = 0

    def open(self):
        engine = FileEngine(self.path)
        os.close(engine._lock)
        return engine

    async def change(self, *epochs):
        engine = self.open()
        for epoch in epochs:
            state = group(1, 2, sync=(1, 2), epoch=epoch)
            known = engine._view.groups.get("b")
            await engine.swap("b", state, known.revision if known else 0, TERM)
        return engine

    def copies(self):
        return [(self.path / name).read_bytes() for name in NAMES]

    def put(self, *copies):
        for name, data in zip(NAMES, copies, strict=True):
            path = self.path / name
            path.unlink(missing_ok=True)
            if data is not None:
                path.write_bytes(data)

    def read(self):
        view = self.open()._view
        found = view.groups.get("b")
        return (found.group.master_epoch if found else 0), view.doubtful == {"b"}


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


async def test_both_copies_have_each_change(folder):
    await folder.change(1, 2, 3)
    assert folder.read() == (3, False)
    assert len(set(folder.copies())) == 1


async def test_a_kill_between_the_two_files_is_no_doubt(folder):
    await folder.change(1)
    before, _ = folder.copies()
    await folder.change(2)
    _, after = folder.copies()
    folder.put(before, after)
    assert folder.read() == (2, False)


async def test_an_older_copy_makes_the_state_doubtful(folder):
    await folder.change(1)
    old, _ = folder.copies()
    await folder.change(2, 3)
    new, _ = folder.copies()
    for copies in ((old, new), (new, old), (None, new), (new, None)):
        folder.put(*copies)
        assert folder.read() == (3, True)
    folder.put(None, old)
    assert folder.read() == (1, True)


@pytest.mark.parametrize("number", [0, 1])
async def test_a_damaged_copy_leaves_the_other_one(folder, number):
    await folder.change(1, 2)
    copies = folder.copies()
    good = copies[number]
    for damaged in (b"", good[:50], b"\0" * len(good), b"[]", b"{}", b"7"):
        copies[number] = damaged
        folder.put(*copies)
        epoch, is_doubtful = folder.read()
        assert (epoch, is_doubtful) == (2, True), damaged
    for at in range(0, len(good), 7):
        changed = bytearray(good)
        changed[at] ^= 1
        copies[number] = bytes(changed)
        folder.put(*copies)
        epoch, is_doubtful = folder.read()
        assert epoch == 2
        assert is_doubtful or changed.split() == good.split()


def test_nothing_is_begun_again_if_both_are_damaged(folder):
    folder.put(b"{", b"\0")
    with pytest.raises(EngineAway, match=r"groups\.json cannot be read"):
        folder.open()


def test_a_new_folder_is_sure(folder):
    assert folder.read() == (0, False)


async def test_the_form_of_before_is_read(folder):
    engine = await folder.change(1)
    text = b'{"b": %s}' % bytes(engine._content["b"])
    folder.put(text, None)
    assert folder.read() == (1, False)
    await folder.change(2)
    assert folder.read() == (2, False)


async def test_doubt_ends_with_the_next_term(folder):
    await folder.change(1, 2)
    folder.put(None, folder.copies()[1])
    engine = folder.open()
    assert engine._view.doubtful == {"b"}
    known = engine._view.groups["b"]
    same = group(1, 2, 3, sync=(1, 2), epoch=2)
    revision = await engine.swap("b", same, known.revision, TERM)
    assert engine._view.doubtful == {"b"}, "another member proves nothing"
    await engine.swap("b", group(1, 2, sync=(2,), epoch=3), revision, TERM)
    assert not engine._view.doubtful


def test_generations_of_all_distances(folder):
    for one, other in itertools.product(range(1, 5), repeat=2):
        texts = [seal(number) for number in (one, other)]
        folder.put(*texts)
        assert folder.read() == (max(one, other), abs(one - other) > 1)


def seal(generation):
    import msgspec

    from rmq.controller.engine import encode_group
    from rmq.controller.file_engine import _encode

    raw = msgspec.Raw(encode_group(group(1, 2, sync=(1, 2), epoch=generation)))
    return _encode(generation, {"b": raw})
