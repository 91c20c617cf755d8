"""No request that the OpenAPI document allows causes an internal error."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

schemathesis = pytest.importorskip("schemathesis")
from schemathesis.checks import not_a_server_error  # noqa: E402  (it need not be there)

from mmhash_service.http.app import create_app  # noqa: E402
from mmhash_service.settings import Settings  # noqa: E402

# Straight into the app: what is tested is the page and the handlers, not the sockets.
schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(Settings()))


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_call_that_the_page_allows_fails_inside(case: Any) -> None:
    case.call_and_validate(checks=[not_a_server_error])
