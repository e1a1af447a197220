"""A node is one broker in a test, alone or of a cluster: started, stopped, killed, and struck by faults."""

from collections.abc import Mapping

from penstock.broker.broker import Broker as ProductionBroker
from penstock.broker.cluster.own_topics import create_topic
from penstock.machines.decisions import Refused
from penstock.testing.faults import Faults
from penstock.testing.settings import by_name
from penstock.testing.stage import Stage


class Node:
    """A broker of a `Cluster`: `cluster.brokers[0]`. Any Kafka client connects to its `bootstrap`. Methods block until
    they are done.

    Example:
        from penstock.testing import Cluster

        with Cluster(brokers=3) as cluster:
            node = cluster.brokers[1]
            with node.faults.delay_replies("200 ms", api="Fetch"):
                print(node.bootstrap)
            node.restart()
    """

    def __init__(self, stage: Stage | None = None) -> None:
        self._stage = stage
        self.faults = Faults(self._open_stage)

    def start(self) -> None:
        """Serve again after `stop` or `kill`: with the same data, at the same port."""
        stage = self._open_stage()
        stage.host.run(stage.start())

    def stop(self) -> None:
        """Stop in order: what is under way is answered, and everything is kept for the next `start`."""
        stage = self._open_stage()
        stage.host.run(stage.stop())

    def kill(self) -> None:
        """Die as a process does by kill -9: no request gets an answer, and what was not written yet is lost. The next
        `start` recovers what there is."""
        stage = self._open_stage()
        stage.host.run(stage.kill())

    def restart(self) -> None:
        """Stop in order, and start again."""
        self.stop()
        self.start()

    @property
    def is_running(self) -> bool:
        return self._stage is not None and self._stage.broker is not None

    @property
    def failure(self) -> str | None:
        """Why the broker has given up, if it has: its disk failed. It serves again after `restart`."""
        return self._production().failure

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; they stay the same over restarts."""
        return self._open_stage().kept_address

    @property
    def bootstrap(self) -> str:
        """The address as clients want it, like `127.0.0.1:49153`."""
        host, port = self.address
        return f"{host}:{port}"

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None, **more: object
    ) -> str:
        """Create a topic, with configs by their dotted names in a dict or as keywords (`retention_ms=1000`); returns
        its name."""
        broker = self._production()
        values = {**by_name(configs or {}), **by_name(more)}
        factor = broker.config.creation_defaults.replication_factor
        ask = broker.services.forwarder.ask
        try:
            self._open_stage().host.run(
                create_topic(ask, name, partitions=partitions, replication_factor=factor, configs=values)
            )
        except Refused as refused:
            raise ValueError(str(refused)) from None
        return name

    def _production(self) -> ProductionBroker:
        broker = self._open_stage().broker
        if broker is None:
            raise RuntimeError("the broker is not running: start it again")
        return broker

    def _open_stage(self) -> Stage:
        if self._stage is None:
            raise RuntimeError("the broker is not running: use it within its `with` block, or start it")
        return self._stage
