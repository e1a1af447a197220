"""Reads the options and the columns of the sink, named as in Spark's Kafka sink, and checks them before any job."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.client.settings import ProducerSettings, SettingsError, read_settings
from penstock.spark.options import OptionsError, Settings

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(slots=True, frozen=True, kw_only=True)
class SinkOptions:
    settings: Settings = field(repr=False)
    """Settings of the producer."""
    topic: str | None = None
    """Where all rows go, whatever the column `topic` says."""


def read_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read what the user has set."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    settings = _read_settings({name: given.pop(name) for name in list(given) if name.startswith(_KAFKA)})
    _refuse_unknown(given)
    if given.get("topic") == "":
        raise OptionsError("topic is empty: name a topic, or leave it out and have a column 'topic'")
    return SinkOptions(settings=settings, topic=given.get("topic"))


def check_columns(schema: "StructType", options: SinkOptions) -> tuple[str, ...]:
    """The names of the columns that messages are made of; others are left out."""
    kinds: dict[str, DataType] = {}
    for each in schema.fields:
        if each.name in COLUMNS and each.name in kinds:
            raise OptionsError(f"there are two columns {each.name!r}: drop one of them, or rename it")
        kinds[each.name] = each.dataType
    if "value" not in kinds:
        raise OptionsError(f"there is no column 'value', only {_list(kinds)}: name the one to be sent 'value'")
    if options.topic is None and "topic" not in kinds:
        raise OptionsError("there is neither an option 'topic' nor a column 'topic': set the one or add the other")
    used = tuple(name for name in COLUMNS if name in kinds and not (name == "topic" and options.topic is not None))
    for name in used:
        kind = _plain(kinds[name])
        if kind not in COLUMNS[name]:
            right = " or ".join(COLUMNS[name])
            raise OptionsError(f"the column {name!r} is {kind}, but must be {right}: cast it, or rename it")
    return used


COLUMNS: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp", "double"),
}
"""The columns of the sink, and the types that each may have."""

_KAFKA: Final = "kafka."
_NAMES: Final = {
    name.lower(): name
    for name in (
        "topic",
        # An option of the source: in the sink the column itself says whether there are headers.
        "includeHeaders",
        # Spark's own options, which it passes to every sink.
        "checkpointLocation",
        "queryName",
    )
}
_OF_THE_SOURCE: Final = ("subscribe", "subscribepattern", "assign")
_REFUSED: Final = {
    "key.serializer": "leave it out: a column 'key' is sent as it is, so make it string or binary",
    "value.serializer": "leave it out: the column 'value' is sent as it is, so make it string or binary",
    "interceptor.classes": "leave it out: there is no Java client to intercept",
    "transactional.id": "leave it out: the sink sends at least once, without transactions",
}


def _read_settings(given: Mapping[str, str]) -> Settings:
    settings = {name.removeprefix(_KAFKA): value for name, value in given.items()}
    if "bootstrap.servers" not in settings:
        raise OptionsError("kafka.bootstrap.servers is missing: set it to a broker's address, as host:port")
    for name in settings:
        if name in _REFUSED:
            raise OptionsError(f"kafka.{name} cannot be set here: {_REFUSED[name]}")
    try:
        read_settings(ProducerSettings, settings)
    except SettingsError as error:
        raise OptionsError(f"kafka.{error}") from None
    return settings


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _OF_THE_SOURCE:
            raise OptionsError(f"{name} is an option of the source: name the topic to write to with 'topic'")
        if name not in _NAMES:
            near = difflib.get_close_matches(name, [*_NAMES, "kafka.bootstrap.servers"], n=1)
            meant = f"did you mean {_NAMES.get(near[0], near[0])}?" if near else "known are topic and kafka.*"
            raise OptionsError(f"{name} is no option of the sink: {meant}")


def _plain(kind: "DataType") -> str:
    """A type as SQL writes it, without the collation of strings."""
    from pyspark.sql.types import StringType

    return "string" if isinstance(kind, StringType) else kind.simpleString()


def _list(names: Mapping[str, object]) -> str:
    return ", ".join(map(repr, names)) or "none at all"
