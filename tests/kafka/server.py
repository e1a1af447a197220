"""An Apache Kafka of one node on loopback that listens in every way: plaintext, TLS, SASL, and both."""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import trustme
from cryptography.hazmat.primitives import serialization

from tools.fixtures import kafka

# With characters that SCRAM escapes, and others that SASLprep would change if Kafka kept to it; of names Kafka takes
# ASCII alone. PLAIN knows only the first.
USERS: Final = {"alice": "wonderland", "queen=of hearts": 'p=ä½🧿\\"'}
REAUTHENTICATION_MS: Final = 2_000

_LISTENERS: Final = ("PLAINTEXT", "SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL", "SHORT")
_PROPERTIES: Final = """\
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MUTUAL:SSL,\
SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SHORT:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.mutual.ssl.client.auth=required
"""
_SASL: Final = """\
listener.name.{name}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.{name}.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_alice="{password}";
listener.name.{name}.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.{name}.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


class Kafka:
    """`with Kafka() as kafka:` has a broker at `kafka.plaintext`, an address for bootstrap.servers; the others want
    what their names say. `mutual` wants a client's certificate, `short` a password again every few seconds (KIP-368).
    """

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        try:
            self._runner.run(self._open())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._stack.aclose())
        finally:
            self._runner.close()

    async def _open(self) -> None:
        await kafka.install()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-kafka-")))
        controller, *ports = kafka.free_ports(1 + len(_LISTENERS))
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(_LISTENERS, ports, strict=True)}
        self.plaintext = addresses["PLAINTEXT"]
        self.ssl = addresses["SSL"]
        self.mutual = addresses["MUTUAL"]
        self.sasl_plaintext = addresses["SASL_PLAINTEXT"]
        self.sasl_ssl = addresses["SASL_SSL"]
        self.short = addresses["SHORT"]
        self._write_certificates(folder)
        told = kafka.PROPERTIES.format(broker=ports[0], controller=controller, folder=folder)
        listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
        told += _PROPERTIES.format(listeners=listeners, controller=controller, folder=folder)
        told += "".join(
            _SASL.format(name=name, password=USERS["alice"]) for name in ("sasl_plaintext", "sasl_ssl", "short")
        )
        for mechanism in ("plain", "scram-sha-256", "scram-sha-512"):
            told += f"listener.name.short.{mechanism}.connections.max.reauth.ms={REAUTHENTICATION_MS}\n"
        scram = [
            f"{mechanism}=[name={name},password={password}]"
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for name, password in USERS.items()
        ]
        await self._stack.enter_async_context(kafka.serving(folder, told, self.plaintext, users=scram))

    def _write_certificates(self, folder: Path) -> None:
        authority = trustme.CA()
        broker, client = authority.issue_cert("127.0.0.1", "localhost"), authority.issue_cert("client@example.org")
        self.ca, self.certificate, self.key = folder / "ca.pem", folder / "client.crt", folder / "client.key"
        authority.cert_pem.write_to_path(self.ca)
        client.cert_chain_pems[0].write_to_path(self.certificate)
        client.private_key_pem.write_to_path(self.key)
        chain = b"".join(each.bytes() for each in broker.cert_chain_pems)
        (folder / "broker.pem").write_bytes(_pkcs8(broker.private_key_pem.bytes()) + chain)


def _pkcs8(pem: bytes) -> bytes:
    """A private key in the one format that Kafka reads."""
    key = serialization.load_pem_private_key(pem, None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
