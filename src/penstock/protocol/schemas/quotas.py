"""Schema tables: quotas. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class ComponentData(Message):
    entity_type: str = row("string", "0+", default="")
    match_type: int = row("int8", "0+", default=0)
    match: str | None = row("string", "0+", default="", nullable="0+")


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    components: Sequence[ComponentData] = row([ComponentData], "0+", default=())
    strict: bool = row("bool", "0+", default=False)


class DescribeClientQuotasResponseEntityData(Message):
    entity_type: str = row("string", "0+", default="")
    entity_name: str | None = row("string", "0+", default="", nullable="0+")


class ValueData(Message):
    key: str = row("string", "0+", default="")
    value: float = row("float64", "0+", default=0.0)


class DescribeClientQuotasResponseEntryData(Message):
    entity: Sequence[DescribeClientQuotasResponseEntityData] = row(
        [DescribeClientQuotasResponseEntityData], "0+", default=()
    )
    values: Sequence[ValueData] = row([ValueData], "0+", default=())


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    entries: Sequence[DescribeClientQuotasResponseEntryData] | None = row(
        [DescribeClientQuotasResponseEntryData], "0+", default=(), nullable="0+"
    )


class AlterClientQuotasRequestEntityData(Message):
    entity_type: str = row("string", "0+", default="")
    entity_name: str | None = row("string", "0+", default="", nullable="0+")


class OpData(Message):
    key: str = row("string", "0+", default="")
    value: float = row("float64", "0+", default=0.0)
    remove: bool = row("bool", "0+", default=False)


class AlterClientQuotasRequestEntryData(Message):
    entity: Sequence[AlterClientQuotasRequestEntityData] = row([AlterClientQuotasRequestEntityData], "0+", default=())
    ops: Sequence[OpData] = row([OpData], "0+", default=())


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    entries: Sequence[AlterClientQuotasRequestEntryData] = row([AlterClientQuotasRequestEntryData], "0+", default=())
    validate_only: bool = row("bool", "0+", default=False)


class AlterClientQuotasResponseEntityData(Message):
    entity_type: str = row("string", "0+", default="")
    entity_name: str | None = row("string", "0+", default="", nullable="0+")


class AlterClientQuotasResponseEntryData(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    entity: Sequence[AlterClientQuotasResponseEntityData] = row([AlterClientQuotasResponseEntityData], "0+", default=())


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    entries: Sequence[AlterClientQuotasResponseEntryData] = row([AlterClientQuotasResponseEntryData], "0+", default=())
