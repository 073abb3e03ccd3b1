"""How the process of a server ends."""

import errno
import signal

import pytest

from rmq.cli.server.process import run_to_end
from rmq.core.errors import RmqError


def failing(error):
    async def main():
        raise error

    return main


def ended(capsys, error):
    handlers = {
        each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)
    }
    with pytest.raises(SystemExit) as caught:
        run_to_end(failing(error))
    assert caught.value.code == 1
    for number, handler in handlers.items():
        assert signal.getsignal(number) == handler
    return capsys.readouterr().err


FULL = OSError(errno.ENOSPC, "No space left on device", "/store/abort")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RmqError("no"), "rmq: no\n"),
        (FULL, "rmq: /store/abort: No space left on device: make room on this disk\n"),
        (
            ExceptionGroup(
                "a", [ExceptionGroup("b", [OSError(errno.EIO, "I/O error")])]
            ),
            "rmq: I/O error: check the disk\n",
        ),
        (ExceptionGroup("a", [ValueError(), RmqError("yes")]), "rmq: yes\n"),
    ],
)
def test_a_known_error_is_one_sentence(capsys, error, text):
    assert ended(capsys, error) == text


@pytest.mark.parametrize(
    "error", [OSError(errno.EBADF, "x"), ExceptionGroup("a", [ValueError()])]
)
def test_a_fault_of_rmq_has_its_traceback(capsys, caplog, error):
    ended(capsys, error)
    assert "rmq failed; please report this" in caplog.text
