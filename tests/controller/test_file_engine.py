"""Two copies of a controller's state: what is sure, and what is doubtful."""

import itertools
import math

import pytest
import trio
import trio.testing

from rmq.controller.engine import Term, encode_group
from rmq.controller.file_engine import FileEngine
from rmq.core.errors import EngineAway
from tests.controller.test_groups import group

TERM = Term(1, math.inf)
NAMES = "groups.json", "groups.2.json"


class Folder:
    """A controller's folder between two runs."""

    def __init__(self, path):
        self.path = path

    async def open(self):
        """Return an engine whose lock is free again, and its state."""
        engine = FileEngine(self.path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.campaign, "h:1", lambda _: None)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return engine, await engine.load()

    async def change(self, *epochs):
        engine, view = await self.open()
        known = view.groups.get("b")
        revision = known.revision if known else 0
        for epoch in epochs:
            state = group(1, 2, sync=(1, 2), epoch=epoch)
            revision = await engine.swap("b", state, revision, TERM)

    def copies(self):
        return [(self.path / name).read_bytes() for name in NAMES]

    def put(self, *copies):
        for name, data in zip(NAMES, copies, strict=True):
            path = self.path / name
            path.unlink(missing_ok=True)
            if data is not None:
                path.write_bytes(data)

    async def read(self):
        _, view = await self.open()
        found = view.groups.get("b")
        return (found.group.master_epoch if found else 0), view.doubtful == {"b"}


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


async def test_both_copies_have_each_change(folder):
    await folder.change(1, 2, 3)
    assert await folder.read() == (3, False)
    assert len(set(folder.copies())) == 1


async def test_a_kill_between_the_two_files_is_no_doubt(folder):
    await folder.change(1)
    before, _ = folder.copies()
    await folder.change(2)
    _, after = folder.copies()
    folder.put(before, after)
    assert await folder.read() == (2, False)


async def test_an_older_copy_makes_the_state_doubtful(folder):
    await folder.change(1)
    old, _ = folder.copies()
    await folder.change(2, 3)
    new, _ = folder.copies()
    for copies in ((old, new), (new, old), (None, new), (new, None)):
        folder.put(*copies)
        assert await folder.read() == (3, True)
    folder.put(None, old)
    assert await folder.read() == (1, True)


@pytest.mark.parametrize("number", [0, 1])
async def test_a_damaged_copy_leaves_the_other_one(folder, number):
    await folder.change(1, 2)
    copies = folder.copies()
    good = copies[number]
    for damaged in (b"", good[:50], b"\0" * len(good), b"[]", b"{}", b"7"):
        copies[number] = damaged
        folder.put(*copies)
        epoch, is_doubtful = await folder.read()
        assert (epoch, is_doubtful) == (2, True), damaged
    for at in range(0, len(good), 7):
        changed = bytearray(good)
        changed[at] ^= 1
        copies[number] = bytes(changed)
        folder.put(*copies)
        epoch, is_doubtful = await folder.read()
        assert epoch == 2
        assert is_doubtful or changed.split() == good.split()


async def test_nothing_is_begun_again_if_both_are_damaged(folder):
    folder.put(b"{", b"\0")
    with pytest.raises(EngineAway, match=r"groups\.json cannot be read"):
        await folder.open()


async def test_a_new_folder_is_sure(folder):
    assert await folder.read() == (0, False)


async def test_the_form_of_before_is_read(folder):
    text = b'{"b": %s}' % encode_group(group(1, 2, sync=(1, 2), epoch=1))
    folder.put(text, None)
    assert await folder.read() == (1, False)
    await folder.change(2)
    assert await folder.read() == (2, False)


async def test_doubt_ends_with_the_next_term(folder):
    await folder.change(1, 2)
    folder.put(None, folder.copies()[1])
    engine, view = await folder.open()
    assert view.doubtful == {"b"}
    same = group(1, 2, 3, sync=(1, 2), epoch=2)
    await engine.swap("b", same, view.groups["b"].revision, TERM)
    view = await engine.load()
    assert view.doubtful == {"b"}, "another member proves nothing"
    newer = group(1, 2, sync=(2,), epoch=3)
    await engine.swap("b", newer, view.groups["b"].revision, TERM)
    assert not (await engine.load()).doubtful


async def test_generations_of_all_distances(folder):
    texts = {}
    for epoch in range(1, 5):
        await folder.change(epoch)
        texts[epoch], _ = folder.copies()
    for one, other in itertools.product(texts, repeat=2):
        folder.put(texts[one], texts[other])
        assert await folder.read() == (max(one, other), abs(one - other) > 1)
