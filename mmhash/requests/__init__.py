"""Requests for engines: opened once, their media listed, and written back with hashes.

A `Document` is a request as it came. An `EngineRequest` is the document as one engine reads it:
without the caller's hashes, and with a place for each hash of ours.
"""

from mmhash.requests.document import Document, Form, ShortText
from mmhash.requests.engine_request import (
    EngineRequest,
    MediaPart,
    Place,
    UnplannedError,
    UnreadableUrlError,
)
from mmhash.requests.forms import COUNTING_PATHS, PATHS, form_of_path, read_for
from mmhash.requests.media_source import MediaSource, Modality
from mmhash.requests.raw_json import RequestError

__all__ = [
    "COUNTING_PATHS",
    "PATHS",
    "Document",
    "EngineRequest",
    "Form",
    "MediaPart",
    "MediaSource",
    "Modality",
    "Place",
    "RequestError",
    "ShortText",
    "UnplannedError",
    "UnreadableUrlError",
    "form_of_path",
    "read_for",
]
