"""Changes while running: all of them or none, in the process and in the file."""

from dataclasses import dataclass

import pytest

from rmq.config import changes as module
from rmq.config.changes import apply_changes, as_properties, find_differences, rewrite
from rmq.config.option import option
from rmq.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class First:
    """Keys of one class."""

    pause_ms: int = option(5, key="pause", low=1, high=9, dynamic=True, doc="a pause")
    most: int = option(7, key="most", dynamic=True, doc="not below the pause")
    port: int = option(1, key="port", doc="fixed")
    word: str = option("w", key="word", secret=True, dynamic=True, doc="secret")

    def __post_init__(self):
        if self.most < self.pause_ms:
            raise ConfigError("most is below pause")


@dataclass(frozen=True, slots=True)
class Second:
    """A class that shares a key."""

    pause_ms: int = option(5, key="pause", doc="the same key, copied at start")
    is_on: bool = option(False, key="isOn", dynamic=True, doc="a switch")


@pytest.fixture
def configs():
    return First(), Second()


def test_a_change_reaches_every_class_with_the_key_and_the_file(configs, tmp_path):
    path = tmp_path / "a.conf"
    path.write_text("# why\npause = 5\nother=1\n")
    outcome = apply_changes({"pause": "6", "isOn": "true"}, configs, str(path))
    assert outcome.changed == {"pause": "6", "isOn": "true"}
    assert (configs[0].pause_ms, configs[1].pause_ms, configs[1].is_on) == (6, 6, True)
    assert path.read_text().startswith("# why\npause=6\nother=1\n")
    assert "isOn=true" in path.read_text()
    assert (tmp_path / "a.conf.bak").read_text() == "# why\npause = 5\nother=1\n"
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["a.conf", "a.conf.bak"]


def test_a_private_file_stays_private_and_so_does_the_one_before(configs, tmp_path):
    path = tmp_path / "a.conf"
    path.write_text("initAuthenticationUser={}\n")
    path.chmod(0o600)
    apply_changes({"isOn": "true"}, configs, str(path))
    modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
    assert modes == {"a.conf": 0o600, "a.conf.bak": 0o600}


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("port", "2", "cannot be changed while the process runs"),
        ("paus", "2", "did you mean pause?"),
        ("sendMessageThreadPoolNums", "2", "no thread pools"),
        ("pause", "ten", "it must be a whole number"),
        ("pause", "0", "the smallest value is 1"),
        ("pause", "8", "most is below pause"),
        ("word", "two\nlines=1", "one line"),
        ("word", "x" * 5000, "one line of at most"),
    ],
)
def test_what_is_refused_is_named_and_nothing_changes(
    configs, tmp_path, key, text, said
):
    path = tmp_path / "a.conf"
    path.write_text("pause=5\n")
    outcome = apply_changes({"isOn": "true", key: text}, configs, str(path))
    assert outcome.changed == {}
    assert said in outcome.refused[key]
    assert f"{key}: " in outcome.remark
    assert configs == (First(), Second())
    assert path.read_text() == "pause=5\n"


def test_many_keys_at_once_are_refused(configs, monkeypatch):
    monkeypatch.setattr(module, "MAX_CHANGES", 1)
    with pytest.raises(ConfigError, match="at most 1"):
        apply_changes({"pause": "6", "most": "8"}, configs)


def test_a_file_that_cannot_be_written_leaves_the_process_as_it_was(configs, tmp_path):
    path = tmp_path / "a.conf"
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be rewritten"):
        apply_changes({"pause": "6"}, configs, str(path))
    assert configs[0] == First()


def test_a_file_comes_into_being(tmp_path):
    rewrite(tmp_path / "new" / "a.conf", {"key": "größe = 1"})
    (line,) = (tmp_path / "new" / "a.conf").read_text().splitlines()
    assert line.startswith("key=")


def test_differences_are_told_apart_by_what_may_change(configs):
    values = {"pause": "6", "port": "3", "unknown": "1"}
    assert find_differences(values, configs) == ({"pause": "6"}, ["port"])
    object.__setattr__(configs[0], "most", 8)
    assert find_differences({}, configs) == ({"most": "7"}, [])


def test_secrets_are_not_among_the_properties(configs):
    text = as_properties(configs).decode()
    assert text == "isOn=false\nmost=7\npause=5\nport=1\n"
