"""Pages of several brokers as one."""

from rmq.container.pages import merge

HEAD = "# HELP x things\n# TYPE x counter\n"
OTHER = "# HELP y sizes\n# TYPE y histogram\n"


def test_a_family_of_two_brokers_has_one_head():
    first = HEAD + 'x{node_id="a"} 1.0\n' + OTHER + 'y_sum{node_id="a"} 2.0\n'
    second = OTHER + 'y_sum{node_id="b"} 3.0\n' + HEAD + 'x{node_id="b"} 4.0\n'
    assert merge([first, second]) == (
        HEAD + 'x{node_id="a"} 1.0\nx{node_id="b"} 4.0\n'
        + OTHER + 'y_sum{node_id="a"} 2.0\ny_sum{node_id="b"} 3.0\n'
    )  # fmt: skip


def test_a_family_of_one_broker_stays():
    assert merge([HEAD + "x 1.0\n", OTHER + "y_sum 2.0\n"]) == (
        HEAD + "x 1.0\n" + OTHER + "y_sum 2.0\n"
    )
