"""What earlier specs of a cluster have left where this one does not reach, on stderr."""

from __future__ import annotations

import sys
from shlex import quote

from sparkop.reconcile.left_behind import Left, left_by
from sparkop.spec.models import ClusterSpec
from sparkop.views.console import print_lines


def show_left_behind(spec: ClusterSpec) -> None:
    """Warn, with the command that clears it, until it is cleared."""
    print_lines((f"warning: {_told(each)}" for each in left_by(spec)), sys.stderr)


def _told(left: Left) -> str:
    file = quote(str(left.file))
    if left.same_node:
        return (
            f"{left.node}: the state folder was {left.state} before, and stays as it is, with key, caches "
            "and history, if it is still there: move it to the new place first to keep them; or "
            f"sparkop destroy {file} removes it, and what runs on {left.node}; when it is gone: rm {file}"
        )
    if left.other_address:
        return (
            f"{left.node} was {left.other_address} before: if that is the same machine, rm {file} ends this "
            "warning; if it is another one, what runs there is not touched, and "
            f"sparkop destroy {file} removes it"
        )
    return (
        f"{left.node} belonged to this cluster and is not in the spec: what runs there is not touched; "
        f"sparkop destroy {file} removes it, on that machine only; when that is gone, or is one of the spec "
        f"by another address: rm {file}"
    )
