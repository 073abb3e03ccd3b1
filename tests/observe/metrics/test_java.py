"""Parts of Java's metrics that need no node: names of versions."""

import json

from rmq.observe.metrics.java import version_name
from rmq.protocol.codes import Version


def test_versions_have_javas_names(golden):
    facts = json.loads((golden / "facts-5.5.0.json").read_text())["versions"]
    named = {n: v for n, v in facts.items() if n.startswith("V")}
    assert len(named) > 40
    for name, number in named.items():
        assert version_name(number) == name.lower()
    for one in Version:
        if one >= Version.V4_1_0_SNAPSHOT:
            assert version_name(one) == one.name.lower()


def test_versions_before_the_rule_are_numbers():
    assert version_name(Version.V3_4_9) == "ordinal_121"
