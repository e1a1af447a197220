"""The two ways in which bytes and messages fail to be one another."""


class DecodeError(ValueError):
    """Bytes from outside are not what they claim to be. The only exception that decoding raises."""


class EncodeError(ValueError):
    """A message cannot be written in the version asked for."""
