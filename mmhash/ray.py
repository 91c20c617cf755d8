"""Keys of a Ray dataset, hashed where its blocks lie: `mmhash bulk` on more than one machine."""

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from mmhash.bulk.shard_store import schema_of, table_of
from mmhash.bulk.sources import content_kind
from mmhash.bulk.work import Options, hash_files, hash_values
from mmhash.digest import check_algorithm
from mmhash.engines.registry import parse_with_fields as parse_engine
from mmhash.errors import InputValueError

if TYPE_CHECKING:
    from ray.data import Dataset


def keys(
    dataset: "Dataset",
    column: str,
    *,
    algorithm: str = "blake3",
    of: Literal["bytes", "pixels"] = "bytes",
    engines: tuple[str, ...] = (),
) -> "Dataset":
    """The dataset with the columns that `mmhash bulk` writes of the items in `column`.

    The items are contents, and the column goes; or paths that all of the cluster can read, and it
    stays. An item that cannot be hashed says so in its `error`, and the others go on.
    """
    named = tuple("@".join(parse_engine(engine)) for engine in engines)
    options = Options(check_algorithm(algorithm), of, named)
    return dataset.map_batches(
        partial(_with_keys, column=column, options=options),
        batch_format="pyarrow",
        zero_copy_batch=True,
    )


def _with_keys(batch: Any, column: str, options: Options) -> Any:
    index = batch.schema.get_field_index(column)
    kind = content_kind(batch.schema.field(index).type) if index >= 0 else None
    taken = sorted(set(batch.column_names) & set(options.columns) - {column})
    if taken:
        raise InputValueError(f"the dataset has columns that keys() writes: {', '.join(taken)}")
    if kind == "path":
        rows = hash_files((path or "" for path in batch.column(index).to_pylist()), options)
    elif kind == "bytes":
        rows = hash_values(batch.column(index), options)
        batch = batch.remove_column(index)
    else:
        raise InputValueError(f"the dataset has no column {column!r} of bytes or of paths")
    found = table_of(rows, schema_of(options.columns))
    return pa.table(
        [*batch.columns, *found.columns], names=[*batch.column_names, *found.column_names]
    )
