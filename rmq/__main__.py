"""The entry of the process: `rmq`, and `python -m rmq`."""

import os
import signal

from rmq.core.exit_codes import SHELL_BASE


def main() -> None:
    """Run the command of the process.

    Until the command has handlers of its own, a signal ends the process without a word:
    nothing has begun yet. Process 1 ends as well, which ignores signals by default.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit_at_once)
    # imported here: the import takes most of the start
    from rmq.cli import main as run_command

    run_command(prog_name="rmq")


def _exit_at_once(number: int, _frame: object) -> None:
    os._exit(SHELL_BASE + number)


if __name__ == "__main__":
    main()
