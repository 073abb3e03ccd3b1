from enum import IntEnum
from typing import Self, TypeAlias, final

from typing_extensions import disjoint_base

class Op(IntEnum):
    CONSTANT = 0
    PROPERTY = 1
    CAST = 2
    NEGATE = 3
    NOT = 4
    IS_NULL = 5
    BRANCH = 6
    BRANCH_NULL = 7
    JOIN = 8
    EQUAL = 9
    ORDER = 10
    AMONG = 11
    SEARCH = 12

class Sign(IntEnum):
    LESS = 0
    LESS_OR_EQUAL = 1
    GREATER = 2
    GREATER_OR_EQUAL = 3

class Part(IntEnum):
    CONTAINS = 0
    STARTS_WITH = 2
    ENDS_WITH = 4

@disjoint_base
class Long(int): ...

_Value: TypeAlias = str | bool | int | float | None
_Instruction: TypeAlias = tuple[Op, int, str | int | tuple[_Value, ...] | None]

@final
class Selector:
    size: int
    def __new__(cls, program: list[_Instruction]) -> Self: ...
    def matches(self, properties: bytes) -> bool: ...

def compare_constants(left: _Value, right: _Value) -> int | None: ...
