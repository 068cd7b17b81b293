"""Thread for calls of the Kafka client that must not be cut by a timeout.

The caller waits in steps, and can give up; the thread is then left alone with its call.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

__all__ = ["UncutCalls"]

_STEP_S: Final = 0.1

_Result = TypeVar("_Result")
_Outcome: TypeAlias = tuple[_Result] | BaseException


class UncutCalls(Generic[_Result]):
    """Calls, one after the other, in one thread, which is started by the first.

    A thread for each call, with a future, would cost three times the CPU.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], _Result] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[_Outcome[_Result]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def make(self, call: Callable[[], _Result], on_wait: Callable[[], None]) -> _Result:
        """Return the result of `call`, or raise its exception.

        Args:
            call: Function that runs in the thread; nothing stops it.
            on_wait: Callback of the wait, ten times a second; an exception of its ends the wait,
                and no other call can be made.

        Raises:
            RuntimeError: no thread can be started.
        """
        if self._thread is None:
            # A daemon thread: a call that hangs must not keep the process from ending.
            thread = threading.Thread(target=self._work, name="kafka-commit", daemon=True)
            thread.start()
            self._thread = thread
        self._calls.put(call)
        while True:
            with contextlib.suppress(queue.Empty):
                outcome = self._results.get(timeout=_STEP_S)
                break
            on_wait()  # no exception is being handled here
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome[0]

    def close(self) -> None:
        """Let the thread end, now or after its call."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                outcome: _Outcome[_Result] = (call(),)
            except BaseException as error:
                outcome = error
            del call  # not kept alive while waiting for the next one
            self._results.put(outcome)
