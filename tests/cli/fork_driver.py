"""Runs commands of rmq in forks of one process that has imported them.

`python -m tests.cli.fork_driver` reads a job in JSON from each line of stdin, and
writes its outcome as a line.  A job has the words, the encoding of the streams, and
what its descriptors are: a file, "closed" or "full".
"""

import io
import json
import os
import signal
import sys
import tempfile
import traceback

LIMIT_S = 15
MODES = os.O_RDONLY, os.O_WRONLY, os.O_WRONLY
SANITY_CODE = 120
"""Python's own code if stdout cannot be flushed at its end."""


def run_job(job):
    """Fork; return code, stdout and stderr."""
    with tempfile.TemporaryDirectory(prefix="rmq-fork-") as folder:
        names = [os.path.join(folder, name) for name in ("in", "out", "err")]
        for name in names:
            with open(name, "wb") as file:
                if name == names[0]:
                    file.write(job["data"].encode("latin-1"))
        child = os.fork()
        if not child:
            try:
                code = run_in_child(job, names)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        texts = []
        for name in names[1:]:
            with open(name, "rb") as file:
                texts.append(file.read().decode("latin-1"))
    return [os.waitstatus_to_exitcode(status), *texts]


def run_in_child(job, names):
    """Take the streams of the job, run the command as a process does."""
    signal.alarm(LIMIT_S)
    os.chdir(os.path.dirname(names[0]))  # a command may write files
    for number, (name, kind) in enumerate(zip(names, job["streams"], strict=True)):
        os.close(number)
        if kind != "closed":
            opened = os.open("/dev/full" if kind == "full" else name, MODES[number])
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
    open_streams(job["encoding"])
    sys.argv = [job["program"], *job["words"]]
    code = 0
    try:
        program(job["program"])(prog_name=job["program"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        if sys.stderr is not None:
            traceback.print_exc()
        code = 70
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        code = SANITY_CODE
    if sys.stderr is not None:
        sys.stderr.flush()
    return code


def open_streams(encoding):
    """Make the streams of Python anew, as its start does."""
    streams = []
    for number, mode in enumerate(("r", "w", "w")):
        try:
            errors = "backslashreplace" if number == 2 else "strict"
            raw = io.FileIO(number, mode, closefd=False)
            buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
            stream = io.TextIOWrapper(buffered, encoding, errors)
        except OSError:
            stream = None
        streams.append(stream)
    sys.stdin, sys.stdout, sys.stderr = streams
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams


def program(name):
    if name == "rmq":
        from rmq.cli import main
    else:
        from rmq_spark.cli import main
    return main


def main():
    from rmq.cli import COMMANDS, load

    program("rmq-spark")
    for name in COMMANDS:
        load(name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run_job(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
