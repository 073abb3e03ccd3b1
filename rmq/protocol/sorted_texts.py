"""SortedTexts: texts in the order of their names, joined in blocks.

The text of ten thousand members is often needed, and only one member changes at a time.
A block holds the joined texts of neighbours, so a change copies one block only. All
texts together are only a few hundred objects, so garbage collections, lists and joins
stay fast.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

BLOCK_MEMBERS: Final = 64
BLOCK_SIZE: Final = 32 * 1024
"""Limit of a block, above which it is divided; a single member may be larger."""


class _Block:
    """Members that follow each other."""

    __slots__ = ("names", "sizes", "text")

    def __init__(self, names: list[bytes], sizes: list[int], text: bytes) -> None:
        self.names = names
        self.sizes = sizes
        self.text = text

    @property
    def is_large(self) -> bool:
        """Whether the block must be divided."""
        count = len(self.names)
        return count > BLOCK_MEMBERS or (len(self.text) > BLOCK_SIZE and count > 1)

    def replace(self, index: int, size: int, text: bytes) -> None:
        """Write a text over the `size` bytes where the member `index` starts."""
        start = sum(self.sizes[:index])
        self.text = self.text[:start] + text + self.text[start + size :]

    def cut_at(self, index: int) -> "_Block":
        """Remove the members from `index` on and return them."""
        size = sum(self.sizes[:index])
        rest = _Block(self.names[index:], self.sizes[index:], self.text[size:])
        del self.names[index:], self.sizes[index:]
        self.text = self.text[:size]
        return rest


class SortedTexts:
    """Texts by name; the names are compared as bytes."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.firsts: list[bytes] = []
        """First name of each block."""

        self._count = 0

    def __len__(self) -> int:
        """Return the number of texts."""
        return self._count

    def put(self, name: bytes, text: bytes) -> None:
        """Add or replace a text."""
        if not self.blocks:
            self._insert_block(0, _Block([], [], b""), name)
        at = max(0, bisect_right(self.firsts, name) - 1)
        block = self.blocks[at]
        index = bisect_left(block.names, name)
        if index < len(block.names) and block.names[index] == name:
            block.replace(index, block.sizes[index], text)
            block.sizes[index] = len(text)
        else:
            block.replace(index, 0, text)
            block.names.insert(index, name)
            block.sizes.insert(index, len(text))
            self.firsts[at] = block.names[0]
            self._count += 1
        if block.is_large:
            self._divide(at, self._split_index(at, index))

    def discard(self, name: bytes) -> None:
        """Remove a text if there is one of this name."""
        at = bisect_right(self.firsts, name) - 1
        if at < 0:
            return
        block = self.blocks[at]
        index = bisect_left(block.names, name)
        if index == len(block.names) or block.names[index] != name:
            return
        block.replace(index, block.sizes[index], b"")
        del block.names[index], block.sizes[index]
        self._count -= 1
        if block.names:
            self.firsts[at] = block.names[0]
            self._merge_small(at)
        else:
            del self.blocks[at], self.firsts[at]

    def joined_texts(self) -> list[bytes]:
        """Return all texts in the order of their names, joined in blocks."""
        return [block.text for block in self.blocks]

    def text_parts(self, limit: int) -> Iterator[list[bytes]]:
        """Yield the texts, joined in blocks, of up to `limit` members at a time."""
        part: list[bytes] = []
        room = limit
        for block in self.blocks:
            text, sizes = block.text, block.sizes
            while len(sizes) >= room:
                size = sum(sizes[:room])
                part.append(text[:size])
                yield part
                text, sizes = text[size:], sizes[room:]
                part, room = [], limit
            if sizes:
                part.append(text)
                room -= len(sizes)
        if part:
            yield part

    def _insert_block(self, at: int, block: _Block, first: bytes) -> None:
        self.blocks.insert(at, block)
        self.firsts.insert(at, first)

    def _split_index(self, at: int, index: int) -> int:
        """Return the index at which to divide a block in which the member `index` is
        new. At both ends of all blocks, only the new member moves to another block. So
        names that come in order, from a file, fill blocks to their limit.
        """
        count = len(self.blocks[at].names)
        if at == len(self.blocks) - 1 and index == count - 1:
            return index
        return 1 if at == index == 0 else count // 2

    def _divide(self, at: int, middle: int) -> None:
        """Divide a block until all its parts are small."""
        rest = self.blocks[at].cut_at(middle)
        self._insert_block(at + 1, rest, rest.names[0])
        for part in (at + 1, at):
            if self.blocks[part].is_large:
                self._divide(part, len(self.blocks[part].names) // 2)

    def _merge_small(self, at: int) -> None:
        """Join a small block with the next block, if the next block is small, too."""
        if at + 1 == len(self.blocks):
            return
        block, other = self.blocks[at : at + 2]
        count = len(block.names) + len(other.names)
        size = len(block.text) + len(other.text)
        if count > BLOCK_MEMBERS // 2 or size > BLOCK_SIZE // 2:
            return
        block.names += other.names
        block.sizes += other.sizes
        block.text += other.text
        del self.blocks[at + 1], self.firsts[at + 1]
