from typing import Self, final

@final
class ReplyFields:
    """ValueError if they are too long for a reply."""

    def __new__(cls, fields: dict[str, str]) -> Self: ...
