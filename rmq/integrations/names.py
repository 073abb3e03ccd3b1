"""Names: the topics, groups and tags of queues and exchanges.

A queue has a topic and a group of its name. A named exchange has the topic `%X%NAME`;
its messages have the routing key as tag. `%X%` without a name is the topic of the
queues that belong to one process. Letters other than `A-Za-z0-9_-` become `%XX`.
"""

import re
from typing import Final, NamedTuple

from rmq.client.namespaces import wrap
from rmq.protocol.topics import MAX_GROUP_LENGTH, dlq_topic

EXCHANGE_PREFIX: Final = "%X%"
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def escape(name: str) -> str:
    """Return a name with the letters of topics only.

    >>> escape("celery@host.pidbox")
    'celery%40host%2Epidbox'
    """
    return _OTHER.sub(lambda found: _escape_letter(found[0]), name)


def _escape_letter(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())


class Names(NamedTuple):
    """The prefixes of one application; `namespace` is a virtual host, or empty."""

    namespace: str = ""
    topic_prefix: str = ""
    group_prefix: str = ""

    def topic(self, queue: str) -> str:
        """Return the topic of a queue; ValueError if its name is too long."""
        return self._check_length(self.topic_prefix + escape(queue), queue)

    def group(self, queue: str) -> str:
        """Return the group of a queue; ValueError if its name is too long."""
        return self._check_length(self.group_prefix + escape(queue), queue)

    def exchange(self, name: str) -> str:
        """Return the topic of an exchange; for "" the topic of the queues that belong
        to one process.
        """
        return self._check_length(
            EXCHANGE_PREFIX + self.topic_prefix + escape(name), name
        )

    def dead_letters(self, queue: str) -> str:
        """Return the topic of a queue's dead letters."""
        return dlq_topic(self.group(queue))

    def _check_length(self, name: str, given: str) -> str:
        wire = wrap(self.namespace, name)
        if len(wire) > MAX_GROUP_LENGTH:
            raise ValueError(
                f"the name {given!r} is {len(wire)} letters long as {wire!r}; "
                f"topics and groups have at most {MAX_GROUP_LENGTH}"
            )
        return wire
