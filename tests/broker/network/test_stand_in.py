"""Calls that came by no connection of this broker."""

from penstock.broker.network.call import Call
from penstock.broker.network.stand_in import StandIn, call_of_broker
from penstock.machines.broker_proof import Identity
from penstock.protocol.apis import api


def test_a_call_shows_where_the_client_is_and_that_it_is_no_broker() -> None:
    stand_in = StandIn(listener_name="OUTSIDE", peer="10.1.2.3:0", broker=None)
    call = stand_in.take(Call(api(19), 7, 5, "client", memoryview(b"")), 12.5)
    assert call.client_host == "/10.1.2.3"
    assert (call.connection.listener_name, call.connection.broker, call.received_at) == ("OUTSIDE", None, 12.5)
    assert call.connection.is_open


def test_a_call_of_a_broker_shows_which_one_it_is() -> None:
    call = call_of_broker(api(67), 0, Identity(3, 9), listener_name="INTERNAL", now=1.0)
    assert call.connection.broker == Identity(3, 9)
    assert call.client_id == "penstock-broker-3"
