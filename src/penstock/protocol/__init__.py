"""The wire: schema tables and codec, record batches, compression, framing, error codes. Pure: bytes in, bytes out."""
