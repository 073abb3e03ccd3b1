"""The nouns and their verbs: help, names of other tools, completion, output in JSON."""

import json
import shlex

import click
import pytest
import trio
from click.shell_completion import BashComplete
from click.testing import CliRunner

from rmq.cli import completion, main
from rmq.cli.nouns.catalogue import EXAMPLES, NOUNS, SUMMARIES
from rmq.cli.nouns.command import load_noun

VERBS = [(noun, verb) for noun, some in NOUNS.items() for verb in some]
LOCAL = {"context"}


def verb_of(noun, verb):
    group = load_noun(noun)
    return group.get_command(click.Context(group), verb)


def test_every_noun_has_a_summary_and_examples():
    assert NOUNS.keys() == SUMMARIES.keys() == EXAMPLES.keys()


@pytest.mark.parametrize(("noun", "verb"), VERBS)
def test_each_verb_has_help_json_and_the_common_options(noun, verb):
    command = verb_of(noun, verb)
    assert (command.help or "").startswith(NOUNS[noun][verb])
    names = {name for each in command.params for name in each.opts}
    assert "--json" in names
    if noun not in LOCAL:
        assert {"-n", "--namesrvAddr", "--context", "--timeout"} <= names
    options = [name for each in command.params for name in each.opts]
    assert len(set(options)) == len(options), "two parameters have one name"
    for each in command.params:
        if isinstance(each, click.Option):
            assert each.help, each.name


@pytest.mark.parametrize("noun", NOUNS)
def test_the_examples_are_commands(noun):
    for line in filter(None, map(str.strip, EXAMPLES[noun].splitlines())):
        rmq, *words = shlex.split(line)
        assert rmq == "rmq"
        command = verb_of(words[0], words[1])
        if "--password-file" not in words:  # a file of the reader
            assert command.make_context(words[1], words[2:]), line


def test_help_imports_no_verb():
    result = CliRunner().invoke(main, ["topic", "--help"])
    assert "create  Create a topic." in result.stdout
    assert "rmq topic create Orders --queues 16\n" in result.stdout


async def test_names_of_other_tools(rmq):
    assert (await rmq("topic", "list")).exit_code == 0
    result = await rmq("topic", "describe", "Nothing")
    assert result.stderr.startswith("rmq: there is no topic Nothing\n")
    assert "Did you mean create?" in (await rmq("topic", "creat")).stderr


def every_command():
    """Yield the words and the command of everything that `rmq` can do."""

    def walk(group, words):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from walk(command, [*words, name])
            else:
                yield [*words, name], command

    yield from walk(main, [])


SERVERS = {"broker", "container", "controller", "namesrv", "store", "sql", "config"}


def test_topics_and_groups_are_completed_everywhere():
    wanted = {"topic": completion.topics, "group": completion.groups}
    missing = [
        (words, each.name)
        for words, command in every_command()
        if words[0] not in SERVERS
        for each in command.params
        if each.name in wanted
        and vars(each)["_custom_shell_complete"] is not wanted[each.name]
    ]
    assert not missing


def test_one_way_to_write_the_name_servers():
    for words, command in every_command():
        for each in command.params:
            if each.name in {"namesrv", "name_server"}:
                assert each.opts[:2] == ["-n", "--namesrvAddr"], words
                shown = each.get_help_record(click.Context(command))
                assert shown[0] == "-n, --namesrvAddr HOST:PORT;…", words


async def test_verbs_complete_topics_and_groups(rmq, node):
    assert (await rmq("topic", "create", "Orders")).exit_code == 0
    where = "-n", node.name_servers[0]

    def complete(*words):
        shell = BashComplete(main, {}, "rmq", "_RMQ_COMPLETE")
        *before, last = words
        return [each.value for each in shell.get_completions(before, last)]

    def ask():
        return complete("topic", "info", *where, "Or"), complete("topic", "r")

    topics, verbs = await trio.to_thread.run_sync(ask)
    assert (topics, verbs) == (["Orders"], ["rm"])


async def test_json_is_the_same_as_the_table(rmq):
    await rmq("topic", "create", "Orders")
    rows = json.loads((await rmq("topic", "ls", "--json")).stdout)
    lines = (await rmq("topic", "ls")).stdout.splitlines()
    assert lines[0].split("\t") == list(rows[0])
    assert lines[1].split("\t")[0] == rows[0]["topic"] == "Orders"
