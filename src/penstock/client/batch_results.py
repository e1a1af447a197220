"""Keeps the former address of `penstock.client.producer.bulk_result`, which guides have named."""

from penstock.client.producer.bulk_result import BatchError, BatchResult, FailedRows, NewMessage, SentRows

__all__ = ["NewMessage", "SentRows", "FailedRows", "BatchResult", "BatchError"]
