from rmq.protocol import flags


def test_permissions():
    assert flags.is_readable(4)
    assert not flags.is_readable(2)
    assert flags.is_writable(2)
    assert not flags.is_writable(4)


def test_transaction_states_lie_in_their_mask():
    for state in (
        flags.TRANSACTION_PREPARED,
        flags.TRANSACTION_COMMIT,
        flags.TRANSACTION_ROLLBACK,
    ):
        assert state & flags.TRANSACTION_MASK == state


def test_no_two_message_bits_are_equal():
    bits = (
        flags.COMPRESSED, flags.MULTI_TAGS, flags.TRANSACTION_MASK, flags.BORN_HOST_V6,
        flags.STORE_HOST_V6, flags.NEED_UNWRAP, flags.INNER_BATCH,
        flags.COMPRESSION_MASK,
    )  # fmt: skip
    assert sum(bits) == 0x7FF
