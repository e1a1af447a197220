"""Turns record batches into columns and back, whole columns at a time and without a Python object for any record.

NumPy and pyarrow do the work, or Numba's compiled code where it is installed; none is imported before it is needed.
"""

from penstock.protocol.columns.arrow import SPARK_NAMES, from_arrow, to_arrow
from penstock.protocol.columns.decoding import decode, decode_pieces
from penstock.protocol.columns.encoding import EncodedBatch, encode
from penstock.protocol.columns.kernels import Impl, prepare
from penstock.protocol.columns.layout import ALL_COLUMNS, MESSAGE_COLUMNS, Binary, Columns, Headers
from penstock.protocol.columns.partitioning import group_rows, partition_by, take

__all__ = [
    "decode",
    "decode_pieces",
    "encode",
    "EncodedBatch",
    "to_arrow",
    "from_arrow",
    "SPARK_NAMES",
    "partition_by",
    "group_rows",
    "take",
    "prepare",
    "Impl",
    "Columns",
    "Binary",
    "Headers",
    "ALL_COLUMNS",
    "MESSAGE_COLUMNS",
]
