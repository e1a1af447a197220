"""`Security` reads Kafka's settings of TLS and SASL, and checks them against each other."""

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from penstock.client.cluster.sasl import MECHANISMS, Credentials
from penstock.client.cluster.tls import TLS_SETTINGS, make_context

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SASL_SETTINGS: Final = frozenset(
    {"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config"}
)
SECURITY_SETTINGS: Final = TLS_SETTINGS | SASL_SETTINGS | {"security.protocol"}
"""The names that `Security.from_properties` knows."""

# Java's login modules, and the mechanisms that they are for.
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
_JAAS_EXAMPLE: Final = 'write it as CLASS required username="..." password="...";'


@dataclass(slots=True, frozen=True, kw_only=True)
class Security:
    """What a connection is secured with: an SSL context for TLS, credentials for SASL."""

    protocol: SecurityProtocol
    context: ssl.SSLContext | None = None
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        if self.protocol not in get_args(SecurityProtocol):
            raise ValueError(f"security.protocol is {self.protocol!r}: it is {_either(get_args(SecurityProtocol))}")
        if (self.context is not None) != self.protocol.endswith("SSL"):
            raise ValueError(f"{self.protocol} {'needs' if self.context is None else 'has no use for'} an SSL context")
        if (self.credentials is not None) != self.protocol.startswith("SASL"):
            raise ValueError(f"{self.protocol} {'needs' if not self.credentials else 'has no use for'} credentials")

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> "Security | None":
        """What settings by Kafka's dotted names ask for; None for PLAINTEXT. ValueError says what is wrong with them
        and what to do, and never what the password was."""
        given = {name: value for name, value in properties.items() if value is not None}
        protocol = str(given.get("security.protocol", "PLAINTEXT")).upper()
        if protocol not in get_args(SecurityProtocol):
            raise ValueError(f"security.protocol is {protocol!r}: set it to {_either(get_args(SecurityProtocol))}")
        tls = {name: value for name, value in given.items() if name.startswith(("ssl.", "enable.ssl."))}
        sasl = {name: value for name, value in given.items() if name.startswith("sasl.")}
        _refuse_useless(tls, protocol, protocol.endswith("SSL"), ("SSL", "SASL_SSL"))
        _refuse_useless(sasl, protocol, protocol.startswith("SASL"), ("SASL_SSL", "SASL_PLAINTEXT"))
        if protocol == "PLAINTEXT":
            return None
        credentials = _credentials(sasl) if protocol.startswith("SASL") else None
        if unknown := sorted(given.keys() - SECURITY_SETTINGS):
            raise ValueError(
                f"{unknown[0]} cannot be set here: leave it out; known are {', '.join(sorted(SECURITY_SETTINGS))}"
            )
        context = make_context(tls) if protocol.endswith("SSL") else None
        return cls(protocol=cast(SecurityProtocol, protocol), context=context, credentials=credentials)


def _refuse_useless(settings: Mapping[str, object], protocol: str, is_used: bool, users: tuple[str, ...]) -> None:
    """Refuse a setting without an effect: the user believes that it protects the connection."""
    if settings and not is_used:
        raise ValueError(
            f"{min(settings)} is set and has no effect with security.protocol={protocol}: "
            f"set security.protocol to {_either(users)}, or leave it out"
        )


def _credentials(settings: Mapping[str, Any]) -> Credentials:
    named = {str(settings[name]).upper() for name in ("sasl.mechanism", "sasl.mechanisms") if name in settings}
    if len(named) != 1:
        why = "is not set" if not named else f"is set twice, to {' and '.join(sorted(named))}"
        raise ValueError(f"sasl.mechanism {why}: set it to {_either(MECHANISMS)}")
    [mechanism] = named
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl.mechanism is {mechanism!r}, which is not supported: use {_either(MECHANISMS)}")
    if "sasl.jaas.config" in settings:
        if "sasl.username" in settings or "sasl.password" in settings:
            raise ValueError("sasl.jaas.config and sasl.username or sasl.password are set: leave one of them out")
        username, password = _read_jaas(str(settings["sasl.jaas.config"]), mechanism)
    else:
        username, password = str(settings.get("sasl.username", "")), str(settings.get("sasl.password", ""))
    return Credentials(mechanism, username, password)


def _read_jaas(text: str, mechanism: str) -> tuple[str, str]:
    """The name and the password in a line of Java's login configuration. Its text is in no error: it has a password."""
    tokens = list(_tokens(text))
    module = tokens[0] if tokens else ""
    if module not in _MODULES:
        raise ValueError(f"sasl.jaas.config does not begin with {_either(tuple(_MODULES))}: {_JAAS_EXAMPLE}")
    if mechanism not in _MODULES[module]:
        raise ValueError(
            f"sasl.jaas.config has {module.rpartition('.')[2]}, which is not for sasl.mechanism {mechanism}: "
            f"it is for {_either(_MODULES[module])}"
        )
    names, equals, values = tokens[2:-1:3], tokens[3:-1:3], tokens[4:-1:3]
    if tokens[-1] != ";" or set(equals) - {"="} or not len(names) == len(equals) == len(values):
        raise ValueError(f"sasl.jaas.config cannot be read: {_JAAS_EXAMPLE}")
    options = dict(zip(names, values, strict=True))
    if options.get("tokenauth", "").lower() == "true":
        raise ValueError("sasl.jaas.config asks for a delegation token (tokenauth), which is not supported")
    return options.get("username", ""), options.get("password", "")


def _tokens(text: str) -> Iterator[str]:
    for found in _TOKEN.finditer(text):
        quoted = found["double"] if found["double"] is not None else found["single"]
        if quoted is not None:
            yield _ESCAPE.sub(lambda escape: _unescape(escape[1]), quoted)
        elif found["word"]:
            yield found["word"]
        elif found["broken"]:
            raise ValueError(f"sasl.jaas.config has a quote that nothing ends: {_JAAS_EXAMPLE}")


def _unescape(text: str) -> str:
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPES.get(text, text)


def _either(choices: tuple[str, ...]) -> str:
    return " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]


# The rules are those of Java's StreamTokenizer, which reads this setting for Java's clients.
_TOKEN: Final = re.compile(
    r"""
      \s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:[^"\\]|\\.)*)"
    | '(?P<single>(?:[^'\\]|\\.)*)'
    | (?P<word>[=;]|[^\s=;"']+)
    | (?P<broken>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
