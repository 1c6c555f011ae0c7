"""Ray: an embedded one for as long as it is needed, or a cluster that is there already."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dcnn.errors import InputError

#: Seconds to wait for an answer, once from the port and once from the service behind it.
PATIENCE = 10.0

#: Nothing goes online by default, and a run without a GPU does not hide the machine's.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_WAIT_POLICY": "PASSIVE",
}


@contextmanager
def connected(on: str, cpus: int) -> Iterator[Any]:
    """The module ray, connected to what `on` names: "ray", "ray:HOST:PORT" or "ray://HOST:PORT".

    "ray" starts an embedded Ray with `cpus` slots and ends it afterwards, unless $RAY_ADDRESS names a cluster. A
    connection that is there already is used and left open.
    """
    address = address_of(on)
    for name, value in (_ENVIRONMENT if address is None else _ENVIRONMENT | _token()).items():
        os.environ.setdefault(name, value)
    try:
        import grpc
        import ray
    except ImportError as error:
        raise InputError(f"--on {on}: {error}; install Ray with pip install 'dcnn[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        embedded: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": 100 * 2**20}
        ray.init(address="local", **embedded, **options)
    else:
        _knock(address, grpc)
        try:
            ray.init(address=address, **options)
        except Exception as error:  # Ray has many words for a cluster that it cannot join
            raise InputError(f"Ray at {address} cannot be joined: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _token() -> dict[str, str]:
    """Settings with which a token of this machine is shown to a cluster; one without tokens takes no notice.

    A head asks for a token as soon as it has one, but Ray shows its own only if it is told to.
    """
    given = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return {"RAY_AUTH_MODE": "token"} if given or (Path.home() / ".ray" / "auth_token").is_file() else {}


def address_of(on: str) -> str | None:
    """HOST:PORT or ray://HOST:PORT of a cluster; None for an embedded Ray.

    >>> address_of("ray:10.0.0.7:6379"), address_of("ray://head:10001")
    ('10.0.0.7:6379', 'ray://head:10001')
    """
    address = on if on.startswith("ray://") else on.removeprefix("ray").removeprefix(":")
    address = address or os.environ.get("RAY_ADDRESS", "")
    if address in ("", "local"):
        return None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"--on {on}: {address!r} is not HOST:PORT, for example ray:10.0.0.7:6379 or ray://head:10001")
    return address


def _knock(address: str, grpc: Any) -> None:
    """Ray itself waits for minutes, or for ever, at an address behind which there is no Ray."""
    place = address.removeprefix("ray://")
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        if not os.environ.get("RAY_USE_TLS"):  # the certificates are Ray's own affair
            with grpc.insecure_channel(place) as channel:
                grpc.channel_ready_future(channel).result(timeout=PATIENCE)
    except (OSError, OverflowError, grpc.FutureTimeoutError) as error:
        reason = str(error) or "something listens there that does not speak Ray's language"
        raise InputError(f"Ray at {address} does not answer ({reason}); is it up, and the port right?") from None
