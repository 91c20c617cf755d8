"""The known releases of vLLM, and the recipe of each range."""

from typing import Literal, NamedTuple

from mmhash.engines.releases import Range, Releases, is_since


class Recipe(NamedTuple):
    """How a range of releases hashes items and blocks; the defaults fit the oldest known."""

    # In an mm hash, each part follows its length, and each container follows its kind.
    framed: bool = False
    # Unreadable EXIF counts as no EXIF.
    lenient_exif: bool = False
    # The decoder's configuration counts, and a video is hashed by its encoded bytes, or by its
    # frames if these are smaller …
    encoded_video: bool = False
    # … even if its frames are a tensor.
    tensor_video: bool = False
    # Processor options count under a name of their own, and only the options of the item's
    # modality.
    scoped_options: bool = False
    # Without uuids, an encoded item is hashed by its decoded content.
    decoded_without_uuids: bool = True
    # "bare": only the value. "placed": also the item's offset. "tagged": also the kind of key.
    extra_keys: Literal["bare", "placed", "tagged"] = "bare"
    # An item counts towards the block that begins where the item ends.
    past_end: bool = True
    # When hashing resumes in a later step, only the last item is considered.
    last_item_only: bool = True
    # The root is fixed if PYTHONHASHSEED is not set and the algorithm is cryptographic.
    default_root: bool = False
    # For an option that is a list with an entry per video, each entry is hashed with its video's
    # identifier.
    per_video_options: bool = False
    # An RGB image with a transparent colour is converted too.
    converts_keyed: bool = False
    # Tokens after a block may count towards the block.
    lookahead: bool = False


_0_18 = Recipe()
_0_19 = _0_18._replace(extra_keys="placed", past_end=False)
_0_27 = _0_19._replace(encoded_video=True, decoded_without_uuids=False)
_0_29 = _0_27._replace(default_root=True)
_0_30 = _0_29._replace(tensor_video=True, scoped_options=True)
_0_31 = _0_30._replace(framed=True, lenient_exif=True, extra_keys="tagged", last_item_only=False)
_0_32 = _0_31._replace(per_video_options=True)
_0_33 = _0_32._replace(lookahead=True, converts_keyed=True)

RELEASES = Releases(
    "vllm",
    Range("0.18.0", "0.18.1", _0_18),
    Range("0.19.0", "0.26.0", _0_19),
    Range("0.27.0", "0.28.0", _0_27),
    Range("0.29.0", "0.29.0", _0_29),
    Range("0.30.0", "0.30.0", _0_30),
    Range("0.31.0", "0.31.0", _0_31),
    Range("0.32.0", "0.32.0", _0_32),
    Range("0.33.0", "0.33.0", _0_33),
)
LATEST = RELEASES.latest
require = RELEASES.require


def applies_orientation(version: str) -> bool:
    """Return True for a release that applies EXIF orientation: 0.24.0 and later."""
    return is_since(version, "0.24.0rc0")  # the release candidates apply it too


def strips_billing(version: str) -> bool:
    """Return True for a release that removes Claude Code's billing line: 0.32.0 and later."""
    return is_since(version, "0.32.0rc0")
