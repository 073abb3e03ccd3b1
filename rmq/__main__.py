"""The entry of the process: `rmq`, and `python -m rmq`."""

import os
import signal

from rmq.core.exit_codes import SHELL_BASE


def main() -> None:
    """Run the command of the process.

    Until the command has set its own handlers, a signal ends the process without an
    output, because no work has begun. Process 1 ends, too; by default it ignores
    signals.
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
