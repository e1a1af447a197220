"""The protocol turns messages into bytes and back: schema tables and codec, record batches, compression, framing, error
codes. It does no I/O."""
