"""Text of a properties file in the encodings that editors and Java's users write.

UTF-8 with and without a byte order mark, and UTF-16. Comments may have any encoding, as
in files for Java, which reads every byte. A key or a value that is not UTF-8 is an
error that names its line.
"""

from typing import Final

from rmq.core.errors import ConfigError

UTF16_MARKS: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
UTF16_SHARE: Final = 3
"""A text counts as UTF-16 without a mark if at least one of this many bytes is zero."""


def decode_properties(data: bytes) -> str:
    """Return the text of a file; ConfigError names the first line that is wrong."""
    encoding = UTF16_MARKS.get(data[:2]) or _guess_utf16(data)
    if encoding:
        try:
            return data.decode(encoding).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"the file is not valid UTF-16 at byte {error.start}: save it as UTF-8"
            ) from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode()
    except UnicodeDecodeError:
        lines = enumerate(data.splitlines(keepends=True), 1)
        return "".join(_decode_line(number, line) for number, line in lines)


def _guess_utf16(data: bytes) -> str | None:
    """Return the encoding of UTF-16 without a mark, by the positions of its zeros."""
    sample = data[:1_000]
    if len(sample) < 2 or sample.count(0) * UTF16_SHARE < len(sample):
        return None
    is_little = sample[1::2].count(0) >= sample[::2].count(0)
    return "utf-16-le" if is_little else "utf-16-be"


def _decode_line(number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        if line.lstrip()[:1] in (b"#", b"!"):
            return line.decode("utf-8", "replace")
        key = line.partition(b"=")[0].strip().decode("utf-8", "replace")
        raise ConfigError(
            f"line {number} ({key}) is not UTF-8: save the file as UTF-8; only "
            "comments may have another encoding"
        ) from error
