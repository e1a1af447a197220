"""Writes the pages of brokers: configs, from their tables, and metrics, from their catalogue."""

from collections.abc import Iterator

from penstock.broker.config.broker_table import BROKER_CONFIGS, FAMILIES, KAFKA_DEFAULTS, PLUGIN_PREFIXES
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from penstock.broker.config.values import ConfigKey
from penstock.broker.metrics.catalogue import BROKER_FAMILIES, GROUP_FAMILIES, PARTITION_FAMILIES, TOPIC_FAMILIES
from penstock.broker.metrics.exposition import Head
from penstock.broker.metrics.rendering import MAX_PARTITIONS
from tools.reference.tables import table

INTRODUCTION = """\
# Configs

<!-- Written by `python -m tools.reference` from the tables in src/penstock/broker. Change those. -->

Names, types, defaults and allowed values are those of Apache Kafka 4.2; where a default of ours is another, Kafka's is
given. What begins with `penstock.` is ours.

A setting of a broker can be given in four ways. If more than one is used, the first of these counts:

1. a flag of `penstock serve`: `--data-dir` is `log.dirs`, `--listen` is `listeners`, `--node-id` is `node.id`;
2. `-X name=value`, or where the value is: `-X name@file=path`, `-X name@env=variable`;
3. the environment: `PENSTOCK_` and the name in upper case, with underscores for dots, as in `PENSTOCK_NUM_PARTITIONS`;
4. the file named by `--config`: TOML if its name ends in `.toml` (tables join with dots), else Kafka's properties.

Every user of a machine can see the command lines of its processes (`ps`), and so what stands after `-X`. Give
passwords and keys by `@file`, without the line end at its end, by `@env`, or in one of the other two ways, with a file
that its owner alone can read.

Some things have several names (`log.retention.ms`, `.minutes`, `.hours`). A setting under one of them hides what is set
less strongly under another; within one file the finest unit counts.

**Changes** says how a broker config may change: *read-only* only by a restart, *cluster-wide* also while brokers run,
for one or for all of them, *per-broker* also while they run, for one at a time. Topic configs can always change.

Configs of Kafka's that [have no effect](#without-effect) in this version are accepted, so that settings can be brought
along, and `penstock serve` warns about each of them that is set.
"""

METRICS_INTRODUCTION = f"""\
# Metrics

<!-- Written by `python -m tools.reference` from src/penstock/broker/metrics/catalogue.py. Change that. -->

A broker that is started with `-X penstock.metrics.listen=127.0.0.1:9404` shows these to Prometheus at
<http://127.0.0.1:9404/metrics>. There is no authentication, so `penstock serve` refuses an address that others can
reach, unless `--insecure` says that the network is closed. `/healthz` answers `OK` while the broker serves.

```yaml
scrape_configs:
  - job_name: penstock
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

Counters begin at 0 when the broker starts. A page is written between requests, a little at a time, so its numbers are
not all of one moment; those of one partition are. What lies beyond the first {MAX_PARTITIONS:,} partitions is left out.

Besides the histograms, single requests that took longer than
[`penstock.slow.request.ms`](configs.md#listeners-connections-and-requests) are named in the log, with API, version,
client id, address, size and time; a line says with `left_out` how many there was no room for before it.
"""


def render_configs() -> str:
    return "\n".join([INTRODUCTION, *_topics(), *_brokers(), *_without_effect()])


def render_metrics() -> str:
    families = {
        **{title: [item.head for item in items] for title, items in BROKER_FAMILIES.items()},
        "Topics": [item.head for item in TOPIC_FAMILIES],
        "Partitions": [item.head for item in PARTITION_FAMILIES],
        "Groups": [item.head for item in GROUP_FAMILIES],
    }
    lines = [METRICS_INTRODUCTION]
    for title, heads in families.items():
        lines += [f"## {title}\n", *table(("Name", "Type", "Labels", "Meaning"), map(_metric, heads))]
    return "\n".join(lines)


def _metric(head: Head) -> tuple[str, ...]:
    return f"`{head.name}`", head.kind, ", ".join(f"`{label}`" for label in head.labels), head.help


def _topics() -> Iterator[str]:
    yield "## Topics\n"
    yield "A topic that does not set a config gets the broker's, which may have another name.\n"
    keys = [key for key in TOPIC_CONFIGS.values() if key.effect and not key.internal]
    yield from table(
        ("Name", "Type", "Default", "Allowed", "Broker's name", "Meaning"),
        ((f"`{key.name}`", *_facts(key), _synonyms(key), _meaning(key)) for key in keys),
    )


def _brokers() -> Iterator[str]:
    yield "## Brokers\n"
    for title, family in FAMILIES.items():
        working = [key for key in family if key.effect]
        if working:
            yield f"### {title}\n"
            yield from table(
                ("Name", "Type", "Default", "Allowed", "Changes", "Meaning"),
                ((f"`{key.name}`", *_facts(key), key.update.value, _meaning(key)) for key in working),
            )


def _without_effect() -> Iterator[str]:
    yield "## Without effect\n"
    prefixes = ", ".join(f"`{prefix}`" for prefix in PLUGIN_PREFIXES)
    yield f"Besides these, names that begin with {prefixes} are accepted without effect.\n"
    families = {"Topics": tuple(TOPIC_CONFIGS.values()), **FAMILIES}
    for title, family in families.items():
        yield f"### {title if title == 'Topics' else f'Brokers: {title[0].lower()}{title[1:]}'}\n"
        yield from table(
            ("Name", "Type", "Default", "Allowed", "Meaning"),
            ((f"`{key.name}`", *_facts(key), key.documentation) for key in family if not key.effect),
        )


def _facts(key: ConfigKey) -> tuple[str, str, str]:
    default = key.format(key.default)
    shown = "not set" if default is None else f"`{default}`" if default else "empty"
    kafka = KAFKA_DEFAULTS.get(key.name) if BROKER_CONFIGS.get(key.name) is key else None
    if kafka is not None:
        shown += f" (Kafka: {kafka})"
    return key.type.name.lower(), shown, str(key.allowed)


def _meaning(key: ConfigKey) -> str:
    if isinstance(key.effect, bool):
        return key.documentation
    return (
        f"{key.documentation} So far only {' and '.join(f'`{value}`' for value in sorted(key.effect))} has an effect."
    )


def _synonyms(key: ConfigKey) -> str:
    return ", ".join(f"`{synonym.name}`" for synonym in key.synonyms)
