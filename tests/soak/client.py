"""The soak's client, inside the lab: asks once a second until it is told to end; prints how often it was
answered, and when a request failed (from and to, seconds since 1970)."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from contextlib import closing

from sparkop.hosts.connect import Target, connect_all


def main() -> int:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    target = Target("spark-1", host="spark-1.lab", user="root")
    host = connect_all([target], writable=False)[target.name]
    key = (host.read_file("~/.sparkop/standin/api_key") or b"").decode().strip()
    body = {"model": "tiny-chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    answered, failed = 0, []
    while not over.wait(1.0):
        began = time.time()
        try:
            path, asked = "/v1/chat/completions", json.dumps(body).encode()
            with closing(host.http("POST", 8000, path, headers=headers, body=asked, timeout=20.0)) as answer:
                answer.read()
                good = answer.status == 200
        except Exception:  # a restart costs some requests, in any way
            good = False
        answered += good
        if not good:
            failed.append((began, time.time()))
    print(json.dumps({"answered": answered, "failed": failed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
