"""Log configuration: JSON, or plain lines on a terminal. Payloads and keys are never logged."""

import asyncio
import json
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from mmhash_service.telemetry.tracing import request_id, trace_id

# How long the event loop's log lines wait to be written together.
_DELAY_S = 0.05


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if identifier := request_id.get():
            entry["request_id"] = identifier
        if trace := trace_id():
            entry["trace_id"] = trace
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(entry).decode()
        except UnicodeEncodeError:  # a text that UTF-8 cannot encode
            return json.dumps(entry, default=datetime.isoformat)


class _Lines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        fields = getattr(record, "fields", {}) | {"request": request_id.get()}
        pairs = " ".join(f"{name}={value}" for name, value in fields.items() if value != "")
        return f"{super().formatMessage(record)}  {pairs}".rstrip()


class _Together(logging.StreamHandler[Any]):
    """Writes the lines of several requests together: a write takes as long as a small request."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning at once, with all lines before it; write other lines soon."""
        try:
            self._lines.append(self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001  (as the class below it)
            self.handleError(record)
        if record.levelno <= logging.INFO:
            with suppress(RuntimeError):  # no event loop: at once
                if len(self._lines) == 1:
                    asyncio.get_running_loop().call_later(_DELAY_S, self.flush)
                return
        self.flush()

    def flush(self) -> None:
        """Write the waiting lines."""
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            with suppress(OSError, ValueError):  # nobody reads the log any more
                self.stream.write("".join(lines))
                self.stream.flush()
        finally:
            self.release()


def configure() -> None:
    """Send the log of the service, and the warnings of uvicorn, to stderr."""
    # No line shows the caller, the thread or the process of a record.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = _Together()
    handler.setFormatter(_Lines() if sys.stderr.isatty() else _Json())
    for name, level in (
        ("mmhash_service", logging.INFO),
        ("uvicorn", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def flush() -> None:
    """Write the waiting lines before the process ends."""
    for handler in logging.getLogger("mmhash_service").handlers:
        handler.flush()
