"""Bodies that are read on the event loop: those with few values."""

import pytest

from mmhash_service.gateway.routed_request import is_light

IMAGE = b'{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,%b"}}]}]}'


@pytest.mark.parametrize("body", [b"", b"{}", b"[" * 4000, IMAGE % (b"A" * 150_000)])
def test_a_body_with_few_values_is_light(body: bytes) -> None:
    assert is_light(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"0," * 5000 + b"0]",
        b"{" + b'"a":{' * 3000,
        b'"' * 5000,
        IMAGE % (b"A" * 200_000),
    ],
)
def test_a_long_body_or_one_with_many_values_is_not(body: bytes) -> None:
    assert not is_light(body)
