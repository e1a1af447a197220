"""Lists the clients that there are."""

import sys

from tools.clients.client import Client, nothing
from tools.clients.console import install_console_tools, start_console_tools, what_the_producer_sends
from tools.clients.kcat import install_kcat, start_kcat, what_kcat_reads, what_kcat_sends
from tools.clients.member_assignors import BY_WEIGHT
from tools.clients.members import GroupClient
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


def _python_members(name: str, *assignors: str, gives_way: bool = True) -> GroupClient:
    command = [sys.executable, "-m", "tools.clients.member_program", name]
    return GroupClient(name=name, install=nothing, command=command, assignors=assignors, gives_way=gives_way)


GROUP_CLIENTS = (
    # librdkafka takes no assignor of the user's, and has no sticky one that revokes everything.
    _python_members("confluent-kafka", "range", "roundrobin", "cooperative-sticky"),
    _python_members("kafka-python", "range", "roundrobin", "sticky", "cooperative-sticky", BY_WEIGHT),
    # aiokafka sends its instance id only when it joins, and does not know the error that it is fenced with.
    _python_members("aiokafka", "range", "roundrobin", "sticky", BY_WEIGHT, gives_way=False),
    GroupClient(
        name="kafkajs",
        install=_install_kafkajs,
        command=["node", str(HERE / "kafkajs" / "member.js")],
        environment={"NODE_PATH": str(NODE_MODULES)},
        # Its own round robin has a name of its own; range is written here, in its terms.
        assignors=("RoundRobinAssigner", "range", BY_WEIGHT),
        has_static_members=False,
    ),
    GroupClient(
        name="java",
        install=_install_java,
        # Compiling further than the first stage takes longer than the tests do.
        command=[
            *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1"),
            *("-cp", class_path("java"), str(HERE / "java" / "Member.java")),
        ],
        assignors=("range", "roundrobin", "sticky", "cooperative-sticky", BY_WEIGHT),
        at_once=1,
    ),
)
"""Clients that can be members of groups."""

OWN_GROUP_CLIENT = GroupClient(
    name="penstock",
    install=nothing,
    command=[sys.executable, "-m", "tools.clients.own_member_program"],
    assignors=("range", "roundrobin", "cooperative-sticky", BY_WEIGHT),
)
"""Our own, which has to get along with them."""
