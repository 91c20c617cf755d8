"""Steps of the plugin that must never cost a request."""

from collections.abc import Callable
from typing import Any, TypeVar

from mmhash.plugin import logger

Result = TypeVar("Result")


class Attempt:
    """Runs the plugin's steps: one that fails leaves the request as the engine has it."""

    def __init__(self) -> None:
        self._logged: set[type[Exception]] = set()

    def note(self, error: Exception) -> None:
        """Log an error, once for each kind."""
        if type(error) not in self._logged:
            self._logged.add(type(error))
            logger.error(
                "mmhash leaves a request to the engine, and further ones silently", exc_info=error
            )

    def run(self, step: Callable[..., Result], *arguments: Any) -> Result | None:
        """Return what the step returns, or None if it fails."""
        try:
            return step(*arguments)
        except Exception as error:  # noqa: BLE001  (the engine goes on without the plugin)
            self.note(error)
            return None
