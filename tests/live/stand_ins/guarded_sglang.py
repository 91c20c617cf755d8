"""SGLang's server with the switched guard in front of it."""

import sys

from sglang.srt.entrypoints.http_server import app, launch_server
from sglang.srt.server_args import prepare_server_args

from tests.live.stand_ins.switched_guard import SwitchedGuard

if __name__ == "__main__":
    SwitchedGuard(app)  # as the documented launcher does
    app.add_middleware(SwitchedGuard)
    launch_server(prepare_server_args(sys.argv[1:]))
