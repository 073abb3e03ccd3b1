"""The tail ring, slow and obvious: a dictionary from offset to byte."""


class ModelRing:
    """What a ring holds, may take, and must have given to the files before that."""

    def __init__(self, size, begin):
        self.size = size
        self.margin = size // 8
        self.begin = self.end = self.written = begin
        self.bytes = {}

    @property
    def floor(self):
        return max(self.begin, self.end - self.size)

    @property
    def room(self):
        return max(0, self.size - 2 * self.margin - (self.end - self.written))

    def add(self, data):
        """Append; False if it does not fit."""
        if len(data) > min(self.margin, self.room):
            return False
        for byte in data:
            self.bytes.pop(self.end - self.size, None)
            self.bytes[self.end] = byte
            self.end += 1
        return True

    def read(self, offset, size):
        """Bytes, or None if one of them is not here."""
        if offset < self.floor or offset + size > self.end:
            return None
        found = [self.bytes.get(at) for at in range(offset, offset + size)]
        return None if None in found else bytes(found)
