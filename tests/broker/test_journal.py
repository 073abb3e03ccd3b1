"""Acknowledged changes of topics survive a kill before the next save."""

from pathlib import Path

import pytest
import trio

from rmq.broker.tables import journal
from rmq.broker.tables.journal import TopicChange, TopicJournal
from rmq.broker.tables.topics import TopicTable
from rmq.config.broker import BrokerConfig
from rmq.protocol.bodies.topics import TopicConfig
from rmq.testing import ManualClock


@pytest.fixture
def loaded(tmp_path):
    """Return a function that loads the table, as a start does after a kill."""

    def load():
        table = TopicTable(tmp_path, ManualClock(), BrokerConfig(broker_name="b"))
        table.load()
        return table

    return load


def made(name, queues=4):
    return TopicConfig(topic_name=name, write_queue_nums=queues)


def save(table):
    table.write(table.snapshot())


def lines(tmp_path):
    return [
        path.read_bytes().count(b"\n") if path.exists() else 0
        for path in (tmp_path / "topicChanges.0", tmp_path / "topicChanges.1")
    ]


@pytest.mark.parametrize("is_saved_before", [False, True])
def test_a_topic_that_a_send_made_is_there_after_a_kill(loaded, is_saved_before):
    table = loaded()
    if is_saved_before:
        save(table)
    topic = table.create_for_send("New", "TBW102", 3, "1.2.3.4:5")
    again = loaded()
    assert again.get("New") == topic
    assert again.data_version.counter > table.data_version.counter
    assert again.is_dirty


def test_changes_are_repeated_in_their_order(loaded):
    table = loaded()
    save(table)
    table.update(made("A", 1))
    table.update(made("B", 1))
    table.update(made("A", 2))
    table.delete("B")
    again = loaded()
    assert again.get("A") == made("A", 2)
    assert again.get("B") is None


def test_what_was_saved_is_not_repeated(loaded):
    """The topic was made, saved, deleted and saved: old lines do not bring it back."""
    table = loaded()
    table.update(made("A"))
    save(table)
    table.delete("A")
    save(table)
    assert loaded().get("A") is None


def test_a_change_during_a_save_is_repeated(loaded):
    table = loaded()
    save(table)
    table.update(made("Before"))
    pieces = table.snapshot()
    table.update(made("During"))
    table.write(pieces)
    table.update(made("After"))
    again = loaded()
    assert None not in [again.get(name) for name in ("Before", "During", "After")]


def test_a_change_outlives_a_save_that_failed(loaded):
    table = loaded()
    save(table)
    for name in ("A", "B", "C"):
        table.update(made(name))
        table.snapshot()  # and the disk takes it not
    again = loaded()
    assert None not in [again.get(name) for name in "ABC"]


def test_files_stay_small(loaded, tmp_path):
    table = loaded()
    for number in range(50):
        table.update(made(f"T{number}"))
        save(table)
    assert sum(lines(tmp_path)) <= 2


def test_a_line_that_is_not_whole_ends_its_file(loaded, tmp_path, caplog):
    table = loaded()
    save(table)
    table.update(made("A"))
    path = next(tmp_path.glob("topicChanges.*"))
    path.write_bytes(path.read_bytes() + b'{"counter":99,"topic":{"topicNa')
    assert loaded().get("A") is not None
    path.write_bytes(b"garbage\n" + path.read_bytes())
    assert loaded().get("A") is None
    assert "an invalid line" in caplog.text


def test_a_journal_that_cannot_be_written_says_so_once(tmp_path, caplog):
    (tmp_path / "topicChanges.0").mkdir()
    changes = TopicJournal(tmp_path)
    for counter in (1, 2):
        changes.add(TopicChange(counter=counter, deleted="T"))
    assert caplog.text.count("a kill may lose new topics") == 1


def test_a_journal_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MAX_SIZE", 100)
    changes = TopicJournal(tmp_path)
    for counter in range(1, 10):
        changes.add(TopicChange(counter=counter, deleted="T"))
    assert (tmp_path / "topicChanges.0").stat().st_size < 150


def test_a_topic_is_unsaved_until_the_file_has_it(loaded):
    table = loaded()
    table.update(made("A"))
    assert table.is_unsaved("A")
    assert not table.is_unsaved("Unknown")
    pieces = table.snapshot()
    table.update(made("B"))
    table.write(pieces)
    assert not table.is_unsaved("A")
    assert table.is_unsaved("B")


async def test_an_answer_does_not_wait_for_the_whole_table(loaded, monkeypatch):
    """Ten thousand topics made each new one take 4 ms."""
    table = loaded()
    save(table)
    monkeypatch.setattr(table, "write", lambda _: pytest.fail("the file is written"))
    for name in ("A", "B"):
        table.update(made(name))
        assert table.is_unsaved(name)
        assert await table.wait_saved("answer") == "answer"
        assert not table.is_unsaved(name)
    assert table.is_dirty, "the next save has them"
    assert loaded().get("B") == made("B")


async def test_changes_that_wait_together_share_the_disk(loaded, monkeypatch):
    table, syncs, sync = loaded(), [], TopicJournal.sync

    def count(changes):
        syncs.append(1)
        sync(changes)

    monkeypatch.setattr(TopicJournal, "sync", count)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            table.update(made(f"T{number}"))
            nursery.start_soon(table.wait_saved, None)
    assert 1 <= len(syncs) <= 2
    assert not any(table.is_unsaved(f"T{number}") for number in range(20))


@pytest.mark.parametrize("is_full", [False, True])
async def test_an_answer_waits_for_the_file_if_the_journal_lacks_the_change(
    loaded, tmp_path, monkeypatch, is_full
):
    table = loaded()
    save(table)
    if is_full:
        monkeypatch.setattr(journal, "MAX_SIZE", 0)
    else:
        for name in ("topicChanges.0", "topicChanges.1"):
            (tmp_path / name).unlink(missing_ok=True)
            (tmp_path / name).mkdir()
    table.update(made("A"))
    table.update(made("B"))
    await table.wait_saved(None)
    assert not table.is_unsaved("A")
    assert not table.is_dirty
    if is_full:
        assert loaded().get("B") == made("B")


def test_only_the_thread_that_saves_removes_a_file(loaded, tmp_path, monkeypatch):
    """Beside a busy disk that took 45 ms of the serving thread."""
    table = loaded()
    removed, unlink = [], Path.unlink

    def count(path, **options):
        if path.exists():
            removed.append(path.name)
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", count)
    for number in range(5):
        table.update(made(f"T{number}"))
        before = list(removed)
        pieces = table.snapshot()
        assert removed == before
        table.write(pieces)
    assert any(name.startswith("topicChanges") for name in removed)
