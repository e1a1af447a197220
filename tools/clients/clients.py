"""The clients there are."""

import sys

from tools.clients.client import Client
from tools.clients.console import install_console_tools, start_console_tools, what_the_producer_sends
from tools.clients.kcat import install_kcat, start_kcat, what_kcat_reads, what_kcat_sends
from tools.clients.packages import HERE, NODE_MODULES, class_path, install_commands, install_jars, install_node_modules
from tools.clients.programs import program
from tools.clients.records import without_null_headers


async def _install_kafkajs() -> None:
    await install_commands("node", "npm")
    await install_node_modules(HERE / "kafkajs")


async def _install_java() -> None:
    await install_commands("java", "mvn")
    await install_jars(HERE / "java")


def _python(name: str) -> list[str]:
    return [sys.executable, "-m", "tools.clients.python_program", name]


CONFLUENT_KAFKA = Client(
    name="confluent-kafka",
    start=program(_python("confluent-kafka")),
    too_large="Broker: Message size too large",
)
KAFKA_PYTHON = Client(
    name="kafka-python",
    start=program(_python("kafka-python")),
    too_large="MessageSizeTooLargeError",
    sends=without_null_headers,
)
AIOKAFKA = Client(
    name="aiokafka",
    start=program(_python("aiokafka")),
    too_large="MessageSizeTooLargeError",
)
KCAT = Client(
    name="kcat",
    install=install_kcat,
    start=start_kcat,
    too_large="Broker: Message size too large",
    sends=what_kcat_sends,
    reads=what_kcat_reads,
    sets_timestamps=False,
)
KAFKAJS = Client(
    name="kafkajs",
    install=_install_kafkajs,
    start=program(
        ["node", str(HERE / "kafkajs" / "client.js")],
        {"NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    ),
    too_large="MESSAGE_TOO_LARGE",
    sends=without_null_headers,
    assigns=False,
)
JAVA = Client(
    name="java",
    install=_install_java,
    start=program(["java", "-cp", class_path("java"), str(HERE / "java" / "Client.java")]),
    too_large="RecordTooLargeException",
)
JAVA_TOOLS = Client(
    name="java tools",
    install=install_console_tools,
    start=start_console_tools,
    too_large="RecordTooLargeException",
    sends=what_the_producer_sends,
    sets_timestamps=False,
)

CLIENTS = (CONFLUENT_KAFKA, KAFKA_PYTHON, AIOKAFKA, KCAT, KAFKAJS, JAVA, JAVA_TOOLS)
