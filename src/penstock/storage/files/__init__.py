"""Gives storage its files and folders: the operating system's, or a disk in memory that can fail and crash."""

from penstock.storage.files.real import (
    Buffer,
    Files,
    FileStat,
    Names,
    RealFiles,
    lacks_descriptors,
    lacks_space,
    rewrite,
    rewrite_file,
    sync_file,
    write_all,
)

__all__ = [
    "Buffer",
    "FileStat",
    "Files",
    "Names",
    "RealFiles",
    "lacks_descriptors",
    "lacks_space",
    "rewrite",
    "rewrite_file",
    "sync_file",
    "write_all",
]
