"""docs/clients/python.md word by word, with rmq as others get it."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def with_loops(environment):
    """The environment with the libraries that the page names."""
    environment.install("uvloop>=0.21", "opentelemetry-api>=1.27")
    return environment


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio", "threads"])
def test_the_programs_of_the_page_run(with_loops, loop):
    program = ROOT / "tests/client/page.py"
    output = with_loops.run(str(program), str(ROOT / "docs/clients/python.md"), loop)
    assert output.count("ran ") == (1 if loop == "threads" else 10)
