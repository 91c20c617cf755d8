"""Optional dependencies: they are imported without garbage collections, and may be missing."""

import gc

import pytest

from mmhash.cli.extras import extra


def test_imports_run_without_garbage_collections() -> None:
    with extra("bulk"):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_missing_package_is_named_and_collections_run_again() -> None:
    with pytest.raises(SystemExit, match=r"no_such_package .*'mmhash-keys\[bulk\]'"), extra("bulk"):
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_a_module_of_mmhash_that_is_missing_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'mmhash"), extra("bulk"):
        import mmhash.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()
