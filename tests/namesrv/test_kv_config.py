"""Values survive a restart, a lost file and a broken one."""

import pytest
import trio

from rmq.errors import RequestRejected, StoreError
from rmq.namesrv import kv_config as module
from rmq.namesrv.kv_config import KVConfig


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


def saved(path, **values):
    config = KVConfig(path)
    for key, value in values.items():
        config.put("N", key, value)
        trio.run(config.save)
    return config


def loaded(path):
    config = KVConfig(path)
    config.load()
    return config.namespace("N")


def test_an_absent_file_is_empty(path):
    assert loaded(path) == {}


def test_values_survive_a_restart(path):
    saved(path, k="v", order="broker-a:4")
    assert loaded(path) == {"k": "v", "order": "broker-a:4"}


def test_a_crash_between_the_renames_leaves_the_one_before(path):
    saved(path, k="1", other="2")
    path.unlink()
    assert loaded(path) == {"k": "1"}


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"configTable":[1]}'])
def test_a_broken_file_falls_back_to_the_one_before(path, broken):
    saved(path, k="1", other="2")
    path.write_bytes(broken)
    assert loaded(path) == {"k": "1"}


def test_a_broken_file_alone_is_not_passed_over_silently(path):
    path.parent.mkdir()
    path.write_bytes(b"{")
    with pytest.raises(StoreError, match="mend or remove"):
        loaded(path)


def test_a_value_without_name_is_refused_with_javas_words(path):
    for namespace, key in (("", "k"), ("N", "")):
        with pytest.raises(RequestRejected, match="1: namespace or key is null"):
            KVConfig(path).put(namespace, key, "v")


def test_deleting_leaves_no_empty_namespace(path):
    config = saved(path, k="v")
    config.delete("N", "k")
    config.delete("unknown", "k")
    trio.run(config.save)
    assert b'"N"' not in path.read_bytes()


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
