__pyx_capi__: dict[str, object]

def hmac_sha1(secret: bytes, content: bytes, *, plain: bool = False) -> bytes:
    """Sign as `hmac.digest` does; `plain` does not use the CPU's SHA instructions."""
