"""Expected errors become one sentence on stderr and exit code 1."""

import re
import sys
from typing import Final, NoReturn

import click

from rmq.core.errors import RmqError

FAILED: Final = 1
LIBRARIES: Final = {
    "pyarrow": "'pyarrow>=18'", "pyspark": "'pyspark>=4.2,<4.4'",
    "obstore": "'obstore>=0.9'", "fastavro": "'fastavro>=1.9'",
    "duckdb": "'duckdb>=2'", "deltalake": "'deltalake>=1.6'",
}  # fmt: skip
"""The package to install for each missing module."""


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
    library = LIBRARIES.get((error.name or "").partition(".")[0])
    if library is None:
        raise error
    _fail(f"{error.name} is missing: pip install {library}")


def _fail(sentence: str) -> NoReturn:
    click.echo(f"rmq-spark: {sentence}", err=True)
    sys.exit(FAILED)


def worker_error(trace: str) -> str:
    """Return the sentence of our error in the traceback of a Spark worker."""
    found = re.findall(r"^rmq[\w.]*\.\w+: (.+)$", trace, re.MULTILINE)
    return found[-1] if found else trace
