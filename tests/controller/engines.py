"""MemoryEngine: what several controllers share, with terms and lost answers."""

import math

import trio

from rmq.controller.engine import Stored, Term, View
from rmq.core.errors import EngineAway, TermLost


class Shared:
    """The state behind the engines of all controllers."""

    def __init__(self):
        self.groups = {}
        self.revision = 0
        self.term = 0

    def begin_term(self):
        """Let one controller lead; whoever led before does not learn it."""
        self.revision += 1
        self.term = self.revision
        return Term(self.term, math.inf)


class MemoryEngine:
    """The view of one controller."""

    warning = ""

    def __init__(self, shared):
        self.shared = shared
        self.loses = []
        """For the next swaps: `before` it is away, `after` only the answer is lost."""

    async def load(self):
        return View(dict(self.shared.groups))

    async def swap(self, name, group, revision, term):
        lost = self.loses.pop(0) if self.loses else ""
        if lost == "before":
            raise EngineAway("away")
        shared = self.shared
        if term.number != shared.term:
            raise TermLost("another controller leads now")
        known = shared.groups.get(name)
        if revision != (known.revision if known else 0):
            return None
        shared.revision += 1
        if group is None:
            del shared.groups[name]
        else:
            shared.groups[name] = Stored(group, shared.revision)
        if lost == "after":
            raise EngineAway("the answer is lost")
        return shared.revision

    async def watch(self):
        yield await self.load()
        await trio.sleep_forever()

    async def campaign(self, address, on_term):
        on_term(self.shared.begin_term())
        await trio.sleep_forever()
