from typing_extensions import disjoint_base

@disjoint_base
class CallPath:
    code: int
    served: int
    declined: int
    def count_kept(self) -> int: ...

__pyx_capi__: dict[str, object]
