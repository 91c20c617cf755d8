"""The format of a log line."""

import json
import logging
from datetime import UTC, datetime

import pytest

from mmhash_service.server import logs


@pytest.mark.parametrize("message", ["one", "half a pair: \udc80"])
def test_the_time_of_a_line_is_of_iso_8601(message: str) -> None:
    record = logging.LogRecord("mmhash_service", logging.INFO, "", 0, message, None, None)
    line = json.loads(logs._Json().format(record))
    assert line["message"] == message
    assert datetime.fromisoformat(line["time"]) == datetime.fromtimestamp(record.created, UTC)
    assert "T" in line["time"]
