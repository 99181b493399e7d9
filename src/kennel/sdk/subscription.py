"""Owns a callback that is fed in the background: by a task in the asynchronous half, by a thread in the other.

Called by `live_state.subscribe`; both forms are written by hand, because the two kinds of background have nothing in
common. Invariant: after `stop` has returned the callback is not called again; what ended a subscription is kept.
asyncio is imported by the half that has it: it costs a command of the command line 18 ms of its start.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from kennel.sdk._async.following import AsyncFollowing
    from kennel.sdk._sync.following import Following

log = logging.getLogger("kennel")

T = TypeVar("T")
Callback = Callable[[T], Any]


class AsyncSubscription(Generic[T]):
    """A callback, plain or a coroutine function, called for each update until `stop`; made inside a running loop."""

    def __init__(self, updates: AsyncFollowing[T], callback: Callback[T]) -> None:
        import asyncio

        self._updates, self._callback = updates, callback
        self.error: BaseException | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kennel-subscription")

    @property
    def running(self) -> bool:
        """Whether updates still arrive."""
        return not self._task.done()

    async def stop(self) -> None:
        """Ends it; waits until the callback, if it is being called, has returned or was cancelled."""
        import asyncio

        if asyncio.current_task() is self._task:
            self._updates.interrupt()
            return
        self._task.cancel()
        await asyncio.wait({self._task})

    async def wait(self) -> None:
        """Returns when it has ended; raises what ended it, the callback's own exception included."""
        import asyncio

        await asyncio.wait({self._task})
        if self.error is not None:
            raise self.error

    async def _run(self) -> None:
        try:
            async for update in self._updates:
                answer = self._callback(update)
                if inspect.isawaitable(answer):
                    await answer
        except Exception as failure:  # noqa: BLE001 - kept for `wait`
            self.error = failure
            log.warning("a subscription ended: %r", failure)
        finally:
            await self._updates.close()


class Subscription(Generic[T]):
    """A callback called for each update, in a thread of its own, until `stop`."""

    def __init__(self, updates: Following[T], callback: Callback[T]) -> None:
        self._updates, self._callback = updates, callback
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kennel-subscription", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether updates still arrive."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ends it; waits until the callback, if it is being called, has returned."""
        self._updates.interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def wait(self, timeout: float | None = None) -> None:
        """Returns when it has ended, or after `timeout` seconds; raises what ended it, the callback's own included."""
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            for update in self._updates:
                self._callback(update)
        except Exception as failure:  # noqa: BLE001 - kept for `wait`
            self.error = failure
            log.warning("a subscription ended: %r", failure)
        finally:
            self._updates.close()
