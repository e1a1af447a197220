"""These two errors say that bytes cannot be read as a message, or that a message cannot be written as bytes."""


class DecodeError(ValueError):
    """Bytes from outside are not what they claim to be. The only exception that decoding raises."""


class EncodeError(ValueError):
    """A message cannot be written in the version asked for."""
