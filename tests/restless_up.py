"""`kennel up` for tests that kill services by the dozen: what dies is started again at once, however often it died.

Run by crashes.py as a process. Everything else is that of the real supervisor.
"""

from __future__ import annotations

from kennel.installation import supervisor, up


class Restless(supervisor.Supervisor):
    """A supervisor that never waits longer for what keeps dying."""

    def _reap(self) -> None:
        super()._reap()
        for service in self._services:
            service.delay = service.due = 0.0


if __name__ == "__main__":
    up.Supervisor = Restless  # type: ignore[misc]
    up.main()
