"""Keys of `rmq top`, one after another, against brokers that answer from a table."""

import itertools

import pytest

from rmq.cli.terminal.screen import split_keys
from rmq.cli.top.app import DELAYS_S, Watching
from rmq.cli.top.render import sorts
from rmq.core.errors import RmqError
from tests.cli.top.test_render import group, state

SIZE = 80, 24
GROUP_VIEW = {
    "node": "broker-a", "row": group("mail", 90), "arriving": 4.0, "done": None,
    "again": 0.0, "dead": 3,
    "why": {"say": "It is behind.", "more": ["Look."], "do": "Go.", "command": "rmq x"},
    "queues": [
        {"topic": "T", "queue_id": 0, "lag": 30, "owner": None},
        {"topic": "T", "queue_id": 1, "lag": 60, "owner": "10.0.0.1@7"},
    ],
    "clients": [{"id": "10.0.0.1@7", "done_per_s": 2.0, "library": "JAVA"}],
}  # fmt: skip
TOPIC_VIEW = {
    "node": "broker-a",
    "row": {"name": "clicks", "in": 3.0, "out": 1.0, "lag": 0, "kept": 7},
    "queues": [{"queue": 0, "in": 3.0, "kept": 7, "first": "0", "end": "7"}],
    "groups": [group("mail")],
}
CLIENT = {"kind": "consumer", "group": "mail", "client": "10.0.0.1@7",
          "address": "a", "language": "JAVA", "heard_ms": 4}  # fmt: skip


class Told:
    """Answers as `Looking` does; a second passes between two looks."""

    def __init__(self):
        self.is_away = False
        self.asked = []
        self._seconds = itertools.count()

    def look(self):
        if self.is_away:
            raise RmqError("nobody answers")
        return [state(now=1_800_000_000_000 + 1_000 * next(self._seconds))]

    def views(self, view, **fields):
        self.asked.append((view, fields))
        found = {
            "group": GROUP_VIEW,
            "topic": TOPIC_VIEW,
            "clients": {"rows": [CLIENT]},
        }
        return [found[view]]


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def watching(told):
    return Watching(told, 1.0)


def press(watching, typed):
    watching.picture(SIZE)
    for key in split_keys(typed):
        if not watching.press(key):
            return False
        watching.picture(SIZE)
    return True


def lines(watching):
    return watching.picture(SIZE).lines


def test_each_view_has_its_key(watching, told):
    assert lines(watching)[4].startswith("GROUP")
    assert press(watching, "t")
    assert lines(watching)[4].startswith("TOPIC")
    assert press(watching, "c")
    assert lines(watching)[5].startswith("mail")
    assert told.asked[-1][0] == "clients"
    assert press(watching, "b")
    assert lines(watching)[5].startswith("broker-a")
    assert press(watching, "g")
    assert lines(watching)[5].startswith("search")
    assert not press(watching, "q")


@pytest.mark.parametrize("down", ["j", "\x1b[B", "\x1bOB"])
def test_enter_opens_the_chosen_row(watching, told, down):
    assert press(watching, f"{down}\r")
    assert told.asked[-1] == ("group", {"name": "mail"})
    text = "\n".join(lines(watching))
    assert "It is behind." in text
    assert "-> rmq x" in text
    assert "T 1" in text.split("T 0")[0], "the queue with the most is the first"
    assert "nobody" in text
    assert press(watching, "q")
    assert lines(watching)[4].startswith("GROUP")
    assert press(watching, "t\r")
    assert told.asked[-1] == ("topic", {"name": "clicks"})
    assert press(watching, "\x1b")


def test_no_row_before_the_first_and_after_the_last(watching):
    assert press(watching, "kkk")
    assert watching.picture(SIZE).styles[5] == "chosen"
    assert press(watching, "jjjjjjj")
    assert watching.picture(SIZE).styles[6] == "chosen"


def test_sorting_and_turning(watching):
    heads = [lines(watching)[4]]
    for _ in sorts("groups"):
        assert press(watching, ">")
        heads.append(lines(watching)[4])
    assert heads[0] == heads[-1]
    assert "GROUP v" in heads[1]
    assert press(watching, "r")
    assert "BEHIND ^" in lines(watching)[4]
    assert press(watching, "<")


def test_a_filter_is_typed(watching):
    assert press(watching, "/maqx\x7f\x7fil")
    assert lines(watching)[-1].startswith("filter: mail_")
    assert press(watching, "\r")
    assert lines(watching)[5].startswith("mail")
    assert watching.press("q") is False


def test_pause_delay_and_help(watching):
    assert press(watching, " ")
    assert lines(watching)[-1].startswith("paused")
    assert press(watching, " d")
    assert "every 2 s" in lines(watching)[0]
    assert press(watching, "d" * (len(DELAYS_S) - 1))
    assert "every 1 s" in lines(watching)[0]
    assert press(watching, "?")
    assert "groups, topics, clients, brokers" in lines(watching)[0]
    assert press(watching, "q")
    assert lines(watching)[0].startswith("rmq top")


def test_nobody_answers_and_then_again(watching, told):
    told.is_away = True
    watching.look()
    picture = watching.picture(SIZE)
    assert picture.lines[-1].startswith("no answer since ")
    assert set(picture.styles.values()) == {"dim"}
    assert press(watching, "c?q")
    told.is_away = False
    watching.look()
    assert not lines(watching)[-1].startswith("no answer")


@pytest.mark.parametrize("size", [(20, 24), (80, 5), (60, 12), (200, 60)])
def test_any_size(watching, size):
    for keys in ("", "c", "b", "t", "\r", "q?"):
        assert press(watching, keys)
        width, height = size
        shown = watching.picture(size).lines
        assert len(shown) <= height
        assert all(len(line) <= width for line in shown)


def test_a_terminal_that_is_gone_ends_it_also_while_typing(watching):
    assert press(watching, "/")
    assert not watching.press("gone")
