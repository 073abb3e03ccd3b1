"""ARCHITECTURE.md and docs/internals agree with the code: layers, paths, names."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.stem: path.read_text()
    for path in (ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/internals/*.md"))
}
LAYERS = PAGES["ARCHITECTURE"].partition("\n## Layers\n")[2].partition("\n## ")[0]
WORD_LIMIT = 1_500
PATH = re.compile(r"[\w./]+(?:\.(?:py|pyx|pxd|txt|toml|md)|/)")
NAME = re.compile(r"[A-Za-z_][\w.]*")


def rows(page: str) -> list[list[str]]:
    """The cells of each row of the tables of a page, without their heads."""
    lines = [line for line in PAGES[page].splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[1:]]


def marked(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def paths_of(text: str) -> list[Path]:
    """The paths in a text; one without a known start is in the folder of the last."""
    found: list[Path] = []
    for word in marked(text):
        if PATH.fullmatch(word):
            whole = ROOT / word
            if not whole.exists() and found:
                whole = found[-1].parent / word
            found.append(whole)
    return found


def test_the_picture_shows_the_layers_of_import_linter():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = [
        row
        for each in contracts
        if each.get("containers") != ["rmq_spark"]
        for row in each.get("layers", ())
    ]
    layers.remove("rmq")
    expected = [{*row.split(" | ")} for row in layers if not row.startswith("(")]
    picture = LAYERS.split("```")[1].strip("\n").splitlines()
    shown = [{*re.split(r"  +", line)[0].split(" | ")} for line in picture]
    assert shown == expected


def test_each_path_exists():
    cells = [cell for page in ("places", "names") for cell in rows(page)]
    assert len(cells) > 80
    paths = [path for row in cells for path in paths_of(row[-1])]
    assert not {str(path) for path in paths if not path.exists()}


ELSEWHERE = re.compile(r"/|\.\.|config/|cut/|aside/|[a-z]+queue/")
"""Starts of paths of the machine, and of folders of a store."""


@pytest.mark.parametrize("page", PAGES)
def test_a_path_begins_at_the_root_or_in_a_room(page):
    words = [w for w in marked(PAGES[page]) if PATH.fullmatch(w) and "/" in w]
    missing = {
        word
        for word in words
        if not ELSEWHERE.match(word)
        and not any((top / word).exists() for top in (ROOT, ROOT / "rmq"))
    }
    assert not missing


def test_each_name_is_defined_where_the_table_says():
    wrong = []
    for _, names, places in rows("names"):
        texts = "".join(p.read_text() for p in paths_of(places) if p.is_file())
        for name in filter(NAME.fullmatch, marked(names)):
            last = name.rpartition(".")[2]
            if not re.search(rf"\b(class|def|cpdef|cdef [\w ]+) {last}\b", texts):
                wrong.append(f"{name}: {places}")
    assert not wrong


JAVA_NAME = re.compile(r"\b[A-Za-z]\w*[A-Z]\w*")


def docstrings_of(path: Path) -> list[str]:
    return re.findall(r'"""(.*?)"""', path.read_text(), re.DOTALL)


def test_a_module_has_the_java_names_of_its_row():
    """A docstring in one of the modules of the row names each class of Java."""
    missing = []
    for java, here, places in rows("names"):
        texts = "".join(
            text
            for path in paths_of(places)
            for text in docstrings_of(path / "__init__.py" if path.is_dir() else path)
        )
        for name in JAVA_NAME.findall(java) if marked(here) else ():
            if not re.search(rf"\b{name}\b", f"{here} {texts}"):
                missing.append(f"{name}: {places}")
    assert not missing


def test_the_page_for_newcomers_is_short():
    assert len(PAGES["ARCHITECTURE"].split()) <= WORD_LIMIT
