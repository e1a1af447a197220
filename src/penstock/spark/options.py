"""Reads the options of the source, which have the names of Spark's Kafka source, and checks them against each other."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from penstock.client.admin.offsets import EARLIEST, LATEST
from penstock.client.metadata import TopicPartition
from penstock.client.settings import ConsumerSettings, SettingsError, read_settings

Mode: TypeAlias = Literal["batch", "streaming"]
Settings: TypeAlias = Mapping[str, str]
"""Settings of the client by Kafka's dotted names: plain strings, so that they travel to the tasks."""


class OptionsError(ValueError):
    """An option has an unknown name or a value that it cannot have, or contradicts another."""


@dataclass(slots=True, frozen=True)
class Named:
    """These topics, with all their partitions."""

    topics: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Matching:
    """All topics whose whole name matches, except internal ones."""

    pattern: str


@dataclass(slots=True, frozen=True)
class Assigned:
    """These partitions, and no others."""

    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Named | Matching | Assigned


@dataclass(slots=True, frozen=True)
class Bound:
    """Where to begin or end: one bound `everywhere`, or one for `each` partition. The numbers are offsets, with
    `EARLIEST` and `LATEST` among them, or times in milliseconds."""

    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_time: bool = False

    def of(self, key: TopicPartition) -> int | None:
        return self.each.get(key) if self.everywhere is None else self.everywhere

    def describe(self, key: TopicPartition) -> str:
        """What is asked for a partition, in a few characters."""
        value = self.of(key)
        if self.is_time:
            return f"time:{value}"
        return {EARLIEST: "earliest", LATEST: "latest"}.get(value, str(value)) if value is not None else "earliest"


@dataclass(slots=True, frozen=True, kw_only=True)
class SourceOptions:
    subscription: Subscription
    settings: Settings = field(repr=False)
    """They include passwords, so they are left out where an error shows the options."""
    starting: Bound
    ending: Bound = Bound(LATEST)
    is_latest_without_match: bool = False
    """Whether a starting time after the last record means the end of the log; else it is an error."""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int | None = None
    fails_on_data_loss: bool = True
    skips_corrupt: bool = False
    """Whether batches that cannot be read are passed over; else they fail the query."""
    includes_headers: bool = False

    @property
    def group(self) -> str | None:
        """The group that the query's progress is committed to."""
        return self.settings.get("group.id")

    @property
    def reads_committed(self) -> bool:
        return self.settings["isolation.level"] == "read_committed"


def read_options(options: Mapping[str, str], mode: Mode | None = None) -> SourceOptions:
    """Read what the user has set. Without a mode, which Spark passes late, only what holds for both modes is
    checked."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    settings = _read_settings({name: given.pop(name) for name in list(given) if name.startswith(_KAFKA)})
    _refuse_unknown(given)
    starting = _read_bound(given, "starting", EARLIEST if mode == "batch" else LATEST)
    ending = _read_bound(given, "ending", LATEST)
    if mode == "streaming":
        _check_streaming(given, starting, settings)
    if mode == "batch":
        _check_batch(starting, ending)
    least, most = _read_count(given, "minoffsetspertrigger"), _read_count(given, "maxoffsetspertrigger")
    if least is not None and most is not None and least > most:
        raise OptionsError(f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger only {most}: lower the first")
    delay_ms = _read_time(given["maxtriggerdelay"]) if "maxtriggerdelay" in given else 15 * 60_000
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionsError(f"startingOffsetsByTimestampStrategy is {strategy!r}: set it to error or latest")
    return SourceOptions(
        subscription=_read_subscription(given),
        settings=settings,
        starting=starting,
        ending=ending,
        is_latest_without_match=strategy == "latest",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_bytes_per_trigger=_read_bytes(given, "maxbytespertrigger"),
        max_trigger_delay_ms=delay_ms,
        min_partitions=_read_count(given, "minpartitions"),
        max_records_per_partition=_read_count(given, "maxrecordsperpartition"),
        max_bytes_per_partition=_read_bytes(given, "maxbytesperpartition"),
        fails_on_data_loss=_read_flag(given, "failondataloss", True),
        skips_corrupt=_read_on_corrupt(given),
        includes_headers=_read_flag(given, "includeheaders", False),
    )


_KAFKA: Final = "kafka."
_NAMES: Final = {
    name.lower(): name
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "maxBytesPerPartition",
        "failOnDataLoss",
        "onCorrupt",
        "includeHeaders",
        # These tune the Java client, and there is none here.
        "groupIdPrefix",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "kafkaConsumer.pollTimeoutMs",
    )
}
_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribepattern")
_ENDINGS: Final = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")
# Settings of a consumer that would not do here what their users expect, and what to do instead.
_REFUSED: Final = {
    "auto.offset.reset": "set startingOffsets: Spark keeps the offsets of a query in its checkpoint",
    "enable.auto.commit": "leave it out: progress is committed to kafka.group.id by batches that are done",
    "on.corrupt": "set onCorrupt to raise or skip",
    "key.deserializer": "leave it out: keys are binary, convert the column",
    "value.deserializer": "leave it out: values are binary, convert the column",
    "interceptor.classes": "leave it out: there is no Java client to intercept",
}
_TIME: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_TIME_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES: Final = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)


def _read_settings(given: Mapping[str, str]) -> Settings:
    settings = {name.removeprefix(_KAFKA): value for name, value in given.items()}
    if "bootstrap.servers" not in settings:
        raise OptionsError("kafka.bootstrap.servers is missing: set it to a broker's address, as host:port")
    for name in settings:
        if name in _REFUSED:
            raise OptionsError(f"kafka.{name} cannot be set here: {_REFUSED[name]}")
    settings.setdefault("isolation.level", "read_committed")
    try:
        read_settings(ConsumerSettings, settings)
    except SettingsError as error:
        raise OptionsError(f"kafka.{error}") from None
    return settings


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        if name not in _NAMES:
            near = difflib.get_close_matches(name, [*_NAMES, "kafka.bootstrap.servers", "kafka.group.id"], n=2)
            meant = " or ".join(_NAMES.get(each, each) for each in near)
            question = f"did you mean {meant}?" if near else f"known are {', '.join(_NAMES.values())} and kafka.*"
            raise OptionsError(f"{name} is no option of the source: {question}")


def _read_subscription(given: Mapping[str, str]) -> Subscription:
    names = [name for name in _SUBSCRIPTIONS if name in given]
    if len(names) != 1:
        which = f"{' and '.join(_NAMES[name] for name in names)} are set" if names else "no topics are set"
        raise OptionsError(f"{which}: set one of subscribe, subscribePattern and assign")
    match names[0]:
        case "subscribe":
            topics = [name.strip() for name in given["subscribe"].split(",")]
            if not any(topics):
                raise OptionsError("subscribe names no topic: write topics, separated by commas")
            return Named(tuple(dict.fromkeys(filter(None, topics))))
        case "subscribepattern":
            try:
                re.compile(given["subscribepattern"])
            except re.error as error:
                raise OptionsError(f"subscribePattern is no regular expression of Python: {error}") from None
            if not given["subscribepattern"]:
                raise OptionsError("subscribePattern is empty: write a regular expression for the names of topics")
            return Matching(given["subscribepattern"])
        case _:
            read = _read_json(given["assign"], "assign", '{"topic": [0, 1]}')
            if not all(isinstance(each, list) and each for each in read.values()) or not read:
                raise OptionsError('assign names no partitions: write {"topic": [0, 1]}')
            pairs = {(topic, number) for topic, numbers in read.items() for number in numbers}  # type: ignore[attr-defined]
            if not all(_is_number(number) and number >= 0 for _, number in pairs):
                raise OptionsError('assign has a partition that is no number: write {"topic": [0, 1]}')
            return Assigned(tuple(TopicPartition(*each) for each in sorted(pairs)))


def _read_bound(given: Mapping[str, str], side: Literal["starting", "ending"], default: int) -> Bound:
    """The bound of one side. If several are set, the first of these counts, as in Spark's Kafka source: one time, times
    of partitions, offsets."""
    if (one := given.get(f"{side}timestamp")) is not None:
        if not one.isdecimal():
            raise OptionsError(f"{side}Timestamp is {one!r}: write milliseconds since 1970 as one number")
        return Bound(int(one), is_time=True)
    if (times := given.get(f"{side}offsetsbytimestamp")) is not None:
        return Bound(each=_read_each(times, f"{side}OffsetsByTimestamp", "a time in milliseconds"), is_time=True)
    offsets = given.get(f"{side}offsets")
    if offsets is None:
        return Bound(default)
    if offsets.lower() in ("earliest", "latest"):
        return Bound(EARLIEST if offsets.lower() == "earliest" else LATEST)
    what = "an offset, -2 for the earliest or -1 for the latest"
    return Bound(each=_read_each(offsets, f"{side}Offsets", what, least=EARLIEST))


def _read_each(text: str, name: str, what: str, *, least: int = 0) -> dict[TopicPartition, int]:
    form = f'{{"topic": {{"0": {what}}}}}'
    each: dict[TopicPartition, int] = {}
    for topic, partitions in _read_json(text, name, form).items():
        if not isinstance(partitions, dict):
            raise OptionsError(f"{name} has no partitions for topic {topic!r}: write {form}")
        for partition, value in partitions.items():
            if not partition.isdecimal() or not _is_number(value) or value < least:
                raise OptionsError(f"{name} has {partition!r}: {value!r} for topic {topic!r}: write {form}")
            each[TopicPartition(topic, int(partition))] = value
    if not each:
        raise OptionsError(f"{name} names no partition: write {form}")
    return each


def _read_json(text: str, name: str, form: str) -> dict[str, object]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise OptionsError(f"{name} is {text!r}, which is no JSON ({error}): write {form}") from None
    if not isinstance(read, dict):
        raise OptionsError(f"{name} is {text!r}: write {form}")
    return read


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_streaming(given: Mapping[str, str], starting: Bound, settings: Settings) -> None:
    for name in _ENDINGS:
        if name in given:
            raise OptionsError(f"{_NAMES[name]} is set, but a stream has no end: leave it out, or use spark.read")
    # Spark asks for the starting offsets again if the first batch fails, and does not keep them.
    if not starting.is_time and LATEST in (starting.everywhere, *starting.each.values()) and "group.id" not in settings:
        told = (
            "startingOffsets=latest"
            if "startingoffsets" in given
            else "startingOffsets is not set: that is latest, which"
        )
        raise OptionsError(
            f"{told} needs kafka.group.id: the group keeps where the query began, else a first batch that fails would "
            "lose what came meanwhile; set kafka.group.id to a name of this query alone, or startingOffsets=earliest"
        )


def _check_batch(starting: Bound, ending: Bound) -> None:
    if not starting.is_time and LATEST in (starting.everywhere, *starting.each.values()):
        raise OptionsError(
            "startingOffsets has latest, but nothing lies behind it: a batch begins at earliest or offsets"
        )
    if not ending.is_time and EARLIEST in (ending.everywhere, *ending.each.values()):
        raise OptionsError("endingOffsets has earliest, but nothing lies before it: a batch ends at latest or offsets")
    if starting.is_time != ending.is_time:
        return
    if starting.everywhere is None and ending.everywhere is None and starting.each.keys() != ending.each.keys():
        only = min(starting.each.keys() ^ ending.each.keys())
        raise OptionsError(f"{only} has only one of a starting and an ending offset: give both for every partition")
    for key in starting.each.keys() | ending.each.keys():
        first, last = starting.of(key), ending.of(key)
        if first is not None and last is not None and first >= 0 and 0 <= last < first:
            raise OptionsError(f"{key} ends at {last}, before it starts at {first}: give an end that is not before it")
    begin, end = starting.everywhere, ending.everywhere
    if starting.is_time and begin is not None and end is not None and end < begin:
        raise OptionsError(f"endingTimestamp {end} is before startingTimestamp {begin}: exchange them")


def _read_count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise OptionsError(f"{_NAMES[name]} is {text!r}: set it to a number of 1 or more, or leave it out")
    return int(text)


def _read_bytes(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    found = _BYTES.fullmatch(text)
    if found is None or not (number := int(found[1])):
        raise OptionsError(f"{_NAMES[name]} is {text!r}: write a number of bytes, or 500k, 64m, 1g")
    return number << 10 * " kmgt".index(found[2].lower() or " ")


def _read_flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionsError(f"{_NAMES[name]} is {text!r}: set it to true or false")
    return text == "true"


def _read_on_corrupt(given: Mapping[str, str]) -> bool:
    text = given.get("oncorrupt", "raise").lower()
    if text not in ("raise", "skip"):
        raise OptionsError(f"onCorrupt is {text!r}: set it to raise, which fails the query, or to skip")
    return text == "skip"


def _read_time(text: str) -> int:
    found = _TIME.fullmatch(text.lower())
    if found is None:
        raise OptionsError(f"maxTriggerDelay is {text!r}: write 500ms, 30s, 15m or 1h")
    return round(int(found[1]) * _TIME_MS[found[2] or "ms"])
