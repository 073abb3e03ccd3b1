"""MemoryNetwork: streams without sockets, with simulated delay, cuts and disorder.

Each `send_all` is a parcel. A parcel takes a random time between the bounds of
`delay_s`. Parcels arrive in order, or with `reorder` in the order of their times; then
parcels must be independent, like frames. All randomness comes from the seed, and all
time from the clock of trio: under an autojump clock long delays take no time.

Limits: a stream has at most PARCEL_LIMIT parcels in transit; then a sender waits.
"""

import heapq
import random
from collections.abc import Callable
from typing import Final

import trio

PARCEL_LIMIT: Final = 1_024
BACKLOG: Final = 128


class MemoryNetwork:
    """Addresses, the streams between them, and their disturbances."""

    def __init__(
        self,
        seed: int = 0,
        *,
        delay_s: tuple[float, float] = (0.0, 0.0),
        reorder: bool = False,
    ) -> None:
        self.delay_s = delay_s
        self.reorder = reorder
        self._random = random.Random(seed)
        self._listeners: dict[str, MemoryListener] = {}
        self._streams: dict[str, list[MemoryStream]] = {}
        self._is_cut: set[str] = set()

    def listen(self, address: str) -> "MemoryListener":
        """Bind an address; `trio.serve_listeners` can serve the result."""
        if address in self._listeners:
            raise OSError(f"{address} is in use")
        listener = self._listeners[address] = MemoryListener(
            lambda: self._listeners.pop(address)
        )
        return listener

    async def connect(self, address: str) -> "MemoryStream":
        """Connect; OSError if nothing listens there or the address is cut."""
        await trio.lowlevel.checkpoint()
        listener = self._listeners.get(address)
        if listener is None or address in self._is_cut:
            raise ConnectionRefusedError(f"{address} cannot be reached")
        there, back = _Pipe(self), _Pipe(self)
        near, far = MemoryStream(there, back), MemoryStream(back, there)
        self._streams.setdefault(address, []).append(near)
        await listener.enqueue(far)
        return near

    def isolate(self, address: str) -> None:
        """Break the streams to an address, and refuse new ones until `heal`.

        Parcels in transit are lost.
        """
        self._is_cut.add(address)
        for stream in self._streams.pop(address, []):
            stream.break_off()

    def heal(self, address: str) -> None:
        """Accept connections to the address again."""
        self._is_cut.discard(address)

    def travel_s(self) -> float:
        """Draw the time that a parcel takes."""
        return self._random.uniform(*self.delay_s)


class MemoryListener(trio.abc.Listener["MemoryStream"]):
    """The accepting end of an address."""

    def __init__(self, leave: Callable[[], object]) -> None:
        self._leave = leave
        self._sending, self._accepting = trio.open_memory_channel[MemoryStream](BACKLOG)

    async def enqueue(self, stream: "MemoryStream") -> None:
        """Queue a stream for `accept`."""
        await self._sending.send(stream)

    async def accept(self) -> "MemoryStream":
        """Return the next stream."""
        return await self._accepting.receive()

    async def aclose(self) -> None:
        """Release the address."""
        self._leave()
        await self._sending.aclose()
        await self._accepting.aclose()


class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of a connection."""

    def __init__(self, outgoing: "_Pipe", incoming: "_Pipe") -> None:
        self._outgoing = outgoing
        self._incoming = incoming

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send one parcel."""
        await self._outgoing.put(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room for a parcel."""
        await self._outgoing.wait_room()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return bytes of the next parcel that arrived; nothing at the end."""
        return await self._incoming.get(max_bytes)

    async def send_eof(self) -> None:
        """Signal the end of this direction."""
        self._outgoing.end()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """End both directions; parcels in transit still arrive."""
        self._outgoing.end()
        self._incoming.close_reading()
        await trio.lowlevel.checkpoint()

    def break_off(self) -> None:
        """End both directions for both ends, with an error."""
        self._outgoing.break_off()
        self._incoming.break_off()


class _Pipe:
    """One direction: parcels ordered by the time at which they arrive."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._parcels: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._latest = 0.0
        self._rest = b""
        self._is_ended = self._is_broken = self._is_unread = False
        self._changed = trio.Event()

    async def put(self, data: bytes) -> None:
        await self.wait_room()
        if self._is_ended:
            raise trio.ClosedResourceError("this end was closed")
        arrives = trio.current_time() + self._network.travel_s()
        if not self._network.reorder:
            arrives = self._latest = max(self._latest, arrives)
        if data:
            heapq.heappush(self._parcels, (arrives, self._count, data))
            self._count += 1
            self._notify()

    async def wait_room(self) -> None:
        await trio.lowlevel.checkpoint()
        while len(self._parcels) >= PARCEL_LIMIT and not self._is_over():
            await self._changed.wait()
        if self._is_over():
            raise trio.BrokenResourceError("the connection was cut")

    def _is_over(self) -> bool:
        return self._is_broken or self._is_unread

    async def get(self, max_bytes: int | None) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._rest:
            if self._is_broken:
                raise trio.BrokenResourceError("the connection was cut")
            if self._is_unread:
                raise trio.ClosedResourceError("this end was closed")
            if not self._parcels and self._is_ended:
                return b""
            await self._wait_for_parcel()
        size = len(self._rest) if max_bytes is None else max_bytes
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    async def _wait_for_parcel(self) -> None:
        """Wait until the first parcel is due, or until something changes before."""
        due = self._parcels[0][0] if self._parcels else None
        if due is not None and due <= trio.current_time():
            self._rest = heapq.heappop(self._parcels)[2]
            self._notify()
            return
        changed = self._changed
        with trio.CancelScope(deadline=float("inf") if due is None else due):
            await changed.wait()

    def end(self) -> None:
        self._is_ended = True
        self._notify()

    def close_reading(self) -> None:
        self._is_unread = True
        self._notify()

    def break_off(self) -> None:
        self._is_broken = True
        self._parcels.clear()
        self._rest = b""
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
