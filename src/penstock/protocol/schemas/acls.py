"""Schema tables: acls. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class DescribeAclsRequest(Message, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int = row("int8", "0+", default=0)
    resource_name_filter: str | None = row("string", "0+", default="", nullable="0+")
    pattern_type_filter: int = row("int8", "1+", default=3)
    principal_filter: str | None = row("string", "0+", default="", nullable="0+")
    host_filter: str | None = row("string", "0+", default="", nullable="0+")
    operation: int = row("int8", "0+", default=0)
    permission_type: int = row("int8", "0+", default=0)


class AclDescription(Message):
    principal: str = row("string", "0+", default="")
    host: str = row("string", "0+", default="")
    operation: int = row("int8", "0+", default=0)
    permission_type: int = row("int8", "0+", default=0)


class DescribeAclsResource(Message):
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")
    pattern_type: int = row("int8", "1+", default=3)
    acls: Sequence[AclDescription] = row([AclDescription], "0+", default=())


class DescribeAclsResponse(Message, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    resources: Sequence[DescribeAclsResource] = row([DescribeAclsResource], "0+", default=())


class AclCreation(Message):
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")
    resource_pattern_type: int = row("int8", "1+", default=3)
    principal: str = row("string", "0+", default="")
    host: str = row("string", "0+", default="")
    operation: int = row("int8", "0+", default=0)
    permission_type: int = row("int8", "0+", default=0)


class CreateAclsRequest(Message, key=30, versions="1-3", flexible="2+"):
    creations: Sequence[AclCreation] = row([AclCreation], "0+", default=())


class AclCreationResult(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")


class CreateAclsResponse(Message, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    results: Sequence[AclCreationResult] = row([AclCreationResult], "0+", default=())


class DeleteAclsFilter(Message):
    resource_type_filter: int = row("int8", "0+", default=0)
    resource_name_filter: str | None = row("string", "0+", default="", nullable="0+")
    pattern_type_filter: int = row("int8", "1+", default=3)
    principal_filter: str | None = row("string", "0+", default="", nullable="0+")
    host_filter: str | None = row("string", "0+", default="", nullable="0+")
    operation: int = row("int8", "0+", default=0)
    permission_type: int = row("int8", "0+", default=0)


class DeleteAclsRequest(Message, key=31, versions="1-3", flexible="2+"):
    filters: Sequence[DeleteAclsFilter] = row([DeleteAclsFilter], "0+", default=())


class DeleteAclsMatchingAcl(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    resource_type: int = row("int8", "0+", default=0)
    resource_name: str = row("string", "0+", default="")
    pattern_type: int = row("int8", "1+", default=3)
    principal: str = row("string", "0+", default="")
    host: str = row("string", "0+", default="")
    operation: int = row("int8", "0+", default=0)
    permission_type: int = row("int8", "0+", default=0)


class DeleteAclsFilterResult(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    matching_acls: Sequence[DeleteAclsMatchingAcl] = row([DeleteAclsMatchingAcl], "0+", default=())


class DeleteAclsResponse(Message, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    filter_results: Sequence[DeleteAclsFilterResult] = row([DeleteAclsFilterResult], "0+", default=())
