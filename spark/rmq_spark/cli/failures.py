"""Expected errors become one sentence on stderr and exit code 1."""

import re
import sys
from typing import Final, NoReturn

import click

from rmq.core.errors import RmqError
from rmq.core.exit_codes import FAILED
from rmq.core.extras import install_command

EXTRAS: Final = {
    "pyarrow": "spark", "pyspark": "spark", "obstore": "follow", "fastavro": "avro",
    "duckdb": "sql", "deltalake": "delta",
}  # fmt: skip
"""The extra that has each library."""


class report_failures:
    """Context that ends the process with a sentence for an error of the operator."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RmqError):
            _fail(str(error))
        if isinstance(error, FileExistsError):
            _fail(f"{error.filename} is a file, not a folder")
        if isinstance(error, OSError) and error.filename and error.strerror:
            _fail(f"{error.filename}: {error.strerror.lower()}")
        if error is not None and type(error).__module__.startswith(("pyspark", "py4j")):
            _fail(worker_error(str(error)))


def exit_without_library(error: ModuleNotFoundError) -> NoReturn:
    """Name the missing library and exit; raise the error if it is of another module."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        raise error
    _fail(f"{error.name} is missing: {install_command(extra)}")


def _fail(sentence: str) -> NoReturn:
    click.echo(f"rmq-spark: {sentence}", err=True)
    sys.exit(FAILED)


def worker_error(trace: str) -> str:
    """Return the sentence of an rmq error in the traceback of a Spark worker."""
    found = re.findall(r"^rmq[\w.]*\.\w+: (.+)$", trace, re.MULTILINE)
    return found[-1] if found else trace
