"""The page admin.md: the requests of each command, and their handlers.

`python -m rmq.cli.admin.document` prints it. It starts a broker with a name server in
a temporary directory and reads the registrations of its plugins.
"""

import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from rmq.cli.admin.catalogue import ENTRIES, LOCAL, UNSERVED
from rmq.cli.nouns.catalogue import NOUNS
from rmq.client.admin import AdminClient
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.errors import RequestRejected
from rmq.node.broker import run_broker
from rmq.node.node import Node
from rmq.plugin.register import MethodOnUse
from rmq.plugin.registry import PluginSet
from rmq.protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.store.config import StoreConfig

NAME_SERVER_CODES: Final = frozenset(
    {100, 101, 102, 105, 106, 205, 206, 216, 318, 319, 327}
)
"""Request codes for name servers; all others are for brokers."""

ELSEWHERE: Final = {"container": "`rmq container`", "controllers": "`rmq controller`"}
"""Servers of the commands that are not for brokers and name servers, by module."""

HEAD: Final = """\
# Administration

`mqadmin` of RocketMQ works against rmq unmodified, and `rmq admin` has its commands by
the same names and flags. The most frequent tasks have short names, a noun and a verb:

{verbs}

    rmq topic create Orders --queues 16
    rmq topic info Orders
    rmq group reset billing Orders --to 30m
    rmq user allow shop Topic:Orders Pub,Sub
    rmq message find Orders --key o-4711

`rmq topic clear` deletes the messages of a topic and keeps its settings; the groups
continue at the next message. `rmq topic create` does not change a topic that exists.
`rmq topic set` changes the settings that its options name. `updateTopic` sets all
settings: without `-r` and `-w` the topic then has 8 queues. `rmq group set` and
`updateSubGroup` differ in the same way. `rmq group set billing --no-consume` pauses a
group. On a terminal `rm` and `clear` ask for a confirmation, except with `-y`. `rmq
user allow` adds actions to the current rule for the same resource; `createAcl` replaces
the rule.

All these commands print tables, or one document with `--json`. If only one cluster is
registered, no command needs `-c`. `-B` is the name of a broker, `-b` its address. The
exit codes are:

| code | meaning |
|---|---|
| 0 | success |
| 1 | failed: a problem was found, or a file or a setting is wrong |
| 2 | usage |
| 3 | a server cannot be reached |
| 4 | the output cannot be written |
| 5 | a server refused the request, or does not have the topic, group, user or broker |

The text of a failure has its reason, and a remedy after `->`. A remedy that begins with
`rmq` is a command that you can paste: it repeats the options that name the servers. On
a terminal tables fit its width and times are local. In a pipe columns are separated by
tabs, times are ISO in UTC, and the header has the keys of `--json` (no header with
`-H`). `--mqadmin` prints the raw values of mqadmin's columns, for scripts that read
them. `rmq doctor` checks configuration, machine and running brokers, and gives a remedy
for each problem.

`python -m rmq.cli.admin.document` prints this page.

## Name servers, users and TLS

All commands of `rmq` that ask servers connect in the same way:

| | flag | variable | in `~/.config/rmq/tools.toml` |
|---|---|---|---|
| name servers | `-n` | `NAMESRV_ADDR` | `namesrv = "a:9876;b:9876"` |
| user | | `RMQ_USER` | `user = "alice"` |
| password | | `RMQ_PASSWORD_FILE`, a file | `password_file = "…"` or `password = "…"` |
| TLS | `--tls` | | `tls = true` |
| CA bundle for servers | `--ca FILE` | | `ca = "…"` |
| client certificate | `--tls-cert`, `--tls-key` | | `tls_cert = "…"`, `tls_key = "…"` |
| name in the certificate, if it is not the host | `--tls-name NAME` | | `tls_name =
"…"` |

A context is a set of these settings with a name:

    rmq context add production -n 10.0.0.1:9876 --ca ca.pem --user alice
    rmq context use production
    rmq topic ls --context staging

A context is a file `~/.config/rmq/contexts/NAME.toml` with the keys of the table. Flags
have priority; after them come the context of `--context` or `RMQ_CONTEXT`, variables,
the context in use, and `tools.toml`. A file with a password must be readable by its
owner only (`chmod 600`). If no user is set, the tools read `conf/tools.yml` of mqadmin
in `$ROCKETMQ_HOME`. The tools verify the signature of a server's certificate, and its
host name. Brokers often register IP addresses: use certificates with these addresses,
or `--tls-name`; `'*'` accepts every name in a certificate that a trusted CA signed.
`rmq doctor -c broker.conf` also uses the certificates and the user of that file.

## Messages

`rmq send` and `rmq consume` send and show messages.

    rmq send Hello "hello, rmq"
    rmq send Hello -k o-4711 -t paid -p color=red --delay 10s --file order.json
    seq 100000 | rmq send Hello --lines --rate 20000
    rmq consume Hello
    rmq consume Hello --from 2026-11-21T03:00 -e --json
    rmq consume Hello -g billing -c 2 -f '%q:%o %k %v\\n'

If the topic does not exist yet, `rmq consume` waits for it, and shows its messages from
the first on; with `-e` it fails. `rmq consume` without `-g` joins no group and commits
nothing. With `-g` it is a member of the group. It gets its share of the queues, commits
the messages that it has printed, and leaves the group at the end. Another member then
gets the messages that `rmq consume` received but did not print. A new group begins at
the first message. If the default of `messageDelayLevel` has a level with exactly this
delay, `--delay` uses the level. Without such a level `rmq send` sends a timed message,
which not every broker serves.

On a terminal a message is one line. In a pipe it has columns with tabs between them;
later versions keep these columns. The columns of `rmq send` are topic, queue, offset,
message id and time. The columns of `rmq consume` are time, queue, offset, keys, tags
and body. In bodies, keys and tags `rmq consume` writes control characters and marks of
writing direction as escapes. With `--raw` it writes bodies without change, but not to a
terminal. Ctrl-C ends `rmq consume` with exit code 0, and `rmq send --lines` with 130
after it has printed the number of sent messages. SIGTERM and SIGHUP do the same, with
exit codes 143 and 129, also in process 1 of a container. The group has committed all
messages that `rmq consume` has printed. If a broker stops, `rmq consume` reports it,
waits until it is back, and continues; with `-e` it ends with exit code 3.

`queryMsgById` and `queryMsgByUniqueKey` show the groups that have consumed a message;
`queryMsgByOffset`, `printMsg` and `printMsgByQueue` do not.

`rmq request` sends a request message and prints the reply of a consumer; `rmq reply`
replies to the requests of a topic, with a text, an echo, or the output of a command:

    rmq reply Prices --exec 'jq .fruit'
    rmq request Prices apple --timeout 10

`rmq reply` is a member of a group, `rmq-reply` by default, and its members share the
requests. If no consumer replies within `--timeout`, `rmq request` ends with exit code
1.

In bash, `eval "$(_RMQ_COMPLETE=bash_source rmq)"` completes commands and options (zsh
and fish have `zsh_source`, `fish_source`). It also completes names of topics, groups
and brokers, and gets these names from the name server.

## Statistics and live keys

Request 25 (`updateBrokerConfig`) changes keys that are marked live in
[configuration.md](../reference/configuration.md), in the process and in its file. The
broker refuses a request with another key, and the answer names the key. The broker
ignores a key that rmq does not have, as Java's broker does. Its log and the remark of
the answer name the key, and `rmq admin` fails with this remark. Statistics (`statsAll`,
315) hold sums and rates over the last minute, hour and day: `TOPIC_PUT_NUMS`,
`TOPIC_PUT_SIZE`, `QUEUE_PUT_NUMS`, `QUEUE_PUT_SIZE`, `GROUP_GET_NUMS`,
`GROUP_GET_SIZE`, `QUEUE_GET_NUMS`, `QUEUE_GET_SIZE`, `SNDBCK_PUT_NUMS`,
`SNDBCK2DLQ_TIMES`, `COMMIT_NUMS`, `ROLLBACK_NUMS`, `BROKER_PUT_NUMS`,
`BROKER_GET_NUMS`. A broker has at most 20,000 items, and removes an item without an
event for a day.
"""


class Served(NamedTuple):
    """Handlers of a running node by code, and advice for the codes that it refuses."""

    handlers: Mapping[int, str]
    advice: Mapping[int, str]
    name_server: frozenset[int]

    def handler_of(self, code: int) -> str:
        """Return the handler of a code, or the reason why there is no handler."""
        if code in NAME_SERVER_CODES:
            return "name server" if code in self.name_server else "not served yet"
        if code in self.advice:
            return f"3: {self.advice[code]}"
        handler = self.handlers.get(code)
        return f"`{handler}`" if handler else "not served yet"

    def is_served(self, code: int) -> bool:
        """Whether a handler serves a code."""
        if code in NAME_SERVER_CODES:
            return code in self.name_server
        return code in self.handlers and code not in self.advice


def render_page(served: Served) -> str:
    """Return the text of the page."""
    verbs = [
        f"| `rmq {noun} {verb}` | {text} |"
        for noun, some in NOUNS.items()
        for verb, text in some.items()
    ]
    table = "\n".join(["| command | effect |", "|---|---|", *verbs])
    lines = [
        HEAD.replace("{verbs}", table),
        "## Commands",
        "",
        "| command | requests | status |",
        "|---|---|---|",
    ]
    for name in sorted(ENTRIES):
        codes = ENTRIES[name].codes
        missing = [str(code) for code in codes if not served.is_served(code)]
        if ENTRIES[name].module in ELSEWHERE:
            status = f"served by {ELSEWHERE[ENTRIES[name].module]}"
        elif name in UNSERVED:
            status = f"not applicable: {served.advice.get(codes[0], 'not served')}"
        elif missing:
            status = f"{', '.join(missing)} not served yet"
        else:
            status = "served"
        asked = ", ".join(map(str, sorted(codes)))
        lines.append(f"| `rmq admin {name}` | {asked} | {status} |")
    lines += [
        f"| mqadmin {name} | none | not applicable: reads files of Java's broker |"
        for name in LOCAL
    ]
    lines += [
        "",
        "## Requests",
        "",
        "| code | name | handler | commands |",
        "|---|---|---|---|",
    ]
    for code in sorted({code for entry in ENTRIES.values() for code in entry.codes}):
        users = sorted(name for name, entry in ENTRIES.items() if code in entry.codes)
        commands = "most" if len(users) > 20 else ", ".join(users)
        own = code in {*OwnRequestCode}
        name = (OwnRequestCode if own else RequestCode)(code).name
        lines.append(f"| {code} | {name} | {served.handler_of(code)} | {commands} |")
    return "\n".join(lines) + "\n"


async def inspect_server() -> Served:
    """Start a node and return the request codes that it serves."""
    with tempfile.TemporaryDirectory() as folder:
        values = {
            "listenPort": "0",
            "rmq.namesrv.listenPort": "0",
            "namesrvAddr": "",
            "storePathRootDir": folder,
            "mappedFileSizeCommitLog": str(1 << 20),
        }
        config, store = build(BrokerConfig, values), build(StoreConfig, values)
        plugins = PluginSet()
        plugins.load()
        interval_s = sys.getswitchinterval()
        async with trio.open_nursery() as nursery:
            node: Node = await nursery.start(
                partial(run_broker, config, store, plugins=plugins)
            )
            try:
                return await _inspect_node(node)
            finally:
                node.stop()
                with trio.CancelScope(shield=True):
                    await node.finished.wait()
                sys.setswitchinterval(interval_s)
    raise AssertionError("unreachable")


async def _inspect_node(node: Node) -> Served:
    assert node.broker is not None
    context = node.broker.context
    handlers, advice = {}, {}
    for claim in context.registered.claims.values():
        handler = claim.handler
        if isinstance(handler, MethodOnUse):
            handler = handler.resolve()
        module = handler.__module__.removeprefix("rmq_plugins.")
        handlers[claim.code] = f"{module}.{handler.__qualname__}"
        if handler.__qualname__ == "refuse":
            try:
                handler(Command(claim.code), None)  # type: ignore[arg-type] # unused
            except RequestRejected as refusal:
                advice[claim.code] = refusal.remark.partition("supported: ")[2]
    names = await trio.to_thread.run_sync(_ask_name_server, node.name_servers[0])
    return Served(handlers, advice, names)


def _ask_name_server(address: str) -> frozenset[int]:
    """Return the codes that the name server does not answer with 3."""
    unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    with AdminClient([address]) as admin:
        return frozenset(
            code
            for code in NAME_SERVER_CODES
            if admin.try_request(address, code).code != unknown
        )


if __name__ == "__main__":
    sys.stdout.write(render_page(trio.run(inspect_server)))
