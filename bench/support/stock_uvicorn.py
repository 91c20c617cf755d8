"""A handler that only counts the bytes of a body, on uvicorn as its users run it.

`python -m bench.support.stock_uvicorn ADDRESS` serves a port of this machine or a socket's path.
"""

import sys

import uvicorn
from fastapi import FastAPI, Request

app = FastAPI()


@app.post("/count")
async def count(request: Request) -> dict[str, int]:
    """Receive the body and return its length."""
    nbytes = 0
    async for piece in request.stream():
        nbytes += len(piece)
    return {"nbytes": nbytes}


@app.get("/health")
async def health() -> dict[str, str]:
    """Answer while bodies are received."""
    return {"status": "ok"}


if __name__ == "__main__":
    address = sys.argv[1]
    if "/" in address:
        uvicorn.run(app, uds=address, access_log=False)
    else:
        uvicorn.run(app, port=int(address), access_log=False)
