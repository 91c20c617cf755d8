"""A host of objects with digests, such as S3 or Hugging Face's resolver, that can also lie."""

import base64
import hashlib
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Literal, Self

Style = Literal["digest", "content-digest", "s3", "s3-composite", "xet", "none"]


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def field_of(content: bytes, name: str = "sha-256") -> str:
    """Return a digest in the form of RFC 9530."""
    value = hashlib.new(name.replace("-", ""), content).digest()
    return f"{name}=:{base64.b64encode(value).decode()}:"


@dataclass
class Stored:
    """An object; `claims` is the content that its headers are about, if they lie."""

    content: bytes
    style: Style = "digest"
    etag: str | None = None
    claims: bytes | None = None
    target: str | None = None
    """A redirect to this path or URL; the headers of its style are in the redirect."""
    delay_s: float = 0.0
    """The time before the answer to a HEAD."""
    refuses_head: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    after_head: Any = None
    """Called once the answer to a HEAD is made, before it is sent: the object may change there."""

    def head(self, method: str) -> dict[str, str]:
        content = self.content if self.claims is None else self.claims
        encoded = base64.b64encode(sha256(content)).decode()
        digests: dict[Style, dict[str, str]] = {
            "digest": {"Repr-Digest": field_of(content)},
            # That of an empty content, as RFC 9530 says for a HEAD.
            "content-digest": {"Content-Digest": field_of(b"" if method == "HEAD" else content)},
            "s3": {"x-amz-checksum-sha256": encoded, "x-amz-checksum-type": "FULL_OBJECT"},
            "s3-composite": {
                "x-amz-checksum-sha256": f"{encoded}-2",
                "x-amz-checksum-type": "COMPOSITE",
            },
            "xet": {
                "X-Xet-Hash": hashlib.blake2s(content).hexdigest(),
                "X-Linked-ETag": f'"{sha256(content).hex()}"',
                "X-Linked-Size": str(len(content)),
            },
            "none": {},
        }
        etag = {} if self.etag is None else {"ETag": self.etag}
        return digests[self.style] | etag | self.headers


class ObjectStore:
    """The host, and the requests and bytes of content of each path."""

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.requests: list[tuple[str, str]] = []
        self.bytes_sent = 0
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                store._answer(self, "HEAD")

            def do_GET(self) -> None:
                store._answer(self, "GET")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def forget(self) -> None:
        """Forget the requests up to now."""
        self.requests.clear()
        self.bytes_sent = 0

    def _answer(self, handler: BaseHTTPRequestHandler, method: str) -> None:
        path, _, query = handler.path.partition("?")
        self.requests.append((method, path))
        stored = self.objects[path]
        headers = stored.head(method)
        if stored.style.startswith("s3") and "Signature=bad" in query:
            self._send(handler, 403, {}, b"")
        elif method == "HEAD" and stored.refuses_head:
            self._send(handler, 405, {}, b"")
        elif stored.target is not None:
            self._send(handler, 302, headers | {"Location": stored.target}, b"")
        elif stored.etag and handler.headers.get("If-None-Match") == stored.etag:
            self._send(handler, 304, headers, b"")
        elif method == "HEAD":
            time.sleep(stored.delay_s)
            content = stored.content
            if stored.after_head is not None:
                stored.after_head()
            self._send(handler, 200, headers, content, is_head=True)
        elif handler.headers.get("Range") == "bytes=0-0":
            headers["Content-Range"] = f"bytes 0-0/{len(stored.content)}"
            self._send(handler, 206, headers, stored.content[:1])
        else:
            self._send(handler, 200, headers, stored.content)

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        content: bytes,
        *,
        is_head: bool = False,
    ) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if status != 304:
            handler.send_header("Content-Length", str(len(content)))
        # Counted first: a client that has the answer may read the count at once.
        self.bytes_sent += 0 if is_head else len(content)
        handler.end_headers()
        if not is_head:
            handler.wfile.write(content)
