"""Objects that have new locks in a child process."""

import gc
import os

from rmq.integrations.forks import watch_forks


class Watched:
    def __init__(self):
        self.forks = 0

    def on_fork(self):
        self.forks += 1


def exit_code_of_child(function):
    """The result of a function in a child, as its exit code."""
    pid = os.fork()
    if not pid:
        code = 99
        try:
            code = function()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_only_the_child_is_notified():
    watched = Watched()
    watch_forks(watched)
    assert exit_code_of_child(lambda: watched.forks) == 1
    assert watched.forks == 0


def test_an_object_that_is_gone_is_not_notified():
    first, gone = Watched(), Watched()
    watch_forks(first)
    watch_forks(gone)
    del gone
    gc.collect()
    assert exit_code_of_child(lambda: first.forks) == 1
