"""The language rules hold in the product and in its pages.

`python -m tests.meta.language FILE` prints the problems of a file or folder.
"""

from pathlib import Path

import pytest

from tests.meta.language import (
    PAGES,
    ROOT,
    Text,
    problems_of,
    problems_of_names,
    problems_of_text,
    product_files,
)

SHARES = 16
"""Each test reads a part of the files, so that none takes long."""


def files() -> list[Path]:
    return product_files() + PAGES


@pytest.mark.parametrize("share", range(SHARES))
def test_files_follow_the_rules(share):
    paths = files()[share::SHARES]
    assert not [str(problem) for path in paths for problem in problems_of(path)]


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("What is declined goes to Python.", "begins with a clause"),
        ("It tells the master where its log ends.", "banned word"),
        ("The list begins anew.", "banned word"),
        (" ".join(["word"] * 26) + ".", "over 25 words"),
        ("Most bytes of a line.", "banned word"),
        ("Most brokers have no plugin.", ""),
        ("A link that lasted so long.", "banned word"),
        ("It works for 1 ms before others run.", "banned word"),
        ("By client id.", "a preposition without a noun"),
        ("By client id: the last heartbeat.", ""),
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


def test_names_have_no_word_of_private_english(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "def _tell_end(): ...\ndef note_end(note): ...\nis_told = notes = 1\n"
    )
    found = [each.text for each in problems_of_names(path)]
    assert sorted(found) == ["_tell_end", "is_told", "note_end"]


def test_paragraphs_are_read_whatever_follows_a_sentence():
    text = "It ends.  What follows is read.\nname  columns are not, What it is\n"
    found = [each.rule for each in problems_of_text(ROOT, Text(1, text))]
    assert found == ["begins with a clause"]


def test_a_property_is_a_noun(tmp_path):
    path = tmp_path / "module.py"
    names = "disk", "behind", "kept", "waiting", "written"
    path.write_text("\n".join(f"@property\ndef {name}(): ..." for name in names))
    found = [each.text for each in problems_of_names(path)]
    assert found == ["behind", "kept", "waiting"]
