"""What the blocking clients have in common."""

from penstock.client.sync.blocking import Blocking


def test_leaving_a_with_block_closes() -> None:
    class Client(Blocking):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    with Client() as client:
        assert client.closed == 0
    assert client.closed == 1
