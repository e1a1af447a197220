"""A batch's result says which rows failed."""

import pytest

from penstock.client.errors import ClientError
from penstock.client.producer.bulk_result import BatchError, BatchResult, FailedRows, SentRows


def test_a_result_without_failures_raises_nothing() -> None:
    result = BatchResult("orders", 2, (SentRows(0, 5, range(2)),))
    result.raise_for_errors()

    assert (result.sent_count, result.failed_rows) == (2, [])


def test_an_error_names_the_rows_and_the_reasons() -> None:
    failed = (
        FailedRows(ClientError("too large"), range(10, 20)),
        FailedRows(ClientError("lost", outcome_unknown=True), [3]),
        FailedRows(ClientError("third"), [4]),
        FailedRows(ClientError("fourth"), [5]),
    )
    result = BatchResult("orders", 100, (), failed)

    with pytest.raises(BatchError, match=r"13 of 100 rows.*too large \(rows 10, 11, 12, 13, 14, …\).*1 more") as raised:
        result.raise_for_errors()
    assert raised.value.result is result
    assert raised.value.outcome_unknown
    assert result.failed_rows == [3, 4, 5, *range(10, 20)]
