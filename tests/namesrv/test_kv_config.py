"""Values survive a restart, a lost file and a broken one."""

import random

import pytest
import trio
import trio.testing

from rmq.core.errors import RequestRejected, StoreError
from rmq.namesrv import kv_config as module
from rmq.namesrv.kv_config import KVConfig
from rmq.protocol import fastjson
from rmq.testing import ManualClock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


def saved(path, **values):
    config = KVConfig(path, ManualClock())
    for key, value in values.items():
        config.put("N", key, value)
        trio.run(config.save)
    return config


def loaded(path):
    config = KVConfig(path, ManualClock())
    config.load()
    return config.entries_of("N")


def test_an_absent_file_is_empty(path):
    assert loaded(path) == {}


def test_values_survive_a_restart(path):
    saved(path, k="v", order="broker-a:4")
    assert loaded(path) == {"k": "v", "order": "broker-a:4"}


def test_a_crash_between_the_renames_leaves_the_one_before(path):
    saved(path, k="1", other="2")
    path.unlink()
    assert loaded(path) == {"k": "1"}


def without_seal(text):
    first, seal, rest = text.split(b"\n", 2)
    assert seal.startswith(b'\t"rmqSeal":"')
    return first + b"\n" + rest


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"configTable":[1]}'])
def test_a_broken_file_falls_back_to_the_one_before(path, broken):
    saved(path, k="1", other="2")
    path.write_bytes(broken)
    assert loaded(path) == {"k": "1"}


def test_a_broken_file_alone_is_kept_and_named(path):
    path.parent.mkdir()
    path.write_bytes(b"{")
    with pytest.raises(StoreError, match=r"kvConfig\.json: "):
        loaded(path)
    assert path.read_bytes() == b"{"


def test_a_broken_file_with_a_broken_backup_stops_the_start(path):
    path.parent.mkdir()
    for name in ("kvConfig.json", "kvConfig.json.bak"):
        path.with_name(name).write_bytes(b"{")
    with pytest.raises(StoreError, match="or remove them all"):
        loaded(path)


def test_a_value_without_name_is_refused_with_javas_words(path):
    for namespace, key in (("", "k"), ("N", "")):
        with pytest.raises(RequestRejected, match="1: namespace or key is null"):
            KVConfig(path, ManualClock()).put(namespace, key, "v")


def test_deleting_leaves_no_empty_namespace(path):
    config = saved(path, k="v")
    config.delete("N", "k")
    config.delete("unknown", "k")
    trio.run(config.save)
    assert b'"N"' not in path.read_bytes()


def test_the_file_has_what_the_table_has_after_any_changes(path):
    config, wanted, dice = KVConfig(path, ManualClock()), {}, random.Random(5)
    for _ in range(400):
        name, key = dice.choice(["N", "É", "n n"]), dice.choice('ab"cdeé\\')
        if dice.random() < 0.4:
            config.delete(name, key)
            wanted.get(name, {}).pop(key, None)
        else:
            value = dice.choice(["v", "", "größe", '"', "\n"])
            config.put(name, key, value)
            wanted.setdefault(name, {})[key] = value
        if dice.random() < 0.2:
            trio.run(config.save)
            table = {name: entries for name, entries in wanted.items() if entries}
            text = fastjson.dumps_pretty({"configTable": table})
            assert without_seal(path.read_bytes()) == text
    trio.run(config.save)
    again = KVConfig(path, ManualClock())
    again.load()
    assert again.snapshot() == config.snapshot()


def test_the_table_has_limits(path, monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 1)
    config = saved(path, k="v")
    config.put("N", "k", "replaced")
    for namespace, key, value in (
        ("N", "second", ""),
        ("N" * 256, "k", ""),
        ("N", "k" * 256, ""),
        ("N", "k", "v" * (module.MAX_VALUE_SIZE + 1)),
    ):
        with pytest.raises(RequestRejected, match="at most"):
            config.put(namespace, key, value)
    monkeypatch.setattr(module, "MAX_TABLE_SIZE", 3)
    with pytest.raises(RequestRejected, match="at most"):
        config.put("N", "k", "four")


def test_many_changes_share_a_write_and_each_is_kept(path, monkeypatch):
    config, texts = KVConfig(path, ManualClock()), []
    monkeypatch.setattr(config, "write", lambda pieces: texts.append(b"".join(pieces)))

    async def put(number):
        config.put("N", f"k{number}", "v")
        await config.wait_saved(number)
        assert any(f'"k{number}"'.encode() in text for text in texts)

    async def all_at_once():
        async with trio.open_nursery() as nursery:
            for number in range(module.MAX_WAITING):
                nursery.start_soon(put, number)

    trio.run(all_at_once)
    assert len(texts) <= 3


def test_a_change_during_a_write_is_in_the_next_one(path):
    config = KVConfig(path, ManualClock())

    async def change():
        async with trio.open_nursery() as nursery:
            config.put("N", "a", "1")
            nursery.start_soon(config.save)
            await trio.testing.wait_all_tasks_blocked()
            config.put("N", "b", "2")
            await config.save()

    trio.run(change)
    assert loaded(path) == {"a": "1", "b": "2"}


def test_what_cannot_be_written_is_said_and_tried_again(path, monkeypatch):
    config = KVConfig(path, ManualClock())
    config.put("N", "k", "v")
    with monkeypatch.context() as patch:
        patch.setattr(config, "write", fail)
        with pytest.raises(RequestRejected, match="not saved: No space"):
            trio.run(config.wait_saved, None)
    trio.run(config.save)
    assert loaded(path) == {"k": "v"}


def fail(text):
    raise OSError(28, "No space left on device")


async def test_a_change_that_cannot_wait_is_refused_and_not_made(path):
    """It was made, and then answered as refused."""
    config = KVConfig(path, ManualClock())
    async with trio.open_nursery() as nursery:
        for number in range(module.MAX_WAITING):
            config.put("N", f"k{number}", "v")
            nursery.start_soon(config.wait_saved, None)
        for _ in range(2):  # tasks of one turn run in any order
            await trio.lowlevel.checkpoint()
        for change in (
            lambda: config.put("N", "one more", "v"),
            lambda: config.delete("N", "k0"),
        ):
            with pytest.raises(RequestRejected, match="2: 64 changes wait until"):
                change()
    assert sorted(loaded(path)) == sorted(f"k{n}" for n in range(module.MAX_WAITING))
    config.delete("N", "k0")


def test_a_namespace_more_than_the_limit_is_refused(path, monkeypatch):
    monkeypatch.setattr(module, "MAX_NAMESPACES", 2)
    config = KVConfig(path, ManualClock())
    for name in "AB":
        config.put(name, "k", "v")
    with pytest.raises(RequestRejected, match="at most 2 namespaces"):
        config.put("C", "k", "v")
    config.delete("A", "k")
    config.put("C", "k", "v")
