"""Steps of the plugin whose failure must never cost a request."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

logger = logging.getLogger("mmhash.plugin")


class Attempt:
    """Runs steps of the plugin.

    If a step fails, the engine handles the request as it would alone.
    """

    def __init__(self) -> None:
        self._logged: set[type[Exception]] = set()

    def run(self, step: Callable[..., Result], *arguments: Any) -> Result | None:
        """Return the step's result, or None if the step fails; log each kind of error once."""
        try:
            return step(*arguments)
        except Exception as error:  # the engine goes on without the plugin
            if type(error) not in self._logged:
                self._logged.add(type(error))
                logger.exception(
                    "mmhash leaves a request to the engine, and will not log this error again"
                )
            return None
