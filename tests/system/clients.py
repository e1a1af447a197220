"""What tests do with other people's clients."""

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.system.processes import PATIENCE_SECONDS


def create_topic(
    address: tuple[str, int], name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*address), "log_level": 4})
    topic = NewTopic(name, partitions, 1, config=configs or {})
    for created in admin.create_topics([topic], request_timeout=PATIENCE_SECONDS).values():
        created.result(PATIENCE_SECONDS)
