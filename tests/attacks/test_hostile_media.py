"""Videos and audio clips whose index lies, to cost time or memory, or to open other files.

The library reads indexes without a decoder, and refuses with errors of its own.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

import mmhash
from mmhash.errors import InputError
from tests.support.clips import make_audio, make_video

HUGE = 0xFFFF_FFF0


def patched(name: bytes, offset: int, *values: int) -> bytes:
    """Return an MP4 with other 32-bit numbers in the box of that name."""
    file = bytearray(make_video("h264.mp4"))
    at = file.index(name) + 4 + offset
    struct.pack_into(f">{len(values)}I", file, at, *values)
    return bytes(file)


def box(kind: bytes, content: bytes = b"", size: int | None = None) -> bytes:
    length = 8 + len(content) if size is None else size
    return struct.pack(">I4s", length, kind) + content


def nested(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        content = box(b"moov", content)
    return box(b"ftyp", b"isom\0\0\0\0isom") + content


def cyclic_seek_head() -> bytes:
    """A Matroska file whose SeekHead names itself."""
    seek = bytes.fromhex("4dbb 8e 53ab84 114d9b74 53ac84 00000000".replace(" ", ""))
    head = bytes.fromhex("114d9b74") + bytes([0x80 | len(seek)]) + seek
    ebml = bytes.fromhex("1a45dfa3 a3 4286 81 01 42f7 81 01 42f2 81 04 42f3 81 08".replace(" ", ""))
    ebml += bytes.fromhex("4282 88") + b"matroska" + bytes.fromhex("4287 81 04 4285 81 02")
    return ebml + bytes.fromhex("18538067 01ffffffffffffff".replace(" ", "")) + head * 50


def bombs() -> dict[str, Callable[[], bytes]]:
    whole = make_video("h264.mp4")
    return {
        "empty": lambda: b"",
        "text": lambda: b"no media",
        "no moov": lambda: whole[: whole.index(b"moov") - 4],
        "half of the index": lambda: whole[: (whole.index(b"moov") + len(whole)) // 2],
        "time base zero": lambda: patched(b"mdhd", 12, 0),
        "billions of frames of one size": lambda: patched(b"stsz", 4, 1, HUGE),
        "billions of sizes": lambda: patched(b"stsz", 8, HUGE),
        "billions of chunks": lambda: patched(b"stsc", 4, HUGE),
        "billions of time entries": lambda: patched(b"stts", 4, HUGE),
        "a frame lasts for ever": lambda: patched(b"stts", 8, HUGE, HUGE),
        "offsets behind the end": lambda: patched(b"stco", 8, HUGE),
        "boxes of length zero": lambda: (
            box(b"ftyp", b"isom\0\0\0\0isom") + box(b"moov", size=8) * 9
        ),
        "boxes within boxes": lambda: nested(20_000),
        "a box longer than the file": lambda: box(b"ftyp", b"isom") + box(b"moov", size=1 << 31),
        "a cyclic SeekHead": cyclic_seek_head,
        "an unknown codec": lambda: whole.replace(b"avc1", b"zzzz"),
        "no codec": lambda: whole.replace(b"avc1", bytes(4)),
        "an unknown codec of Matroska": lambda: make_video("vp9.webm").replace(b"V_VP9", b"V_VPX"),
    }


def peak_memory() -> int:
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024


BOMBS = bombs()
PLAYLISTS = {
    "hls": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    "concat": b"ffconcat version 1.0\nfile '{}'\n",
    "dash": b'<?xml version="1.0"?><MPD><Period><BaseURL>file:{}</BaseURL></Period></MPD>',
    "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_damaged_file_is_refused_or_decoded(name: str) -> None:
    before = peak_memory()
    with suppress(mmhash.MMHashError):
        assert len(mmhash.video(BOMBS[name](), count=4).recipe.indices) == 4
    assert peak_memory() - before < 64 << 20


@pytest.mark.parametrize("name", PLAYLISTS)
def test_a_playlist_opens_nothing(tmp_path: Path, name: str) -> None:
    film = tmp_path / "secret.mp4"
    film.write_bytes(make_video("h264.mp4"))
    body = PLAYLISTS[name].replace(b"{}", str(film).encode())
    (tmp_path / "list").write_bytes(body)
    with pytest.raises(InputError):
        mmhash.video(tmp_path / "list")


def test_an_unknown_codec_of_audio_is_refused() -> None:
    clip = bytearray(make_audio("pcm.wav"))
    clip[20:22] = b"\xee\xee"  # the format of its samples
    with pytest.raises(InputError):
        mmhash.audio(bytes(clip))
