"""The order of runs on a device, which begin without waiting for those before them."""

from __future__ import annotations

import iree.runtime as rt


class Timeline:
    """A semaphore that each run raises by one when it is done, once the run before it has.

    Args:
        device: IREE's, whose runs these are.
    """

    def __init__(self, device: rt.HalDevice) -> None:
        self._device: rt.HalDevice | None = device
        self._last = 0
        self._semaphore = device.create_semaphore(self._last)

    def next(self) -> tuple[rt.HalFence, rt.HalFence]:
        """Return what the next run waits for and what it signals. It has to begin, or `restart`."""
        before = rt.HalFence.create_at(self._semaphore, self._last)
        self._last += 1
        return before, rt.HalFence.create_at(self._semaphore, self._last)

    @property
    def last(self) -> int:
        """The number of the last run, counted from 1."""
        return self._last

    def is_done(self, run: int) -> bool:
        """Tell whether a run, given by its number, is over."""
        done: int = self._semaphore.query()
        return done >= run

    def restart(self) -> None:
        """Go on after a run that failed, or did not begin. Earlier ones have to be waited for."""
        if self._device is not None:
            self._semaphore = self._device.create_semaphore(self._last)

    def close(self) -> None:
        """Release the semaphore."""
        self._device = self._semaphore = None
