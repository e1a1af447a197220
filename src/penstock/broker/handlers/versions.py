"""The handler of ApiVersions 0 to 4 reports the table of routes, and the features that clients switch on by it.

Version 3 adds the client's name and version (KIP-511) and features (KIP-584); 4 may report a lowest feature level of 0.
"""

import re

from penstock.broker.dispatch import route_versions
from penstock.broker.network.call import Call
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

router = Router()
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# Level 25 of metadata.version is Kafka 4.0's; other features are reported when they are built.
FEATURES = {"metadata.version": (1, 25)}


@router.handles(ApiVersionsRequest, versions=(0, 4))
def api_versions(services: Services, call: Call, request: ApiVersionsRequest) -> Message:
    if call.version >= 3 and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return route_versions(services.routes, call, ErrorCode.INVALID_REQUEST)
    response = route_versions(services.routes, call)
    assert isinstance(response, ApiVersionsResponse)
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high) for name, (low, high) in FEATURES.items()
    ]
    response.finalized_features = [
        FinalizedFeatureKey(name=name, min_version_level=high, max_version_level=high)
        for name, (_, high) in FEATURES.items()
    ]
    response.finalized_features_epoch = 0
    return response
