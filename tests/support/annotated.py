"""Does what `/annotate` does, but by the library alone, for tests of what it inserts."""

import json
from typing import Any

import mmhash
from mmhash.engines.registry import find
from mmhash.requests import Document, read_for


def annotate(engine: str, body: Any) -> dict[str, Any]:
    """Return the request with a hash in each place, and each hash's key and fields."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    found, release = find(engine)
    request = read_for(Document(text), found, release)
    items = []
    for place in request.places:
        if place.path is None:
            continue
        key = mmhash.key(place.source.content())
        named = found.name_item(key, release, options=request.options(place.source.modality))
        fields = found.request_fields(named, release)
        request.fill(place, request.hash_of(place.source, fields))
        items.append({"key": key.hex(), "engines": {engine: fields}})
    return {"request": json.loads(request.write()), "items": items}
