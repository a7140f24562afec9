"""Files on any file system that pyarrow knows: s3://, gs://, hdfs://, abfs://, file://.

Options of a file system are part of the address, as pyarrow documents them: s3://bucket/photos?region=eu-west-1.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unweave.errors import UnweaveError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

GOOGLE_PATIENCE = 60
"""Seconds for which requests to Google's storage are repeated; its own default is a quarter of an hour."""
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


def is_address(text: str) -> bool:
    """Whether ``text`` names a file system, such as s3://bucket/photos; a path of this machine does not.

    Examples:
        >>> is_address("s3://bucket/photos"), is_address("/photos"), is_address("C:/photos")
        (True, False, False)
    """
    return _ADDRESS.match(text) is not None


@dataclass(frozen=True)
class StoredFile:
    """A file on a file system of pyarrow."""

    filesystem: "fs.FileSystem"
    scheme: str
    path: str
    size: int
    changed: int | None
    """When it was last written, in nanoseconds."""

    @property
    def name(self) -> str:
        """Its name without folders."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    def open(self) -> "pa.NativeFile":
        """The file, for reading at any place."""
        return self.filesystem.open_input_file(self.path)


def find_parquet(address: str) -> list[StoredFile]:
    """The Parquet files at an address, which may be a file, a folder or a pattern with ``*`` and ``**``, in order.

    Raises:
        UnweaveError: the file system cannot be reached, or there are none.
    """
    from unweave.data.sources.columns import reading

    shown, scheme = without_secrets(address), address.partition("://")[0].lower()
    with reading(shown):
        filesystem, path = _connect(_patient(address, scheme))
        found = list(_matching(filesystem, path))
    if not found:
        raise UnweaveError(f"there are no Parquet files at {shown}")
    return [
        StoredFile(filesystem, scheme, info.path, info.size, info.mtime_ns)
        for info in sorted(found, key=lambda info: info.path)
    ]


def _matching(filesystem: "fs.FileSystem", path: str) -> "Iterator[Any]":
    """What is known of every file that a path or a pattern names."""
    from pyarrow import fs

    pattern = re.compile(r".*\.parquet", re.IGNORECASE)
    if "*" in path:
        pattern = _compiled(path)
        path = path.partition("*")[0].rpartition("/")[0]
    else:
        named = filesystem.get_file_info(path)
        if named.type != fs.FileType.Directory:
            yield from [named] if named.type == fs.FileType.File else []
            return
    for info in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
        if info.type == fs.FileType.File and pattern.fullmatch(info.path):
            yield info


def _compiled(pattern: str) -> re.Pattern[str]:
    """``*`` within a folder, ``**`` across folders."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    words = re.split(r"(\*\*/|\*\*|\*)", pattern)
    return re.compile("".join(parts.get(word) or re.escape(word) for word in words))


def _connect(address: str) -> "tuple[fs.FileSystem, str]":
    """The file system of an address, and the path on it."""
    from pyarrow import fs

    return fs.FileSystem.from_uri(address)


def _patient(address: str, scheme: str) -> str:
    if scheme not in ("gs", "gcs") or "retry_limit_seconds" in address:
        return address
    return f"{address}{'&' if '?' in address else '?'}retry_limit_seconds={GOOGLE_PATIENCE}"


def without_secrets(address: str) -> str:
    """An address without the password and the options that it may contain.

    Examples:
        >>> without_secrets("s3://key:secret@bucket/photos?region=eu-west-1")
        's3://bucket/photos'
    """
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
