"""Schema tables: configs. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class DescribeConfigsResource(Message):
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")
    configuration_keys: Sequence[str] | None = row(["string"], "0+", default=(), nullable="0+")


class DescribeConfigsRequest(Message, key=32, versions="1-4", flexible="4+"):
    resources: Sequence[DescribeConfigsResource] = row([DescribeConfigsResource], "0+", default=())
    include_synonyms: bool = row("bool", "1+", default=False)
    include_documentation: bool = row("bool", "3+", default=False)


class DescribeConfigsSynonym(Message):
    name: str = row("string", "1+", default="")
    value: str | None = row("string", "1+", default="", nullable="0+")
    source: int = row("int8", "1+", default=0)


class DescribeConfigsResourceResult(Message):
    name: str = row("string", "0+", default="")
    value: str | None = row("string", "0+", default="", nullable="0+")
    read_only: bool = row("bool", "0+", default=False)
    config_source: int = row("int8", "1+", default=-1, ignorable=True)
    is_sensitive: bool = row("bool", "0+", default=False)
    synonyms: Sequence[DescribeConfigsSynonym] = row([DescribeConfigsSynonym], "1+", default=(), ignorable=True)
    config_type: int = row("int8", "3+", default=0, ignorable=True)
    documentation: str | None = row("string", "3+", default="", nullable="0+", ignorable=True)


class DescribeConfigsResult(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")
    configs: Sequence[DescribeConfigsResourceResult] = row([DescribeConfigsResourceResult], "0+", default=())


class DescribeConfigsResponse(Message, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    results: Sequence[DescribeConfigsResult] = row([DescribeConfigsResult], "0+", default=())


class AlterConfigsRequestAlterableConfig(Message):
    name: str = row("string", "0+", default="")
    value: str | None = row("string", "0+", default="", nullable="0+")


class AlterConfigsRequestAlterConfigsResource(Message):
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")
    configs: Sequence[AlterConfigsRequestAlterableConfig] = row([AlterConfigsRequestAlterableConfig], "0+", default=())


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    resources: Sequence[AlterConfigsRequestAlterConfigsResource] = row(
        [AlterConfigsRequestAlterConfigsResource], "0+", default=()
    )
    validate_only: bool = row("bool", "0+", default=False)


class AlterConfigsResponseAlterConfigsResourceResponse(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    responses: Sequence[AlterConfigsResponseAlterConfigsResourceResponse] = row(
        [AlterConfigsResponseAlterConfigsResourceResponse], "0+", default=()
    )


class IncrementalAlterConfigsRequestAlterableConfig(Message):
    name: str = row("string", "0+", default="")
    config_operation: int = row("int8", "0+", default=0)
    value: str | None = row("string", "0+", default="", nullable="0+")


class IncrementalAlterConfigsRequestAlterConfigsResource(Message):
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")
    configs: Sequence[IncrementalAlterConfigsRequestAlterableConfig] = row(
        [IncrementalAlterConfigsRequestAlterableConfig], "0+", default=()
    )


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    resources: Sequence[IncrementalAlterConfigsRequestAlterConfigsResource] = row(
        [IncrementalAlterConfigsRequestAlterConfigsResource], "0+", default=()
    )
    validate_only: bool = row("bool", "0+", default=False)


class IncrementalAlterConfigsResponseAlterConfigsResourceResponse(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    responses: Sequence[IncrementalAlterConfigsResponseAlterConfigsResourceResponse] = row(
        [IncrementalAlterConfigsResponseAlterConfigsResourceResponse], "0+", default=()
    )


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    resource_types: Sequence[int] = row(["int8"], "1+", default=())


class ConfigResource(Message):
    resource_name: str = row("string", "0+", default="")
    resource_type: int = row("int8", "1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    config_resources: Sequence[ConfigResource] = row([ConfigResource], "0+", default=())
