"""Versions have the names that their releases had."""

import json

import pytest

from rmq.protocol.client_versions import LAST_NAMED, version_text
from rmq.protocol.codes import Version


def test_names_are_those_of_the_releases(golden):
    facts = json.loads((golden / "facts-5.5.0.json").read_text())["versions"]
    for name, number in facts.items():
        if name.startswith("V"):
            text = name.removeprefix("V").replace("_SNAPSHOT", "-SNAPSHOT")
            assert version_text(number) == text.replace("_", ".")


@pytest.mark.parametrize("number", [-1, 0, Version.V3_4_9, 211, LAST_NAMED + 1])
def test_numbers_without_a_name(number):
    assert version_text(number) == ""


def test_the_last_name():
    assert version_text(LAST_NAMED) == "9.9.9"
