"""The language rules hold, except for what `language_allowed.txt` lists.

The list has a file and its number of problems in each line. It may only shrink: who
mends a file lowers its number, or removes the line at 0.
`python -m tests.meta.test_language` writes the list again.
"""

from pathlib import Path

import pytest

from tests.meta.language import (
    PAGES,
    ROOT,
    Text,
    files_below,
    problems_of,
    problems_of_names,
    problems_of_text,
)

ROOMS = "rmq", "plugins", "spark"
ALLOWED = Path(__file__).with_name("language_allowed.txt")


SHARES = 16
"""Each test reads a part of the files, so that none takes long."""


def files() -> list[Path]:
    return [path for room in ROOMS for path in files_below(ROOT / room)] + PAGES


def counts(paths: list[Path]) -> dict[str, int]:
    """Return the number of problems of each file that has some."""
    found = {
        path.relative_to(ROOT).as_posix(): len(problems_of(path)) for path in paths
    }
    return {path: count for path, count in found.items() if count}


def allowed() -> dict[str, int]:
    lines = ALLOWED.read_text().splitlines()
    return {path: int(count) for count, path in map(str.split, lines)}


@pytest.mark.parametrize("share", range(SHARES))
def test_files_have_the_problems_of_the_list_and_no_more(share):
    paths = files()[share::SHARES]
    names = {path.relative_to(ROOT).as_posix() for path in paths}
    expected = {path: n for path, n in allowed().items() if path in names}
    found = counts(paths)
    hint = "python -m tests.meta.language FILE shows them; then renew the list"
    assert found == expected, hint


def test_the_list_names_files_that_exist():
    assert not [path for path in allowed() if not (ROOT / path).is_file()]


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("What is declined goes to Python.", "begins with a clause"),
        ("It tells the master where its log ends.", "banned word"),
        ("The list begins anew.", "banned word"),
        (" ".join(["word"] * 26) + ".", "over 25 words"),
        ("The reactor closes the connection.", ""),
        ('`told` is code, and so is "says".', ""),
    ],
)
def test_what_the_rules_find(sentence, rule):
    found = [each.rule for each in problems_of_text(ROOT, Text(1, sentence))]
    assert [rule in each for each in found] == ([True] if rule else [])


def test_a_name_of_one_word_must_be_on_the_list(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("def take(): ...\ndef read(): ...\ndef commit_offset(): ...\n")
    assert [each.text for each in problems_of_names(path)] == ["take"]


def test_a_property_is_a_noun(tmp_path):
    path = tmp_path / "module.py"
    names = "disk", "behind", "kept", "waiting", "written"
    path.write_text("\n".join(f"@property\ndef {name}(): ..." for name in names))
    found = [each.text for each in problems_of_names(path)]
    assert found == ["behind", "kept", "waiting"]


if __name__ == "__main__":
    ALLOWED.write_text(
        "".join(f"{n} {path}\n" for path, n in sorted(counts(files()).items()))
    )
