"""The package loads a module when one of its names is asked for."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from rmq import _fastpath

STUB = Path(_fastpath.__file__).with_suffix(".pyi")


def test_each_name_of_the_stub_is_found_in_its_module():
    promised = {
        (alias.name, node.module)
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(name for name, _ in promised) == sorted(_fastpath.__all__)
    for name, home in promised:
        found = getattr(importlib.import_module(home), name)
        assert getattr(_fastpath, name) is found, name


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'Missing'"):
        _fastpath.Missing  # noqa: B018


def test_a_name_loads_no_module_of_the_server():
    program = (
        "import sys; from rmq._fastpath import decode_record;"
        "print([n for n in sys.modules if 'reactor' in n or 'send_path' in n])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
