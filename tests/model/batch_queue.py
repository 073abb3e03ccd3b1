"""A queue of type BatchCQ as a list: what `BatchQueue` must answer."""

from typing import NamedTuple


class Place(NamedTuple):
    """A record and the messages in it."""

    physical_offset: int
    size: int
    tags_code: int
    store_ms: int
    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count

    @property
    def end_physical(self) -> int:
        return self.physical_offset + self.size


class BatchQueueModel:
    """All records of a queue that were ever added and not cut."""

    def __init__(self) -> None:
        self.places: list[Place] = []

    @property
    def next_offset(self) -> int:
        return self.places[-1].end if self.places else 0

    def add(self, physical_offset, size, tags_code, store_ms, count):
        first = self.next_offset
        self.places.append(
            Place(physical_offset, size, tags_code, store_ms, first, count)
        )

    def truncate(self, end_physical):
        while self.places and self.places[-1].end_physical > end_physical:
            self.places.pop()

    def place_of(self, offset):
        [found] = [p for p in self.places if p.first <= offset < p.end]
        return found

    def min_offset(self, log_start):
        kept = [p.first for p in self.places if p.physical_offset >= log_start]
        return kept[0] if kept else self.next_offset

    def visible_offset(self, confirm_offset):
        ends = [p.end for p in self.places if p.end_physical <= confirm_offset]
        return ends[-1] if ends else 0

    def search_time(self, timestamp_ms, upper):
        later = [p for p in self.places if p.store_ms >= timestamp_ms]
        if not later:
            return self.places[-1].first
        equal = [p for p in later if p.store_ms == timestamp_ms]
        return (equal[-1] if upper and equal else later[0]).first

    def scan(self, offset, tag_codes, max_messages, max_bytes):
        """Return the places of the records, and the offset after the last one seen."""
        taken, at = [], offset
        for place in self.places:
            if place.end <= offset:
                continue
            messages = sum(p.count for p in taken)
            size = sum(p.size for p in taken)
            is_full = messages + place.count > max_messages
            if taken and (is_full or size + place.size > max_bytes):
                break
            if tag_codes is None or place.tags_code in tag_codes:
                taken.append(place)
            at = place.end
        return [(p.physical_offset, p.size) for p in taken], at
