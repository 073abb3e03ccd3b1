"""Rows to items of client batches, the slow and obvious way."""

import struct

HEAD = struct.Struct(">iiiii")
COLUMNS = {"msgId": "UNIQ_KEY", "keys": "KEYS", "tags": "TAGS"}
"""Columns in the order of their pairs, and the properties that they stand for."""


def row_key(task: str, row: int) -> str:
    """The key of a row: task, high bits of its number, low bits."""
    return f"{task}{row >> 16:08X}{row & 0xFFFF:04X}"


def fault_of_text(text: bytes) -> str | None:
    if b"\1" in text or b"\2" in text:
        return "SEPARATOR"
    try:
        text.decode()
    except UnicodeDecodeError:
        return "NOT_UTF8"
    return None


def model_item(row: dict, number: int, task: str | None, known: dict, limit: int):
    """The item of a row as bytes, or the name of its fault."""
    if not row["body"]:
        return "NO_BODY"
    if len(row["body"]) > limit:
        return "LARGE_BODY"
    own = {name: row[column] for column, name in COLUMNS.items() if row.get(column)}
    for value in own.values():
        if fault := fault_of_text(value):
            return fault
    pairs = []
    for name, value in row.get("pairs") or ():
        if not value:
            continue
        if not name:
            return "NO_NAME"
        if fault := fault_of_text(name) or fault_of_text(value):
            return fault
        if known.get(name):
            return "RESERVED_NAME"
        if name not in known and name.decode() not in own:
            pairs.append((name, value))
    pairs += [(name.encode(), value) for name, value in own.items()]
    if task and "UNIQ_KEY" not in own:
        pairs.append((b"UNIQ_KEY", row_key(task, number).encode()))
    text = b"".join(b"%b\1%b\2" % pair for pair in pairs)
    if len(text) > 32_767:
        return "LARGE_PROPERTIES"
    size = HEAD.size + len(row["body"]) + 2 + len(text)
    head = HEAD.pack(size, 0, 0, row.get("flag") or 0, len(row["body"]))
    return head + row["body"] + struct.pack(">h", len(text)) + text
