"""The rules answer the controller by the tables: what is wrong with a change, and which configs are lists."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from penstock.broker.config.typed import BrokerConfig, validate_topic_configs
from penstock.broker.config.values import ConfigError, ConfigType
from penstock.machines.cluster_records import ConfigResource


@dataclass(slots=True)
class TableRules:
    """Implements `machines.config_changes.ConfigRules` by the tables. `config` is the broker's present one."""

    config: BrokerConfig

    def problem(self, resource: ConfigResource, values: Mapping[str, str]) -> str | None:
        try:
            match resource:
                case "topic":
                    return validate_topic_configs(values, self.config)
                case "broker":
                    self.config.with_dynamic(broker=values)
                case "cluster":
                    self.config.with_dynamic(cluster=values)
        except ConfigError as error:
            return str(error)
        return None

    def default_list(self, resource: ConfigResource, name: str) -> str | None:
        key = (TOPIC_CONFIGS if resource == "topic" else BROKER_CONFIGS).get(name)
        if key is None or key.type is not ConfigType.LIST:
            return None
        default = self.config.topic_defaults[name] if resource == "topic" else key.default
        return key.format(default) or ""
