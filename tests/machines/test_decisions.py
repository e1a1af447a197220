"""Refusals carry what the client and the person behind it need."""

import pytest

from penstock.machines.decisions import Refused, refuse
from penstock.protocol.error_codes import ErrorCode


def test_a_refusal_tells_the_code_and_the_reason() -> None:
    with pytest.raises(Refused) as caught:
        refuse(ErrorCode.INVALID_PARTITIONS, "a topic has one partition or more")

    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    assert caught.value.message == "a topic has one partition or more"
    assert str(caught.value) == "INVALID_PARTITIONS: a topic has one partition or more"
