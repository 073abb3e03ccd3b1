"""Every request code has its needs; a new code must have them too."""

from collections import Counter

from rmq.protocol.codes import OwnRequestCode, RequestCode
from rmq_plugins.admin.unserved import ADVICE
from rmq_plugins.auth import permissions

TABLES = (
    permissions.FIELDS,
    permissions.SPECIAL,
    permissions.CLUSTER_READS,
    permissions.CLUSTER_CHANGES,
    permissions.NOT_OURS,
)


def test_each_code_is_in_one_table():
    found = Counter(code for table in TABLES for code in table)
    assert found == Counter([*RequestCode, *OwnRequestCode])


def test_what_is_not_ours_is_not_served(caller):
    """Some are answered with a hint, to those who administer the cluster."""
    assert set(caller.handlers) & permissions.NOT_OURS <= set(ADVICE)


def test_what_is_asked_later_is_asked_for_something_first():
    assert set(permissions.LATER) <= {*permissions.FIELDS, *permissions.SPECIAL}
