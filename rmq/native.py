"""The public door to compiled code: what plugins may use of `_fastpath`.

A compiled handler of a plugin cimports `rmq/_fastpath/native.pxd`, which holds the
contract, and subclasses `NativeHandler`.
"""

from rmq._fastpath import NativeHandler, java_hash, tags_code

__all__ = ["NativeHandler", "java_hash", "tags_code"]
