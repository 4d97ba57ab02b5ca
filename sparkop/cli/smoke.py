"""``sparkop smoke``: does the served model do what it is there for."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import Seconds, output_option, reach_spec, spec_options
from sparkop.errors import ExitCode


@click.command("smoke")
@spec_options
@click.option(
    "--deadline",
    type=Seconds(min=1),
    default=180.0,
    show_default=True,
    metavar="SECONDS",
    help="For each answer. Requests have no output cap; reading ends here, or in a loop.",
)
@output_option
def command(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], deadline: float, output: str
) -> int:
    """Ask the served model: text, streaming, a tool call, reasoning, a picture, thinking with tools.

    Each is PASS, FAIL, or not offered by this model. Changes nothing. After 10 s without a token all ranks
    are looked at: one that hangs or is gone is named within a minute, and ends it.
    Exit codes: 0 nothing failed, 4 the head could not be reached, 6 a check failed or nothing is served.
    """
    from sparkop.engines.common import container_names
    from sparkop.reconcile.hanging import Watched
    from sparkop.reconcile.logs import harmless_note
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.reconcile.patience import patiently
    from sparkop.reconcile.served import reach_api
    from sparkop.serving.smoke import smoke
    from sparkop.serving.token_zero import explain_text
    from sparkop.views.errors import show_note
    from sparkop.views.smoke import show_smoke

    loaded, _ = reach_spec(spec, overlays, sets)
    with readable_nodes(loaded.spec) as hosts:
        head = hosts[loaded.spec.head.name]
        waited_for = f"the API on {loaded.spec.head.name} has not answered"
        served = patiently(lambda: reach_api(loaded.spec, head), lambda: waited_for, show_note, None)
        api = Watched(loaded.spec, hosts, served.api, show_note)
        good = show_smoke(
            smoke(api, served.offer, deadline),
            output,
            explain=lambda text: explain_text(loaded.spec, text),
            harmless=lambda: harmless_note(head, container_names(loaded.spec)[0]),
        )
    return ExitCode.OK if good else ExitCode.FAILED
