"""Refusals carry what the client and the person behind it need."""

import pytest

from penstock.machines.decisions import MAX_MESSAGE, Refused, refuse
from penstock.protocol.error_codes import ErrorCode


def test_a_refusal_tells_the_code_and_the_reason() -> None:
    with pytest.raises(Refused) as caught:
        refuse(ErrorCode.INVALID_PARTITIONS, "a topic has one partition or more")

    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    assert caught.value.message == "a topic has one partition or more"
    assert str(caught.value) == "INVALID_PARTITIONS: a topic has one partition or more"


def test_a_refusal_that_quotes_a_long_name_fits_the_strings_of_every_version() -> None:
    refused = Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{'ü' * 32_767} is no name for a topic")

    assert len(refused.message) == MAX_MESSAGE
    assert refused.message.endswith("ü…")
    assert len(refused.message.encode()) < 32_768
