from rmq.protocol import codes
from rmq.protocol.codes import LanguageCode, RequestCode, ResponseCode


def test_codes_are_numbers_on_the_wire():
    assert RequestCode.SEND_MESSAGE_V2 == 310
    assert ResponseCode.SYSTEM_ERROR == 1
    assert f"{ResponseCode.TOPIC_NOT_EXIST:d}" == "17"


def test_no_number_has_two_names():
    for kind in (RequestCode, ResponseCode, LanguageCode, codes.Version):
        assert len(kind) == len(kind.__members__)


def test_our_version_is_a_known_one():
    assert codes.Version[codes.WIRE_VERSION_NAME] == codes.WIRE_VERSION
