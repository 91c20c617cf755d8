"""No request that the OpenAPI document allows causes an internal error."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings


@pytest.mark.slow
def test_no_call_that_the_page_allows_fails_inside() -> None:
    # Here, and its plugin not at all: the import takes seconds of every process that collects tests.
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import not_a_server_error

    # Straight into the app: what is tested is the page and the handlers, not the sockets.
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(Settings()))
    operations = [found.ok() for found in schema.get_all_operations()]
    assert operations
    for operation in operations:

        @given(operation.as_strategy())
        @settings(
            max_examples=25,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def call(case: Any) -> None:
            case.call_and_validate(checks=[not_a_server_error])

        call()
