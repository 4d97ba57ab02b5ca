"""Fetches, checks, rebuilds and hands on the files of a checkpoint, detached, on the node.

Stdlib-only, Python 3.8 or newer. The controller sends this package as one zip file and runs it with
``python3 transfer.pyz COMMAND STATE`` (see ``main.py``); STATE is the cluster's state folder on the node.

What it keeps on the node:

``STATE/ledger/weights.json``
    What was verified. A file whose stat still agrees needs no second look; nothing but a full hash of the
    bytes on disk puts an entry here::

        {"version": 1,
         "files": {"/real/path": {"inode": 12, "size": 5, "mtime_ns": 1, "ctime_ns": 1,
                                  "sha256": "64 hex", "git": "40 hex", "pieces": "64 hex"}}}

    The key is the real path (``os.path.realpath``: in a hub cache it is the blob). ``sha256`` is always
    there; ``git`` is the blob's SHA-1 as git counts it, only for files that the hub knows by it; ``pieces``
    stands for a file rebuilt from parts, see `files.pieces_hash`.
    A file is as wanted when its stat agrees with the entry and the hash that is asked for
    (``sha256``, ``git`` or ``pieces``) is in the entry.

``STATE/transfer.json``
    The state of the last job, replaced as a whole about twice a second (see ``status.py``)::

        {"version": 1, "id": "...", "kind": "fetch", "pid": 1, "boot_id": "...", "sequence": 17,
         "phase": "checking|fetching|finishing|done|failed|cancelled",
         "files": {"total": 9, "done": 3},
         "bytes": {"total": 9, "done": 3, "staged": 2, "received": 4, "discarded": 1, "hashed": 5},
         "rate": 1.0, "remaining": 1.0, "silent": 0, "active": {"path": {"size": 9, "done": 3}},
         "bad": {"path": "why"}, "problems": ["..."],
         "error": {"kind": "...", "message": "...", "remedy": "..."}}

    ``silent``: whole seconds since the last byte came, while bytes are still to come.

``STATE/image.json``
    The same of the last image job (kind ``image``), see ``images.py``.

``STATE/transfer/job.json``
    The last job without its secrets; ``lock`` is held (flock) by the process that works on it.
``STATE/transfer/image.job.json``
    The same of the last image job.
``STATE/transfer/share.json``, ``share.token``
    What is offered to other nodes, and the token that they show.

Beside a wanted file, while it is being fetched: ``.sparkop-<hash>.partial`` (the bytes) and
``.sparkop-<hash>.blocks`` (which blocks of it are durable, see ``blocks.py``).
"""
