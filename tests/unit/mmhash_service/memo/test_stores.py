"""A URL names a store; an error shows nothing of the URL."""

import pytest

from mmhash_service.memo.stores import create_store, scheme_of


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://cache:6379/0", "RedisStore"),
        ("rediss://me:a%2Fb@cache?ssl_cert_reqs=none", "RedisStore"),
        ("redis+cluster://cache:7000", "RedisStore"),
        ("rediss+cluster://cache", "RedisStore"),
    ],
)
def test_a_url_names_its_store(url: str, name: str) -> None:
    assert type(create_store(url)).__name__ == name
    assert url.startswith(f"{scheme_of(url)}:")


@pytest.mark.parametrize(
    "url",
    [
        *("", "sqlite:/secret", "secret", "redis", "http://secret", "redis+secret://a"),
        *("redis://me:se/cret@a", "redis://a:secret", "redis+cluster://me:se/cret@a"),
        *("redis://a?socket_timeout=secret", "redis://a?secret=1"),
    ],
)
def test_a_wrong_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="redis://") as caught:
        create_store(url)
    assert "secret" not in str(caught.value)
    assert "cret" not in str(caught.value)
