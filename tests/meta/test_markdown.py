"""Pages: one width of prose (code, tables and links may be wider), links that work."""

import re

import pytest

from tests.meta.language import PAGES, ROOT
from tests.meta.markdown import WIDTH, paragraphs_of, wide_lines_of


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_prose_is_not_wider_than_code(path):
    wide = [(line.number, line.text) for line in wide_lines_of(path.read_text())]
    assert not wide, f"wrap these at {WIDTH}"


PAGE = """\
# Title

First - line
and second.* end
* item
  goes on
* another

```
code
```

| a | table |
|---|---|

    code in a block

<!-- a
comment -->
Last.
"""


def test_paragraphs_have_neither_code_nor_tables():
    assert list(paragraphs_of(PAGE)) == [
        (3, "First - line and second.* end"),
        (5, "item goes on"),
        (7, "another"),
        (20, "Last."),
    ]


@pytest.mark.parametrize(
    ("text", "is_wide"),
    [
        ("x" * 80 + " ten words", True),
        ("* " + "`x`" * 40, False),
        ("| " + "cell " * 30 + "|", False),
        ("# " + "title " * 30, False),
        ("* [text](" + "x" * 90 + ")", False),
    ],
)
def test_which_lines_are_wide(text, is_wide):
    assert bool(list(wide_lines_of(text))) == is_wide


def anchors_of(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_have_a_file_and_a_heading(path):
    text = re.sub(r"(?ms)^\s*```.*?^\s*```", "", path.read_text())
    missing = []
    for link in re.findall(r"\]\(((?!http)[^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        is_there = target.exists()
        if not is_there or (anchor and anchor not in anchors_of(target.read_text())):
            missing.append(link)
    assert not missing
