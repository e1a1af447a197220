"""A handful of configs, for tests of the rules that are the same whichever configs there are."""

from collections.abc import Mapping
from typing import ClassVar

from penstock.machines.cluster_records import ConfigResource


class SomeConfigs:
    """`retention.ms` is a number, `cleanup.policy` a list, and brokers know `log.retention.ms` alone."""

    LISTS: ClassVar = {("topic", "cleanup.policy"): "delete"}
    NUMBERS: ClassVar = {("topic", "retention.ms"), ("broker", "log.retention.ms"), ("cluster", "log.retention.ms")}

    def problem(self, resource: ConfigResource, values: Mapping[str, str]) -> str | None:
        for name, value in values.items():
            if (resource, name) in self.NUMBERS:
                if not value.lstrip("-").isdigit():
                    return f"{name} is a number, not {value!r}"
            elif (resource, name) in self.LISTS:
                if set(value.split(",")) - {"delete", "compact"}:
                    return f"{name} is a list of delete and compact, not {value!r}"
            else:
                return f"there is no {resource} config {name!r}"
        return None

    def default_list(self, resource: ConfigResource, name: str) -> str | None:
        return self.LISTS.get((resource, name))
