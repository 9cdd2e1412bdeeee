"""Runs the codec server of a deployment: it shows the Temporal UI what workers compressed and encrypted.

Operators' browsers call it, so it must be reached from there, and only from there. Settings:
`BATON_CODEC_PORT` (8081), `BATON_CODEC_ORIGINS` (where the UI is opened, comma-separated; required) and
`BATON_CODEC_TOKEN` (callers must then send it as bearer token). With `BATON_ENCRYPT` it takes the keys that the
workers have (`BATON_KEYS`).
"""

import asyncio
import os
import signal
import sys

from baton.codec.encryption import is_encryption_enabled
from baton.codec.server import codecs_for, serve_codec
from baton.errors import ServerError
from baton.keys.store_keyring import Keyring, KeyringError


async def serve(keyring: Keyring | None, port: int, origins: list[str], token: str | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Inside a container every address is the container's own; which of the host's reach it, compose decides.
    async with serve_codec(codecs_for(keyring), origins=origins, host="0.0.0.0", port=port, token=token) as url:  # noqa: S104
        print(f"codec server at {url} for {', '.join(origins)}", flush=True)
        if keyring is not None and token is None:
            print("it decrypts for everybody who reaches it: set BATON_CODEC_TOKEN, or see who does", file=sys.stderr)
        await stop.wait()


def main() -> int:
    """Run the server; return the exit code: 0 stopped as asked, 2 wrong settings or keys, 3 the port is taken."""
    port = os.environ.get("BATON_CODEC_PORT", "8081")
    origins = [one.strip() for one in os.environ.get("BATON_CODEC_ORIGINS", "").split(",") if one.strip()]
    if not origins or not port.isdigit():
        print(
            "codec_server.py: set BATON_CODEC_ORIGINS to where the UI is opened, for example "
            f"http://localhost:8080, and BATON_CODEC_PORT to a port; found {origins!r} and {port!r}",
            file=sys.stderr,
        )
        return 2
    try:
        keyring = Keyring.from_environment(os.environ) if is_encryption_enabled(os.environ) else None
        asyncio.run(serve(keyring, int(port), origins, os.environ.get("BATON_CODEC_TOKEN") or None))
    except KeyringError as error:
        print(f"codec_server.py: {error}", file=sys.stderr)
        return 2
    except (ServerError, ValueError) as error:
        print(f"codec_server.py: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
