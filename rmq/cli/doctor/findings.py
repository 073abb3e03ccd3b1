"""Finding: the result of one check of `rmq doctor`."""

from collections.abc import Iterator
from typing import NamedTuple


class Finding(NamedTuple):
    """The result of one check; a problem has a remedy."""

    subject: str
    text: str
    is_problem: bool = False
    remedy: str = ""
    command: str = ""
    """A command that shows or mends the problem, without placeholders."""


Findings = Iterator[Finding]
