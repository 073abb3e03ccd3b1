import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
import sys
from tests.libraries import HEAVY, MissingLibraries

class Missing:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def pytest_configure(config):
    sys.meta_path.insert(0, Missing())
    config.pluginmanager.register(MissingLibraries())
"""
TESTS = {
    "test_whole.py": "import pyarrow.parquet\ndef test_one(): pass\n",
    "test_with_imports_of_it.py": "from test_whole import test_one\n",
    "test_parts.py": (
        "import pytest\n"
        "@pytest.fixture\n"
        "def table(): import duckdb\n"
        "def test_with_fixture(table): pass\n"
        "def test_product():\n"
        "    try: import numpy\n"
        "    except ImportError as error: raise ValueError('needs it') from error\n"
        "def test_other_failure(): raise ValueError\n"
        "def test_other_module(): import rmq.no_such_module\n"
        "def test_good(): pass\n"
    ),
}


def test_missing_libraries_skip_and_are_counted(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--import-mode=importlib"]
    done = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 failed, 1 passed, 4 skipped" in done.stdout, done.stdout
    assert "a library is missing (duckdb, numpy, pyarrow)" in done.stdout
    assert "do not run: 2 modules, 2 tests" in done.stdout
    assert "pyarrow is missing: make dev" in done.stdout
