"""A broker's settings come from flags, -X, the environment and a file; the first of these that sets one counts."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.broker.config.broker_table import ALIASES, BROKER_CONFIGS
from penstock.broker.config.files import Setting, read_settings
from penstock.broker.config.typed import BrokerConfig, broker_config_key
from penstock.broker.config.values import ConfigError, near_name

FLAGS: Final = {
    "--data-dir": "log.dirs",
    "--listen": "listeners",
    "--node-id": "node.id",
    "--zookeeper": "zookeeper.connect",
}
"""The flags that are a setting by another name."""

ENVIRONMENT_PREFIX: Final = "PENSTOCK_"
_NOT_SETTINGS: Final = ("PENSTOCK_BOOTSTRAP",)


def load_settings(
    *,
    flags: Mapping[str, str],
    overrides: Sequence[str],
    environ: Mapping[str, str],
    config_file: Path | None,
) -> tuple[BrokerConfig, list[str]]:
    """The config of a broker, and warnings for its user. `flags` are those of `FLAGS` that were given, `overrides` the
    arguments of -X. `ConfigError` says where the wrong value was set."""
    settings, warnings = merge_settings(flags=flags, overrides=overrides, environ=environ, config_file=config_file)
    values = with_data_directory({name: setting.value for name, setting in settings.items()}, environ)
    try:
        config = BrokerConfig.parse(values)
    except ConfigError as error:
        raise located(error, settings) from None
    warnings.extend(_without_effect(config, settings))
    return config, warnings


def merge_settings(
    *,
    flags: Mapping[str, str],
    overrides: Sequence[str],
    environ: Mapping[str, str],
    config_file: Path | None,
) -> tuple[dict[str, Setting], list[str]]:
    """The settings that count, by name, each right by itself, and warnings for their user."""
    warnings: list[str] = []
    layers = [
        _named([Setting(FLAGS[flag], value, flag) for flag, value in flags.items()], warnings),
        _named(_from_overrides(overrides), warnings),
        _named(_from_environment(environ, warnings), warnings),
        _named(read_settings(config_file) if config_file is not None else (), warnings),
    ]
    settings = _merge(layers)
    for setting in settings.values():
        _check(setting)
    return settings, warnings


def located(error: ConfigError, settings: Mapping[str, Setting]) -> ConfigError:
    """The error, with where the wrong value was set."""
    source = next((settings[name].source for name in (error.name, *error.also) if name in settings), "")
    return ConfigError(error.name, error.reason, source=source)


def with_data_directory(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """These values, with the user's own data folder if they name none."""
    if "log.dirs" in values or "log.dir" in values:
        return dict(values)
    return {**values, "log.dir": str(default_data_directory(environ))}


def default_data_directory(environ: Mapping[str, str]) -> Path:
    """Where the data lies if nothing says so: a folder in the user's data directory."""
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "penstock"
    base = environ.get("XDG_DATA_HOME", "")
    # A relative path in this variable is to be ignored (XDG Base Directory Specification).
    return Path(base) / "penstock" if os.path.isabs(base) else home / ".local" / "share" / "penstock"


def _named(settings: Sequence[Setting] | Iterator[Setting], warnings: list[str]) -> dict[str, Setting]:
    """The settings by name; the last one counts, as it does in Java and on command lines."""
    found: dict[str, Setting] = {}
    for setting in settings:
        earlier = found.get(setting.name)
        if earlier is not None and earlier.value != setting.value:
            warnings.append(f"{setting.source}: {setting.name} is set again; {earlier.source} does not count")
        found[setting.name] = setting
    return found


def _merge(layers: Sequence[Mapping[str, Setting]]) -> dict[str, Setting]:
    """`layers` begin with the one that counts most. What a layer says of a config, under any of its names, hides all
    that the lower ones say of it."""
    merged: dict[str, Setting] = {}
    for layer in layers:
        new = {name: setting for name, setting in layer.items() if not any(alias in merged for alias in _aliases(name))}
        merged |= new
    return merged


def _aliases(name: str) -> tuple[str, ...]:
    return next((names for names in ALIASES if name in names), (name,))


def _check(setting: Setting) -> None:
    try:
        broker_config_key(setting.name).parse(setting.value)
    except ConfigError as error:
        raise ConfigError(error.name, error.reason, source=setting.source) from None


def _without_effect(config: BrokerConfig, settings: Mapping[str, Setting]) -> Iterator[str]:
    for key in config.without_effect():
        setting = settings[key.name]
        what = f"{key.name}={key.format(config[key.name])}" if key.effect else key.name
        yield f"{setting.source}: {what} is accepted, but has no effect in this version"
    for names in ALIASES:
        given = [name for name in names if name in settings and name != "broker.id"]
        for name in given[1:]:
            yield f"{settings[name].source}: {name} does not count, because {given[0]} is set as well"


def _from_overrides(overrides: Sequence[str]) -> Iterator[Setting]:
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(text, "is not of the form name=value", source="-X")
        yield Setting(name.strip(), value, "-X")


def _from_environment(environ: Mapping[str, str], warnings: list[str]) -> Iterator[Setting]:
    """The settings in the environment. Dots are underscores there, so that only names of the table are recognized."""
    names = {_variable(name): name for name in BROKER_CONFIGS}
    # PENSTOCK_FLUSH is as good as PENSTOCK_PENSTOCK_FLUSH.
    names |= {variable.removeprefix(ENVIRONMENT_PREFIX): name for variable, name in names.items() if _is_ours(name)}
    for variable in sorted(environ):
        if variable in names:
            yield Setting(names[variable], environ[variable], variable)
        elif variable.startswith(ENVIRONMENT_PREFIX) and variable not in _NOT_SETTINGS:
            # No error: Kubernetes gives every container variables with the names of services, such as PENSTOCK_PORT.
            near = near_name(_bare(variable), map(_bare, names))
            hint = f"; did you mean {ENVIRONMENT_PREFIX}{near.upper()}?" if near else ""
            warnings.append(f"{variable}: there is no such setting{hint}")


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def _bare(variable: str) -> str:
    return variable.removeprefix(ENVIRONMENT_PREFIX).lower()


def _is_ours(name: str) -> bool:
    return name.startswith("penstock.")
