"""Counts of compiled programs, and of programs found on the disk."""

from typing import Any

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"
FOUND = "/jax/compilation_cache/cache_hits"


class Counted:
    """Counts JAX's events by name while it is open."""

    def __enter__(self) -> dict[str, int]:
        self.events: dict[str, int] = {COMPILED: 0, FOUND: 0}
        jax.monitoring.register_event_listener(self._count)
        jax.monitoring.register_event_duration_secs_listener(self._count)
        return self.events

    def _count(self, name: str, *_: Any, **__: Any) -> None:
        if name in self.events:
            self.events[name] += 1

    def __exit__(self, *_: Any) -> None:
        jax.monitoring.unregister_event_listener(self._count)
        jax.monitoring.unregister_event_duration_listener(self._count)
