"""The settings of clients as keywords, with their types: by these an editor completes names, and a type checker refuses
a name that is misspelt.

`settings` says what each of them means; those of TLS and SASL are described here.
"""

import ssl
from collections.abc import Sequence
from typing import Literal, TypedDict


class SecurityKeywords(TypedDict, total=False):
    """TLS and SASL."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Whether connections use TLS (`SSL`), a name and a password (`SASL_PLAINTEXT`), both (`SASL_SSL`), or neither."""
    sasl_mechanism: str
    """How the client authenticates: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`."""
    sasl_mechanisms: str
    """Another name of `sasl_mechanism`, which librdkafka uses."""
    sasl_username: str
    """The name to authenticate with."""
    sasl_password: str
    """The password to authenticate with."""
    sasl_jaas_config: str
    """The name and the password as Java's clients have them, in place of the two settings above."""
    ssl_ca_location: str
    """A file, or a folder, with certificates (PEM) of the authorities that sign those of brokers; without it those of
    the system are used."""
    ssl_certificate_location: str
    """A file with the client's certificate (PEM), for brokers that ask for one."""
    ssl_key_location: str
    """A file with the key (PEM) of that certificate."""
    ssl_key_password: str
    """The password of that key, if it has one."""
    ssl_endpoint_identification_algorithm: str
    """Whether a broker's certificate must name its host: `https`, the default, or `none`."""
    enable_ssl_certificate_verification: bool
    """Whether certificates of brokers are checked at all."""
    ssl_context: ssl.SSLContext
    """A context of Python's own, in place of all other settings of TLS."""
    ssl_truststore_location: str
    """As Java's clients have `ssl_ca_location`; files of type PEM only."""
    ssl_truststore_certificates: str
    """The certificates of authorities themselves, as PEM text."""
    ssl_truststore_type: str
    """The type of the file at `ssl_truststore_location`: PEM."""
    ssl_truststore_password: str
    """Not supported: a file of type PEM has none."""
    ssl_keystore_location: str
    """As Java's clients have `ssl_certificate_location`: one file (PEM) with the certificate and its key."""
    ssl_keystore_certificate_chain: str
    """The client's certificate itself, as PEM text."""
    ssl_keystore_key: str
    """The key of that certificate, as PEM text."""
    ssl_keystore_type: str
    """The type of the file at `ssl_keystore_location`: PEM."""
    ssl_keystore_password: str
    """Not supported: a file of type PEM has none; its key may have one, `ssl_key_password`."""


class ClientKeywords(SecurityKeywords, total=False):
    """Settings of `ClientSettings`."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    metadata_max_age_ms: int
    fail_fast: bool


class ProducerKeywords(ClientKeywords, total=False):
    """Settings of `ProducerSettings`."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    enable_idempotence: bool
    retries: int
    delivery_timeout_ms: int
    linger_ms: float
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_level: int | None


class ConsumerKeywords(ClientKeywords, total=False):
    """Settings of `ConsumerSettings`."""

    group_id: str | None
    group_instance_id: str | None
    partition_assignment_strategy: str | Sequence[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    auto_offset_reset: Literal["latest", "earliest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    queued_max_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    check_crcs: bool
    on_corrupt: Literal["raise", "skip"]
    on_missing_topic: Literal["warn", "raise"] | None
    max_decompressed_bytes: int
    client_rack: str
    allow_auto_create_topics: bool
