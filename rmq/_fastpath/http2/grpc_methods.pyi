__pyx_capi__: dict[str, object]

SERVICE: bytes
METHOD_NAMES: tuple[bytes, ...]
