"""A server that sends scripted responses."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self

# The status, headers and body; None closes the connection.
Answer = tuple[int, dict[str, str], bytes] | None


class ScriptedServer:
    """A server that sends these responses in turn, and then repeats the last one.

    `by_path` gives the responses of single paths.
    """

    def __init__(self, *answers: Answer, by_path: dict[str, Answer] | None = None) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        recorder, left, own = self, list(answers), by_path or {}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                recorder.bodies.append(self.rfile.read(length))
                self._answer()

            def do_GET(self) -> None:
                recorder.bodies.append(b"")
                self._answer()

            def _answer(self) -> None:
                recorder.paths.append(self.path)
                recorder.authorizations.append(self.headers["authorization"])
                if self.path in own:
                    answer = own[self.path]
                else:
                    answer = left.pop(0) if len(left) > 1 else left[0]
                if answer is None:
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
