"""The dtypes that have a key."""

from difflib import get_close_matches

# The dtypes that have a key, by their name in torch and numpy (with ml_dtypes), and the bytes of an
# element. Spec v1 lists exactly these dtypes: to add one, add a line there.
ITEM_SIZE = {
    "bool": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}

_ALIASES = {
    "bf16": "bfloat16",
    "half": "float16",
    "fp16": "float16",
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "fp64": "float64",
}


def unknown_dtype(name: str) -> str:
    """Return the error text for a dtype that has no key."""
    shown = name[:32]
    close = _ALIASES.get(shown) or next(iter(get_close_matches(shown, ITEM_SIZE, n=1)), None)
    hint = f"did you mean {close!r}?" if close else f"choose one of {', '.join(ITEM_SIZE)}"
    return f"there is no dtype {shown!r}: {hint}"
