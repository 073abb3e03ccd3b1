"""Samples of perf as parts and as a picture."""

from collections import Counter
from xml.etree import ElementTree as ET

import pytest

from bench.load import flames, profiles

C, F = "__pyx_f_3rmq_9_fastpath_3log_", "/rmq/_fastpath/log"
R = "__pyx_f_3rmq_9_fastpath_7reactor_7reactor"
SAMPLES = f"""\
rmq 4711 100.000001:
\tffffffff81 copy_folio_from_iter_atomic+0x10 ([kernel.kallsyms])
\tffffffff82 ext4_file_write_iter+0x1 ([kernel.kallsyms])
\t       e355 __libc_pwrite64+0x1 (/lib/libc.so.6)
\t       e3f0 {C}11mapped_file_10MappedFile_store+0x9 ({F}/mapped_file.cpython.so)
\t       e3f1 {C}4tail_7LogTail_append+0x9 ({F}/tail.cpython.so)
\t       e3f2 _PyEval_EvalFrameDefault+0x9 (/usr/bin/python3.11)
\t       e3f3 Py_RunMain+0x9 (/usr/bin/python3.11)

rmq 4712 100.000002:
\tffffffff81 copy_folio_from_iter_atomic+0x10 ([kernel.kallsyms])
\t       e3f0 {C}10log_writer_9LogWriter_write_part+0x9 ({F}/log_writer.cpython.so)

rmq 4711 100.000003:
\tffffffff83 tcp_sendmsg+0x10 ([kernel.kallsyms])
\t       e3f2 __send+0x9 (/lib/libc.so.6)
\t       e3f2 {R}_7Reactor_poll+0x9 (/rmq/_fastpath/reactor/reactor.so)

rmq 4711 100.000004:
\t          0 [unknown] ([unknown])
"""


@pytest.fixture
def stacks():
    return flames.stacks_of(SAMPLES)


def test_a_stack_is_read_from_the_outermost_frame(stacks):
    texts = {" < ".join(frame.text for frame in stack) for stack in stacks}
    assert (
        "Python < tail: LogTail.append < mapped_file: MappedFile.store < "
        "pwrite64 < ext4_file_write_iter < copy_folio_from_iter_atomic"
    ) in texts


def test_a_copy_belongs_to_the_part_that_asked_for_it(stacks):
    assert flames.shares(stacks) == {
        "append": 0.25, "writer": 0.25, "reply": 0.25, "other": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mangled", "text"),
    [
        ("9_fastpath_3log_6append_13RecordEncoder_commit", "RecordEncoder.commit"),
        ("9_fastpath_3log_6append_13RecordEncoder_11commit", "RecordEncoder.commit"),
        ("9_fastpath_7reactor_10inner_loop_9InnerLoop_5before_io_wait",
         "InnerLoop.before_io_wait"),
        ("9_fastpath_3log_6append_encode_record", "encode_record"),
    ],
)  # fmt: skip
def test_names_of_compiled_functions_are_read(mangled, text):
    assert flames.readable(mangled) == text


def test_all_parts_have_colours():
    assert set(flames.PARTS) | {"other"} == set(flames.COLOURS)


def test_frames_of_one_name_are_joined():
    a, b, c = (flames.Frame(name, name) for name in "abc")
    stacks = Counter({(a, b): 2, (a, c): 1, (b,): 3})
    laid = {
        (box.depth, box.frame.text): (box.left, box.width)
        for box in flames.boxes(stacks)
    }
    assert laid == {
        (0, "a"): (0, 3),
        (1, "b"): (0, 2),
        (1, "c"): (2, 1),
        (0, "b"): (3, 3),
    }


def test_the_picture_is_xml_and_names_its_frames(stacks):
    root = ET.fromstring(flames.svg(stacks, "a <case> & more"))
    texts = "".join(root.itertext())
    assert "a <case> & more" in texts
    assert "tail: LogTail.append: 25.0%" in texts


def test_the_table_has_microseconds_of_a_message(stacks):
    head, table = profiles.head_and_rows({"send": ({"s_per_million": 2.0}, stacks)})
    assert head == ("part", "send")
    rows = dict(table)
    assert rows["append"] == rows["writer"] == "0.500"
    assert rows["all"] == "2.000"
    assert "index" not in rows
