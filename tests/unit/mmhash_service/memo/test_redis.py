"""The URL of the store, which no error shows."""

import pytest

from mmhash_service.memo.redis import RedisStore


@pytest.mark.parametrize(
    "url",
    [
        "redis://cache:6379/0",
        "rediss://me:a%2Fb@cache?ssl_cert_reqs=none",
        "redis+cluster://cache:7000",
        "rediss+cluster://cache",
    ],
)
def test_a_url_names_its_store(url: str) -> None:
    assert url.startswith(f"{RedisStore(url).scheme}:")


@pytest.mark.parametrize(
    "url",
    [
        *("", "sqlite:/secret", "secret", "redis", "http://secret", "redis+secret://a"),
        *("redis://me:se/cret@a", "redis://a:secret", "redis+cluster://me:se/cret@a"),
        *("redis://a?socket_timeout=secret", "redis://a?secret=1"),
    ],
)
def test_a_wrong_url_is_refused_and_kept_out_of_the_error(url: str) -> None:
    with pytest.raises(ValueError, match="redis://") as caught:
        RedisStore(url)
    assert "secret" not in str(caught.value)
    assert "cret" not in str(caught.value)
