"""These functions make an `ssl.SSLContext` of Kafka's TLS settings, Java's and librdkafka's, and explain failed
handshakes."""

import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.client.errors import AuthenticationError, BadReplyError, ClientError, ConnectionLostError

TLS_SETTINGS: Final = frozenset(
    {
        "enable.ssl.certificate.verification",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.context",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

# What to do about a certificate that OpenSSL refuses with these numbers (X509_V_ERR_*).
_HOST_ADVICE: Final = (
    "connect by a name that it has, or set ssl.endpoint.identification.algorithm to none if any name will do"
)
_ADVICE: Final = {
    9: "check the clock of this machine",
    10: "have it renewed, or check the clock of this machine",
    62: _HOST_ADVICE,
    64: _HOST_ADVICE,
}
_CA_ADVICE: Final = "set ssl.ca.location to a PEM file with the certificate of the authority that signed it"
_CLIENT_ADVICE: Final = "set ssl.certificate.location and ssl.key.location to a pair that the broker trusts"


def make_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """The context that settings by their dotted names ask for; ValueError says what is wrong with them."""
    if "ssl.context" in settings:
        return _ready_context(settings)
    context = _trusting_context(settings)
    _load_identity(context, settings)
    if str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() in ("", "none"):
        context.check_hostname = False
    elif str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() != "https":
        raise ValueError("ssl.endpoint.identification.algorithm is https, or none if any host name will do")
    if not _truth(settings, "enable.ssl.certificate.verification"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def explain(address: object, error: OSError) -> ClientError:
    """What it means that a TLS handshake with a broker, or what came after it, failed like this."""
    if isinstance(error, ssl.SSLCertVerificationError):
        told = error.verify_message.rstrip(".")
        advice = _ADVICE.get(error.verify_code, _CA_ADVICE)
        return AuthenticationError(f"the certificate of {address} is not accepted: {told}; {advice}")
    if not isinstance(error, ssl.SSLError):
        return ConnectionLostError(
            f"{address} broke off the TLS handshake; check that this port speaks TLS (else set security.protocol to "
            "PLAINTEXT or SASL_PLAINTEXT), and whether it wants a client's certificate (ssl.certificate.location)"
        )
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return AuthenticationError(f"{address} does not accept this client's certificate: {reason}; {_CLIENT_ADVICE}")
    return BadReplyError(
        f"no TLS with {address}: {reason}; check the port, and that it speaks TLS "
        "(else set security.protocol to PLAINTEXT or SASL_PLAINTEXT)"
    )


def _ready_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    context = settings["ssl.context"]
    if not isinstance(context, ssl.SSLContext):
        raise ValueError(f"ssl.context is a {type(context).__name__}: give an ssl.SSLContext")
    if others := sorted(settings.keys() - {"ssl.context"}):
        raise ValueError(f"{others[0]} has no effect beside ssl.context: leave one of them out")
    return context


def _trusting_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """A context that trusts the given certificates, or those that the operating system trusts."""
    _refuse_java_store(settings, "truststore", "keytool -list -rfc -keystore STORE > ca.pem", "ssl.ca.location")
    names = ("ssl.ca.location", "ssl.truststore.location", "ssl.truststore.certificates")
    given = [name for name in names if name in settings]
    if not given:
        return ssl.create_default_context()
    _refuse_many(given)
    [name] = given
    told = os.fspath(settings[name])
    try:
        if name == "ssl.truststore.certificates":
            return ssl.create_default_context(cadata=_pem(told))
        return ssl.create_default_context(**{"capath" if os.path.isdir(told) else "cafile": told})
    except (OSError, ValueError) as error:
        where = "the text" if name == "ssl.truststore.certificates" else repr(told)
        raise ValueError(f"{name}: no PEM certificates can be read from {where}: {_why(error)}") from error


def _load_identity(context: ssl.SSLContext, settings: Mapping[str, Any]) -> None:
    """The certificate by which a broker knows this client, if there is one."""
    convert = (
        "keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12, then "
        "openssl pkcs12 -in store.p12 -nodes -out client.pem"
    )
    _refuse_java_store(settings, "keystore", convert, "ssl.certificate.location")
    names = ("ssl.certificate.location", "ssl.keystore.location", "ssl.keystore.certificate.chain")
    given = [name for name in names if name in settings]
    for key, certificate in (("ssl.key.location", names[0]), ("ssl.keystore.key", names[2])):
        if key in settings and certificate not in settings:
            raise ValueError(f"{key} is set and {certificate} is not: a key goes with its certificate")
    if not given:
        if "ssl.key.password" in settings:
            raise ValueError("ssl.key.password is set and no key is: set ssl.key.location, or leave it out")
        return
    _refuse_many(given)
    [name] = given
    password = str(settings.get("ssl.key.password", ""))
    try:
        if name == "ssl.keystore.certificate.chain":
            _load_text(context, settings[name], settings.get("ssl.keystore.key", ""), password)
        else:
            key_file = settings.get("ssl.key.location") if name == "ssl.certificate.location" else None
            # Without a password from the settings OpenSSL would ask for one at the terminal.
            context.load_cert_chain(settings[name], key_file, password=lambda: password)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name}: certificate and key cannot be loaded: {_why(error)}; check that both are PEM and belong "
            "together, and ssl.key.password"
        ) from error


def _load_text(context: ssl.SSLContext, certificates: str, key: str, password: str) -> None:
    # The ssl module reads keys from files alone: this file is readable by its owner alone, and deleted at once.
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = Path(folder, "identity.pem")
        path.write_text(f"{_pem(certificates)}\n{_pem(key)}\n")
        context.load_cert_chain(path, password=lambda: password)


def _refuse_java_store(settings: Mapping[str, Any], store: str, convert: str, instead: str) -> None:
    kind = str(settings.get(f"ssl.{store}.type", "PEM" if f"ssl.{store}.location" not in settings else "JKS")).upper()
    if kind != "PEM" or f"ssl.{store}.password" in settings:
        raise ValueError(
            f"ssl.{store}.location: only Java reads stores of type {'JKS' if kind == 'PEM' else kind}; write yours as "
            f"PEM ({convert}) and set {instead}; if it is PEM, set ssl.{store}.type to PEM, and no ssl.{store}.password"
        )


def _refuse_many(given: list[str]) -> None:
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} say the same: leave all but one out")


def _truth(settings: Mapping[str, Any], name: str) -> bool:
    told = str(settings.get(name, "true")).lower()
    if told not in ("true", "false"):
        raise ValueError(f"{name} is {told!r}: set it to true or false")
    return told == "true"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not as OpenSSL expects it").lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _pem(text: str) -> str:
    """PEM as OpenSSL reads it: Java also takes it all in one line, as it comes out of a properties file."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{_wrapped(block[2])}\n{block[3]}\n", text)


def _wrapped(body: str) -> str:
    if ":" in body:
        # Headers, of an encrypted key in the old format: they have their own lines already.
        return body.strip()
    packed = "".join(body.split())
    return "\n".join(packed[start : start + 64] for start in range(0, len(packed), 64))


_BLOCK: Final = re.compile(r"(-----BEGIN [^-]+-----)(.*?)(-----END [^-]+-----)", re.DOTALL)
