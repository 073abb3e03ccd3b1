"""Keys of `rmq top`, one after another, against brokers that answer from a table."""

import itertools

import msgspec
import pytest

from rmq.cli.terminal.screen import split_keys
from rmq.cli.top.app import DELAYS_S, App
from rmq.cli.top.columns import sort_keys
from rmq.core.errors import RmqError
from tests.cli.top.test_render import group, state

SIZE = 80, 24
GROUP_VIEW = {
    "node": "broker-a", "row": group("mail", 90), "arriving": 4.0, "done": None,
    "again": 0.0, "dead": 3,
    "why": {"message": "It is behind.", "details": ["Look."], "action": "Go.",
            "command": "rmq x"},
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


class FakePoller:
    """Answers as `Poller` does; a second passes between two polls."""

    def __init__(self):
        self.is_away = False
        self.asked = []
        self._seconds = itertools.count()

    def poll(self):
        if self.is_away:
            raise RmqError("no answer")
        return [state(now=1_800_000_000_000 + 1_000 * next(self._seconds))]

    def fetch_views(self, view, form, **fields):
        self.asked.append((view, fields))
        found = {
            "group": GROUP_VIEW,
            "topic": TOPIC_VIEW,
            "clients": {"rows": [CLIENT]},
        }
        return [msgspec.convert(found[view], form)]


@pytest.fixture
def poller():
    return FakePoller()


@pytest.fixture
def app(poller):
    return App(poller, 1.0)


def press(app, typed):
    """Press keys of which none ends the app."""
    app.render_screen(SIZE)
    for key in split_keys(typed):
        is_running = app.press_key(key)
        assert is_running
        app.render_screen(SIZE)


def lines(app):
    return app.render_screen(SIZE).lines


def test_each_view_has_its_key(app, poller):
    assert lines(app)[4].startswith("GROUP")
    press(app, "t")
    assert lines(app)[4].startswith("TOPIC")
    press(app, "c")
    assert lines(app)[5].startswith("mail")
    assert poller.asked[-1][0] == "clients"
    press(app, "b")
    assert lines(app)[5].startswith("broker-a")
    press(app, "g")
    assert lines(app)[5].startswith("search")
    is_running = app.press_key("q")
    assert not is_running


@pytest.mark.parametrize("down", ["j", "\x1b[B", "\x1bOB"])
def test_enter_opens_the_chosen_row(app, poller, down):
    press(app, f"{down}\r")
    assert poller.asked[-1] == ("group", {"name": "mail"})
    text = "\n".join(lines(app))
    assert "It is behind." in text
    assert "-> rmq x" in text
    assert "T 1" in text.split("T 0")[0], "the queue with the most is the first"
    assert "  none" in text
    press(app, "q")
    assert lines(app)[4].startswith("GROUP")
    press(app, "t\r")
    assert poller.asked[-1] == ("topic", {"name": "clicks"})
    press(app, "\x1b")


def test_no_row_before_the_first_and_after_the_last(app):
    press(app, "kkk")
    assert app.render_screen(SIZE).styles[5] == "chosen"
    press(app, "jjjjjjj")
    assert app.render_screen(SIZE).styles[6] == "chosen"


def test_sorting_and_turning(app):
    heads = [lines(app)[4]]
    for _ in sort_keys("groups"):
        press(app, ">")
        heads.append(lines(app)[4])
    assert heads[0] == heads[-1]
    assert "GROUP v" in heads[1]
    press(app, "r")
    assert "LAG ^" in lines(app)[4]
    press(app, "<")


def test_a_filter_is_typed(app):
    press(app, "/maqx\x7f\x7fil")
    assert lines(app)[-1].startswith("filter: mail_")
    press(app, "\r")
    assert lines(app)[5].startswith("mail")
    is_running = app.press_key("q")
    assert not is_running


def test_pause_delay_and_help(app):
    press(app, " ")
    assert lines(app)[-1].startswith("paused")
    press(app, " d")
    assert "every 2 s" in lines(app)[0]
    press(app, "d" * (len(DELAYS_S) - 1))
    assert "every 1 s" in lines(app)[0]
    press(app, "?")
    assert "groups, topics, clients, brokers" in lines(app)[0]
    press(app, "q")
    assert lines(app)[0].startswith("rmq top")


def test_no_answer_and_then_one(app, poller):
    poller.is_away = True
    app.refresh()
    screen = app.render_screen(SIZE)
    assert screen.lines[-1].startswith("no answer since ")
    assert set(screen.styles.values()) == {"dim"}
    press(app, "c?q")
    poller.is_away = False
    app.refresh()
    assert not lines(app)[-1].startswith("no answer")


@pytest.mark.parametrize("size", [(20, 24), (80, 5), (60, 12), (200, 60)])
def test_any_size(app, size):
    for keys in ("", "c", "b", "t", "\r", "q?"):
        press(app, keys)
        width, height = size
        shown = app.render_screen(size).lines
        assert len(shown) <= height
        assert all(len(line) <= width for line in shown)


def test_a_terminal_that_is_gone_ends_it_also_while_typing(app):
    press(app, "/")
    is_running = app.press_key("gone")
    assert not is_running
