from typing import Self, final

@final
class ReplyFields:
    def __new__(cls, fields: dict[str, str]) -> Self: ...
