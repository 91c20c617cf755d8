"""The log: lines of requests are written together, warnings at once."""

import asyncio
import json
import logging
import sys
from datetime import UTC, datetime
from io import StringIO

import pytest

from mmhash_service.server import logs


def test_lines_wait_for_others_until_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("mmhash_service", "uvicorn")
    before = [(one.handlers, one.level, one.propagate) for one in map(logging.getLogger, names)]
    monkeypatch.setattr(sys, "stderr", stream := StringIO())
    logs.configure()
    logger = logging.getLogger("mmhash_service.test")

    async def handle() -> list[int]:
        seen = []
        for log in (logger.info, logger.info, logger.warning, logger.info):
            log("one")
            seen.append(stream.getvalue().count("\n"))
        return seen

    try:
        assert asyncio.run(handle()) == [0, 0, 3, 3]
        logs.flush()  # as at the end of the server
        logger.info("one")  # beside an event loop
        assert stream.getvalue().count("\n") == 5
    finally:
        for name, (handlers, level, propagate) in zip(names, before, strict=True):
            one = logging.getLogger(name)
            one.handlers, one.propagate = handlers, propagate
            one.setLevel(level)


@pytest.mark.parametrize("message", ["one", "half a pair: \udc80"])
def test_the_time_of_a_line_is_of_iso_8601(message: str) -> None:
    record = logging.LogRecord("mmhash_service", logging.INFO, "", 0, message, None, None)
    line = json.loads(logs._Json().format(record))
    assert line["message"] == message
    assert datetime.fromisoformat(line["time"]) == datetime.fromtimestamp(record.created, UTC)
    assert "T" in line["time"]
