__pyx_capi__: dict[str, object]

KNOWN_NAMES: dict[bytes, int]
STATIC_TEXTS: tuple[tuple[bytes, bytes], ...]
