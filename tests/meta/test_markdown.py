"""All prose of the pages has one width; code, tables and links may be wider."""

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
