"""The client's errors as the user sees them."""

import click
import pytest

from penstock.cli.running import failure, run
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError, TimedOutError, UnknownTopicError
from tests.client.peer import closed_port


async def use(cluster: Cluster) -> int:
    return len(cluster.bootstrap)


def test_work_gets_a_cluster_and_its_result_is_returned() -> None:
    assert run({"bootstrap.servers": "one:1,two:2"}, use) == 2


def test_an_address_that_is_none_is_wrong_usage() -> None:
    with pytest.raises(click.BadParameter, match="is no broker's address"):
        run({"bootstrap.servers": "one:two"}, use)


def test_an_error_of_the_client_is_a_failure_of_the_command() -> None:
    async def look(cluster: Cluster) -> None:
        await cluster.all_topics()

    with pytest.raises(click.ClickException, match="no broker can be reached") as caught:
        run({"bootstrap.servers": f"127.0.0.1:{closed_port()}", "fail.fast": "true"}, look)
    assert caught.value.exit_code == 1


def test_a_failure_tells_what_the_error_tells() -> None:
    error = UnknownTopicError("ordrs", ["orders"])
    error.add_note("1 more of 2 failed")
    assert failure(error).message.startswith("topic 'ordrs': there is no such topic; did you mean 'orders'?")
    assert failure(error).message.endswith("; 1 more of 2 failed")


def test_what_an_error_quotes_is_not_obeyed_by_a_terminal() -> None:
    error = ClientError("the broker says: \x1b[2J\x9b\nError: all is lost")
    assert failure(error).message == r"the broker says: \x1b[2J\x9b\nError: all is lost"


def test_a_failure_says_when_it_may_have_been_done_all_the_same() -> None:
    unknown = failure(TimedOutError("no answer came", outcome_unknown=True)).message
    assert unknown == "no answer came; it is unknown whether it was done"
    assert failure(ClientError("refused")).message == "refused"
