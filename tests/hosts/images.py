"""A small image for the containers of these tests, made without any registry."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

from sparkop.lab.host import Host

IMAGE = "sparkop-tests-busybox:1"


def put_busybox(host: Host, folder: Path) -> str:
    """Import busybox into a lab host's engine; the image's name."""
    busybox = shutil.which("busybox")
    assert busybox, "install busybox-static"
    archive = folder / "busybox.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(busybox, "bin/busybox")
        for name in ("sh", "sleep", "echo", "kill", "cat", "id", "trap"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        passwd = tarfile.TarInfo("etc/passwd")
        text = b"root:x:0:0:root:/:/bin/sh\n"
        passwd.size = len(text)
        tar.addfile(passwd, io.BytesIO(text))
    host.docker("import", str(archive), IMAGE)
    return IMAGE
