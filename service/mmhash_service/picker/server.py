"""The gRPC server of a picker process: its port, its health, its shutdown."""

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from mmhash_service.gateway.resources import GatewayResources
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.models import Models
from mmhash_service.picker import ext_proc
from mmhash_service.picker.messages import SERVICE
from mmhash_service.picker.picker import Picker
from mmhash_service.settings import Settings

_HEALTH = ("", "liveness", "readiness", SERVICE)

# gRPC need not limit messages: Envoy does, and the picker answers 413 if a body exceeds its
# setting.
_OPTIONS = (
    ("grpc.so_reuseport", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


class PickerResources(GatewayResources):
    """The resources of a gateway, and the gRPC server that answers Envoy."""

    def __init__(
        self, settings: Settings, gateway: GatewaySettings, models: Models | None = None
    ) -> None:
        super().__init__(settings, gateway, models, needs_workers=True)
        self._gateway = gateway
        self._picker = Picker(self, gateway)
        # Created by open(), because it belongs to an event loop.
        self._server: Any = None

    async def open(self) -> None:
        """Find the workers, then accept streams."""
        await super().open()
        self._server = server = grpc.aio.server(options=_OPTIONS)
        method = grpc.stream_stream_rpc_method_handler(
            self._picker.process,
            request_deserializer=ext_proc.ProcessingRequest.FromString,
            response_serializer=ext_proc.ProcessingResponse.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler(SERVICE, {"Process": method})
        server.add_generic_rpc_handlers((handler,))
        health_pb2_grpc.add_HealthServicer_to_server(_Health(self), server)
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        address = f"{host}:{self.settings.port}"
        folder = self._gateway.picker_tls
        if folder is None:
            server.add_insecure_port(address)
        else:
            pair = (folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes()
            server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        await server.start()

    async def close(self) -> None:
        """Answer the requests that have arrived, and end all other streams."""
        self._picker.stop()
        await self._server.stop(self.settings.grace_s)
        await super().close()


class _Health(health.aio.HealthServicer):  # type: ignore[misc]  # (without types)
    """The picker's health over gRPC: whether the process lives, and whether a worker is healthy."""

    def __init__(self, resources: GatewayResources) -> None:
        super().__init__()
        self._resources = resources

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        """Return the current status of a service."""
        status = health_pb2.HealthCheckResponse
        lacks = self._resources.lacks_workers
        for name in _HEALTH:
            is_serving = name == "liveness" or not lacks
            await self.set(name, status.SERVING if is_serving else status.NOT_SERVING)
        return await super().Check(request, context)
