"""Progress: a line that fits, ends at 100 %, and is not there in a pipe."""

import io

from rmq.cli.terminal import progress
from rmq.cli.terminal.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_line():
    shown = Progress("sent", 100_000, Terminal())
    shown.update(63_412, "0 failed")
    assert shown.format_line(3.171) == (
        "sent  63,412 of 100,000   19,997/s   0 failed   [############........]  "
        "2 s left"
    )
    assert Progress("read").format_line(0) == "read  0   0/s"


def test_it_ends_with_all_of_it_on_one_line(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL_S", 0)
    terminal = Terminal()
    with Progress("log", 10, terminal) as shown:
        shown.add(4)
    last = terminal.getvalue().rpartition("\r")[2]
    assert last.startswith("log  10 of 10")
    assert last.endswith("\n")


def test_a_narrow_terminal_is_not_overrun(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL_S", 0)
    monkeypatch.setattr(progress, "_terminal_width", lambda stream: 20)
    terminal = Terminal()
    with Progress("sent", 1_000_000, terminal) as shown:
        shown.update(63_412)
    for line in terminal.getvalue().split("\r"):
        assert len(line.removesuffix("\n").removesuffix("\x1b[K")) <= 19


def test_nothing_in_a_pipe():
    pipe = io.StringIO()
    with Progress("sent", 10, pipe) as shown:
        shown.update(5)
    assert pipe.getvalue() == ""


def test_messages_are_counted_and_bytes_move_the_bar(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL_S", 0)
    terminal = Terminal()
    with Progress("checked", 3_000_000, terminal) as shown:
        shown.add(1_500_000, 500)
        assert shown.format_line(1.0) == (
            "checked  500 messages   500/s   [##########..........]  1 s left"
        )
        shown.begin("restored", 10)
        shown.add(10, 1)
        assert shown.format_line(1.0).startswith("restored  1 message   1/s   [####")
    lines = [
        part.rpartition("\r")[2] for part in terminal.getvalue().split("\n") if part
    ]
    assert [line.split()[0] for line in lines] == ["checked", "restored"]
    assert all("####################]  0 s left" in line for line in lines)
