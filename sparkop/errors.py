"""Errors that a user can meet, and the exit codes of the command line.

* SparkopError
  x UsageError            64  the command line is wrong
  x SpecError             65  the spec is invalid, or a rule refuses it
  x UnreachableError       4  a node does not answer, or its answer can't be read
    + HostKeyError             the node's host key is unknown or has changed
  x LeaseHeldError         5  another sparkop writes to this cluster
  x BlockedError           6  it can't be done until a human changes something
    + RebootedError            a node went down and came back while it was waited for
    + DeclinedError            the user was asked, and said no
  x TimedOutError          3  it did not happen within its deadline
  x WaitInterruptedError 130  the user asked to stop while something was waited for
"""

from __future__ import annotations

from enum import IntEnum

from sparkop.plain import one_line

LAST_WORDS = 3
"""Lines of a detail that are told where there is one line for all."""


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    UNEXPECTED = 1
    DIFFERS = 2
    TIMED_OUT = 3
    UNREACHABLE = 4
    LEASE_HELD = 5
    FAILED = 6
    USAGE = 64
    INVALID_SPEC = 65
    INTERRUPTED = 130
    TERMINATED = 143


class SparkopError(Exception):
    """A failure told in the user's words.

    ``message`` says what happened, ``node`` where, ``cause`` the likely reason, ``remedy`` the next
    command or act, ``detail`` evidence such as the last log lines.
    """

    exit_code = ExitCode.UNEXPECTED

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        cause: str | None = None,
        remedy: str | None = None,
        detail: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.cause = cause
        self.remedy = remedy
        self.detail = detail

    @property
    def reason(self) -> str:
        """Message, cause and the last words of the detail on one line: for a list with a line a node."""
        told = self.message.rstrip(".") + (f": {self.cause}" if self.cause else "")
        words = [line.strip() for line in (self.detail or "").splitlines() if line.strip()]
        return one_line(f"{told} ({'; '.join(words[-LAST_WORDS:])})" if words else told)


class UsageError(SparkopError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE


class SpecError(SparkopError):
    """The spec is invalid, or a rule refuses it."""

    exit_code = ExitCode.INVALID_SPEC


class UnreachableError(SparkopError):
    """A node does not answer, or its answer can't be read. Its state is unknown, not absent."""

    exit_code = ExitCode.UNREACHABLE


def unreadable(cause: str, *, node: str | None, detail: str | None = None) -> UnreachableError:
    """The error of an answer that was cut off, is another request's, or makes no sense."""
    return UnreachableError(
        "The node's answer can't be read.",
        node=node,
        cause=cause,
        remedy="try again; if it stays so, sparkop doctor tells what is wrong with the node",
        detail=detail,
    )


class HostKeyError(UnreachableError):
    """The node's host key is unknown or has changed."""


class LeaseHeldError(SparkopError):
    """Another sparkop writes to this cluster."""

    exit_code = ExitCode.LEASE_HELD


class BlockedError(SparkopError):
    """It can't be done until a human changes something."""

    exit_code = ExitCode.FAILED


class InTheWayError(BlockedError):
    """Something of the nodes is in the way that would be in the way of any spec: a cable, a full disk,
    somebody else's containers."""


class RebootedError(BlockedError):
    """A node went down and came back while it was waited for: what ran there has to be started again."""


class DeclinedError(BlockedError):
    """The user was asked, and said no."""


class TimedOutError(SparkopError):
    """It did not happen within its deadline."""

    exit_code = ExitCode.TIMED_OUT


class WaitInterruptedError(SparkopError):
    """The user asked to stop while something was waited for; what runs on the nodes goes on there."""

    exit_code = ExitCode.INTERRUPTED


NO_FAILURES = (WaitInterruptedError, RebootedError)
"""What ends a wait of ``watch`` although nothing failed: it looks again, and goes on."""
