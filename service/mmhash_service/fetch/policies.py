"""Policies of hosts whose digests identify content without a download: `url_identity`."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from mmhash_service.fetch.hosts import HostAllowlist
from mmhash_service.fetch.identity import Source

_Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}\*?$")]


class IdentityPolicy(BaseModel):
    """The digests of a host that may identify content, and the request that reads them."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    digests: frozenset[Source] = Field(min_length=1)
    request: Literal["head", "range"] = "head"
    # Names of query parameters that do not change the content, such as X-Amz-*.
    drop_parameters: tuple[_Pattern, ...] = ()

    def name_of(self, url: httpx.URL) -> str:
        """Return the URL without these parameters: the name of its content in the memo.

        The requests still have them, so that the host checks a signature at each one.
        """
        path, mark, query = url.raw_path.decode("ascii").partition("?")
        if not mark or not self.drop_parameters:
            return str(url)
        # Compared as they are spelled: an escaped name is not dropped, which is only a miss.
        kept = [part for part in query.split("&") if not self._drops(part.partition("=")[0])]
        target = f"{path}?{'&'.join(kept)}" if kept else path
        return str(url.copy_with(raw_path=target.encode("ascii")))

    def headers(self, url: httpx.URL) -> list[tuple[str, str]]:
        """Return the headers that the host needs to send its digests."""
        # S3 refuses an x-amz- header that the signature of a presigned URL does not cover.
        is_signed = b"x-amz-signature=" in url.query.lower()
        return [] if "s3" not in self.digests or is_signed else [("x-amz-checksum-mode", "ENABLED")]

    def _drops(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.drop_parameters)


class IdentityPolicies:
    """The setting: policies by host, in the form of `url_hosts`."""

    def __init__(self, policies: Mapping[str, IdentityPolicy]) -> None:
        self._policies = [(HostAllowlist([host]), policy) for host, policy in policies.items()]

    def find(self, url: httpx.URL) -> IdentityPolicy | None:
        """Return the policy of an allowed URL; None if its host has none."""
        return next((policy for hosts, policy in self._policies if hosts.has(url)), None)
