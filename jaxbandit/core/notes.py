"""Lines of text for whoever waits: what takes long, and what is written where."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("jaxbandit")


def say(line: str) -> None:
    """Tell the user something that is no warning, by the logger ``jaxbandit``: on standard error unless logging is set up otherwise."""
    LOGGER.warning(line)  # the level that Python shows by itself
