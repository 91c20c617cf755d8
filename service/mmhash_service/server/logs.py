"""Configures the log: JSON, or plain lines on a terminal. The log never has payloads or keys."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from mmhash_service.telemetry.tracing import request_id, trace_id


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
        except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot encode
            return json.dumps(entry, default=datetime.isoformat)


class _Lines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        fields = getattr(record, "fields", {}) | {"request": request_id.get()}
        pairs = " ".join(f"{name}={value}" for name, value in fields.items() if value != "")
        return f"{super().formatMessage(record)}  {pairs}".rstrip()


def configure() -> None:
    """Send the log of the service and the warnings of uvicorn to stderr."""
    # Do not look up the caller, thread and process of each record. No line shows them.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines() if sys.stderr.isatty() else _Json())
    for name, level in (
        ("mmhash_service", logging.INFO),
        ("uvicorn", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
