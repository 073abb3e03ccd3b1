"""Samples of `perf script` as a flame graph (SVG), and as shares of the broker's parts.

A stack is a tuple of frames, the outermost first.  A frame of compiled code is known by
the module that has it: so a stack belongs to the part of its innermost frame that has
one, also if that frame is the kernel's: what the log's writer copies is *writer*, not
*append*.
"""

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

HEAD = re.compile(r"^(\S.*?)\s+\d+\s")
FRAME = re.compile(r"^\s+[0-9a-f]+ (.*?)(?:\+0x[0-9a-f]+)? \((.*)\)$")
CYTHON = re.compile(
    r"__pyx_(?:f|fuse|pf|pw|pymod|getprop|specialmethod)\w*?_3rmq_(\w+)"
)
MODULE = re.compile(r"/_fastpath/\w+/(\w+)\.")
WIDTH, ROW, LEAST, LETTER = 1200, 17, 1.0, 6.6
"""Of the picture, in pixels: least is the width of a frame that is drawn at all."""

PARTS = {
    "receive": ("intake", "connections", "tcp_recvmsg", "recv"),
    "scan": ("header_scan", "scan", "template", "native_table", "properties",
             "signatures", "grants", "send_path", "send_table", "name_table"),
    "encode": ("append", "layout", "checksum"),
    "append": ("tail", "tail_ring", "mapped_file"),
    "queues": ("queue_tail", "queue_file", "touched"),
    "reply": ("reply_fields", "held_replies", "tcp_sendmsg", "send"),
    "pull": ("pull_path", "pull_search", "pull_reply", "pull_table", "held_pulls",
             "log_reader", "extent"),
    "index": ("index_file", "new_keys", "unique_keys", "hashing"),
    "writer": ("log_writer",),
    "poll": ("reactor", "inner_loop", "do_epoll_wait"),
    "Python": ("Python",),
}  # fmt: skip
"""Which modules and functions of the kernel or of libc are work of which part."""

OF = {name: part for part, names in PARTS.items() for name in names}
COLOURS = {
    "receive": "#7aa6c2", "scan": "#5b6fb0", "encode": "#8a63a8", "append": "#c0562f",
    "queues": "#d08c3f", "reply": "#4f9d9d", "pull": "#6b8e4e", "index": "#b5a642",
    "writer": "#a33b3b", "poll": "#9aa5b1", "Python": "#2f7d5b", "other": "#c9cdd2",
}  # fmt: skip

Stack = tuple["Frame", ...]


class Frame(NamedTuple):
    """A function, and the module or function by which its part is known."""

    text: str
    known_as: str


def frame_of(symbol: str, origin: str) -> Frame:
    """Return what a line of `perf script` names."""
    module = MODULE.search(origin)
    if module:
        found = CYTHON.match(symbol)
        name = readable(found[1]) if found else symbol
        return Frame(f"{module[1]}: {name}", module[1])
    if symbol.startswith(("_Py", "Py", "method_", "cfunction_")) or "python" in origin:
        return Frame("Python", "Python")
    name = symbol.removeprefix("__libc_").removeprefix("__GI_")
    return Frame(name, name)


def readable(mangled: str) -> str:
    """Return the class and function in a C name of Cython.

    The text begins after the package:
    `9_fastpath_3log_6append_13RecordEncoder_11commit`.
    A number before a name is its size, or else the function's place in its class.
    """
    names, rest = [], mangled
    while match := re.match(r"(\d+)(?=\D)", rest):
        size, text = int(match[1]), rest[match.end() :]
        if text[size : size + 1] not in {"", "_"} or len(text) < size:
            rest = text
            break
        names.append(text[:size])
        rest = text[size + 1 :]
    return ".".join(filter(None, [*names[3:], rest]))


def stacks_of(text: str) -> Counter[Stack]:
    """Count the stacks in the output of `perf script -F comm,tid,time,ip,sym,dso`."""
    counted: Counter[Stack] = Counter()
    for block in text.split("\n\n"):
        lines = block.strip("\n").splitlines()
        if not lines or not HEAD.match(lines[0]):
            continue
        frames: list[Frame] = []
        for line in lines[1:]:
            match = FRAME.match(line)
            frame = frame_of(match[1], match[2]) if match else None
            if frame and frames[-1:] != [frame]:
                frames.append(frame)
        counted[tuple(reversed(frames))] += 1
    return counted


def part_of(stack: Stack) -> str:
    """Return the part that a stack works for."""
    kinds = [OF[frame.known_as] for frame in stack if frame.known_as in OF]
    if "writer" in kinds:
        return "writer"
    return kinds[-1] if kinds else "other"


def shares(stacks: Counter[Stack]) -> dict[str, float]:
    """Return the share of each part, the largest first."""
    counted: Counter[str] = Counter()
    for stack, count in stacks.items():
        counted[part_of(stack)] += count
    total = max(1, counted.total())
    return {part: count / total for part, count in counted.most_common()}


class Box(NamedTuple):
    """A frame in the picture; `left` and `width` in samples."""

    depth: int
    left: int
    width: int
    frame: Frame
    part: str


def boxes(stacks: Counter[Stack]) -> Iterator[Box]:
    """Lay frames side by side below each other, those of one name joined."""
    ordered = sorted(stacks, key=lambda stack: [frame.text for frame in stack])
    open_: list[tuple[int, Frame, Counter[str]]] = []
    at = 0
    for stack in [*ordered, ()]:
        same = 0
        while same < min(len(open_), len(stack)) and open_[same][1] == stack[same]:
            same += 1
        while len(open_) > same:
            left, frame, kinds = open_.pop()
            part = kinds.most_common(1)[0][0]
            yield Box(len(open_), left, at - left, frame, part)
        open_ += [(at, frame, Counter()) for frame in stack[same:]]
        for _, _, kinds in open_:
            kinds[part_of(stack)] += stacks[stack]
        at += stacks[stack] if stack else 0


def svg(stacks: Counter[Stack], title: str) -> str:
    """Return the picture; a frame says its name and share when pointed at."""
    total = max(1, sum(count for stack, count in stacks.items() if stack))
    laid = list(boxes(stacks))
    height = ROW * (max((box.depth for box in laid), default=0) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="6" y="14" font-weight="bold">{escape(title)}</text>',
    ]
    for box in laid:
        x, width = box.left * WIDTH / total, box.width * WIDTH / total
        if width < LEAST:
            continue
        y = height - ROW * (box.depth + 1)
        label = box.frame.text[: max(0, int((width - 4) / LETTER))]
        parts.append(
            f"<g><title>{escape(box.frame.text)}: {box.width / total:.1%}</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{max(0.3, width - 0.5):.1f}" '
            f'height="{ROW - 1}" fill="{COLOURS[box.part]}"/>'
            f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(label)}</text></g>'
        )
    return "\n".join([*parts, "</svg>", ""])
