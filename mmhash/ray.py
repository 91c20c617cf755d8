"""Keys of a Ray dataset, hashed where its blocks are: `mmhash bulk` on several machines."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from mmhash.arguments import check_choice
from mmhash.digest import Algorithm, check_algorithm
from mmhash.engines.registry import parse as parse_engine
from mmhash.engines.registry import split_names
from mmhash.errors import InputValueError
from mmhash.extras import needs_extra

with needs_extra("ray"):
    import pyarrow as pa

    from mmhash.bulk.items import BulkOptions, hash_files, hash_values
    from mmhash.bulk.rows import content_kind
    from mmhash.bulk.tables import table_of

if TYPE_CHECKING:
    from ray.data import Dataset


def keys(
    dataset: "Dataset",
    column: str,
    *,
    algorithm: Algorithm = "blake3",
    of: Literal["bytes", "pixels"] = "bytes",
    engines: str | Iterable[str] = (),
) -> "Dataset":
    """Return the dataset with the columns that `mmhash bulk` writes for the items in `column`.

    If the column holds contents, it is removed. If it holds paths, which every node must be able to
    read, it stays. If an item cannot be hashed, its `error` says why; the others are hashed. The
    name of an engine's column includes the release.
    """
    check_choice("of", of, "bytes", "pixels")
    with_releases = tuple("@".join(parse_engine(engine)) for engine in split_names(engines))
    options = BulkOptions(check_algorithm(algorithm), of, with_releases)
    return dataset.map_batches(
        partial(_with_keys, column=column, options=options),
        batch_format="pyarrow",
        zero_copy_batch=True,
    )


def _with_keys(batch: Any, column: str, options: BulkOptions) -> Any:
    index = batch.schema.get_field_index(column)
    kind = content_kind(batch.schema.field(index).type) if index >= 0 else None
    kept = set(batch.column_names) - ({column} if kind == "bytes" else set())
    clashes = sorted(kept & set(options.columns))
    if clashes:
        raise InputValueError(f"the dataset has columns that keys() writes: {', '.join(clashes)}")
    if kind == "path":
        rows = hash_files((path or "" for path in batch.column(index).to_pylist()), options)
    elif kind == "bytes":
        rows = hash_values(batch.column(index), options)
        batch = batch.remove_column(index)
    else:
        raise InputValueError(f"the dataset has no column {column!r} of bytes or of paths")
    results = table_of(rows, options.columns)
    return pa.table(
        [*batch.columns, *results.columns], names=[*batch.column_names, *results.column_names]
    )
