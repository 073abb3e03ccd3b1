"""`rmq user`: its verbs against a node that requires signed requests."""

import json

import pytest


@pytest.fixture
def super_user(secured, command, environment, authority):
    """Return a function that runs a command as the super user."""
    where = "-n", secured.name_servers[0], "--ca", authority.cert

    async def call(*words, stdin=None, code=0):
        result = await command(*words, *where, env=environment, stdin=stdin)
        assert result.exit_code == code, result.output
        return result

    return call


async def test_from_creation_to_deletion(super_user):
    await super_user("user", "create", "shop", "--password-file", "-", stdin="pw\n")
    await super_user("user", "allow", "shop", "Topic:Orders", "Pub,Sub")
    await super_user("user", "deny", "shop", "Group:*", "Sub", "--from", "10.0.0.1")
    found = json.loads((await super_user("user", "info", "shop", "--json")).stdout)
    assert (found["username"], found["userType"]) == ("shop", "Normal")
    rules = {row["resource"]: row for row in found["rules"]}
    assert rules["Topic:Orders"]["actions"] == ["Pub", "Sub"]
    assert rules["Group:*"]["decision"] == "Deny"
    assert rules["Group:*"]["sourceIps"] == ["10.0.0.1"]
    await super_user("user", "revoke", "shop", "Group:*")
    await super_user("user", "set", "shop", "--disable")
    found = json.loads((await super_user("user", "info", "shop", "--json")).stdout)
    assert len(found["rules"]) == 1
    assert found["userStatus"] == "disable"
    await super_user("user", "rm", "shop")
    assert "shop" not in (await super_user("user", "ls")).stdout


async def test_a_user_that_is_not_there(super_user):
    for words in (["info"], ["set", "--disable"], ["rm"]):
        result = await super_user("user", words[0], "nobody", *words[1:], code=5)
        assert result.stderr.startswith("rmq: there is no user nobody\n")
    result = await super_user("user", "allow", "nobody", "Topic:A", "Pub", code=5)
    assert result.stderr.startswith("rmq: there is no user nobody\n")


async def test_a_password_is_never_an_argument(super_user):
    result = await super_user("user", "create", "shop", code=2)
    assert "--password-file" in result.stderr
