"""The table of stores: each row is documented, and its schemes reach its parser and its class."""

from pathlib import Path

import pytest

from mmhash_service.memo.stores import STORES, StoreType, check_memo_url, create_store, scheme_of

PAGE = Path(__file__).parents[4] / "docs" / "memo.md"

URLS = {
    "sqlite": "sqlite:/tmp/memo",
    "redis": "redis://cache:6379/0",
    "rediss": "rediss://cache",
    "redis+cluster": "redis+cluster://a:1,b:2",
    "rediss+cluster": "rediss+cluster://a:1,b:2",
    "redis+sentinel": "redis+sentinel://a:1,b:2/pictures/0",
    "rediss+sentinel": "rediss+sentinel://a:1,b:2/pictures",
}


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.form)
def test_the_page_has_each_row(store: StoreType) -> None:
    assert f"| `{store.form}` | {store.description} |" in PAGE.read_text().splitlines()
    check_memo_url(store.form.replace("PORT", "1").replace("DB", "0"))


def test_each_scheme_is_of_one_row() -> None:
    schemes = [scheme for store in STORES for scheme in store.schemes]
    assert sorted(schemes) == sorted(URLS)
    assert all(scheme_of(store.form) in store.schemes for store in STORES)


@pytest.mark.parametrize("scheme", URLS)
def test_a_url_names_its_store(scheme: str) -> None:
    name = "SqliteStore" if scheme == "sqlite" else "RedisStore"
    assert type(create_store(URLS[scheme], 1)).__name__ == name
