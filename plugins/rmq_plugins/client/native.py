"""Compiled heartbeats: compiled code answers repetitions of a heartbeat, and renews the
time limits of the members. After a change of a group, its topics or subscriptions, and
after a member leaves, Python serves the group's next heartbeats.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.plugin.native import HeartbeatPath
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import WIRE_VERSION, LanguageCode
from rmq.protocol.command import Command
from rmq.protocol.topics import RETRY_PREFIX


class KnownHeartbeat(NamedTuple):
    """A client and its groups, whose time limits a heartbeat renews."""

    client_id: str
    connection: Connection
    language: int | str | None
    version: int
    consumers: Sequence[str]
    producers: Sequence[str]


class NativeHeartbeats:
    """Registers the heartbeats that compiled code answers; renews their members."""

    def __init__(self, broker: BrokerContext, answer: dict[str, str]) -> None:
        """`answer` has the ext fields of every answer."""
        self.path = HeartbeatPath(self._renew, answer, WIRE_VERSION)
        self._clock = broker.clock
        self._config = broker.config
        self._consumers = broker.consumers
        self._producers = broker.producers
        self._tokens: dict[str, set[int]] = {}
        self._groups: dict[int, set[str]] = {}
        broker.topics.on_change.append(self._forget_topic)
        broker.groups.on_change.append(self.forget_group)
        broker.consumers.on_change.append(self.forget_group)
        broker.filters.on_change.append(self.forget_group)

    def register_heartbeat(self, request: Command, beat: KnownHeartbeat) -> None:
        """Let compiled code answer the same heartbeat of this connection."""
        token, language = beat.connection.token, _language_number(request)
        if language is None:
            return
        self.path.register(
            token, request.body, beat, version=request.version, language=language
        )
        self._groups.setdefault(token, set()).update(beat.consumers)
        for group in beat.consumers:
            self._tokens.setdefault(group, set()).add(token)

    def forget_group(self, group: str) -> None:
        """Leave the next heartbeats of a group's members to Python."""
        for token in list(self._tokens.get(group, ())):
            self.forget_token(token)

    def _forget_topic(self, name: str, topic: TopicConfig | None) -> None:
        if topic is None and name.startswith(RETRY_PREFIX):
            self.forget_group(name.removeprefix(RETRY_PREFIX))

    def forget_token(self, token: int) -> None:
        """Leave a connection's next heartbeat to Python."""
        self.path.unregister(token)
        for group in self._groups.pop(token, ()):
            self._tokens[group].discard(token)
            if not self._tokens[group]:
                del self._tokens[group]

    def _renew(self, beats: list[KnownHeartbeat]) -> None:
        """Renew members; leave the next heartbeat of a removed member to Python."""
        now_ms = self._clock.now_ms()
        for beat in beats:
            try:
                is_known = self._renew_one(beat, now_ms)
            except RequestRejected:  # Python answers the next heartbeat
                is_known = False
            if not is_known:
                self.forget_token(beat.connection.token)

    def _renew_one(self, beat: KnownHeartbeat, now_ms: int) -> bool:
        """Renew a client in its groups; False if one of the groups does not have the
        client.
        """
        client_id, connection, language, version, consumers, producers = beat
        if not connection.is_open:
            return False
        for group in consumers:
            if not self._consumers.renew(group, client_id, connection, now_ms):
                return False
        if self._config.enable_register_producer:
            for group in producers:
                self._producers.register(
                    group, client_id, connection, language, version, now_ms
                )
        return True


def _language_number(request: Command) -> int | None:
    """Return the number of a language in binary headers; None if it has no number."""
    language = request.language or LanguageCode.JAVA
    if isinstance(language, str):
        return LanguageCode.__members__.get(language)
    return language if language in LanguageCode.__members__.values() else None
