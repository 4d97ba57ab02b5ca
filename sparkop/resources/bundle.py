"""Packages of `sparkop.node` packed as zip files, which a Python runs as they are."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib import resources

_ENTRY = "import sys\nfrom {package}.main import main\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every member, so that the same program is the same bytes."""


@cache
def bundle(package: str) -> bytes:
    """The zip file of ``sparkop/node/<package>``, which has ``main.main``; same bytes for the same source."""
    data = io.BytesIO()
    folder = resources.files("sparkop.node") / package
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".py"))
    with zipfile.ZipFile(data, "w") as archive:
        _add(archive, "__main__.py", _ENTRY.format(package=package).encode())
        for name in names:
            _add(archive, f"{package}/{name}", (folder / name).read_bytes())
    return data.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, data)
