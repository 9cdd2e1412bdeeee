"""Why no connection came about, in words: what the SDK's core says of its transport, and what to do about it.

The core tells a failed connection in the debugging text of its own libraries, and the caller would look for a server
that is off where a certificate has expired, a key is wrong or the port is another one.
"""

import re
from collections.abc import Mapping
from typing import Any

_ABSENT = "Start one with `baton dev`, or name another with --address, TEMPORAL_ADDRESS or a profile in temporal.toml"
_ADDRESS = "write TEMPORAL_ADDRESS, or the profile's address, as host:port, for example localhost:7233"
_AUTHORITY = "name the certificate of the authority that signed it: TEMPORAL_TLS_SERVER_CA_CERT_PATH"
_CREDENTIALS = "check TEMPORAL_API_KEY, or the certificate of TEMPORAL_TLS_CLIENT_CERT_PATH and its dates"
_PAIR = "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH name a PEM certificate and its unencrypted key"
_WANTS_TLS = "does it want TLS? TEMPORAL_TLS=true or a table `tls` in the profile switches it on"
_WANTS_CERTIFICATE = (
    "does it want a client certificate, or another one? "
    "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH name one"
)

_FAULTS: tuple[tuple[str, str, str], ...] = (
    (r"invalid target URL: (.+)", "this is not an address ({})", _ADDRESS),
    (r"HttpsUriWithoutTlsSupport", "the address is a URL", f"{_ADDRESS}; TEMPORAL_TLS=true switches TLS on"),
    (r"both client cert and private key", "a client certificate without its key, or a key without one", _PAIR),
    (r"PrivateKeyParseError|CertificateParseError", "the client's certificate or key cannot be read", _PAIR),
    (r"KeyMismatch", "the client's key is not that of its certificate", _PAIR),
    (r"AlertReceived\((\w+)\)", "the service refuses this client ({})", _CREDENTIALS),
    (r"InvalidCertificate\(Expired", "the service's certificate has expired", "renew it, or set this machine's clock"),
    (r"InvalidCertificate\(NotValidYet", "the service's certificate is not valid yet", "set this machine's clock"),
    (
        r"InvalidCertificate\(NotValidForName.*presented: \[\"?\w+\(\W*([\w.*:-]+)",
        "the service's certificate is for another name, {!r}",
        "connect by that name, or give it as TEMPORAL_TLS_SERVER_NAME",
    ),
    (
        r"InvalidCertificate\(UnknownIssuer",
        "the service's certificate is of an authority that is not trusted here",
        _AUTHORITY,
    ),
    (r"InvalidCertificate\((\w+)", "the service's certificate does not hold ({})", _AUTHORITY),
    (
        r"InvalidMessage\(",
        "it speaks no TLS at this port",
        "name another port, or leave TLS out: TEMPORAL_TLS=false does, where a key or a profile switched it on",
    ),
    (r"code: (?:Unauthenticated|PermissionDenied), message: \"([^\"]*?)\.?\"", "it refuses: {}", _CREDENTIALS),
    (r"response with status: (40[013] [\w ]+)", "a proxy before it answers {}", _CREDENTIALS),
    (r"response with status: (\d+ [\w ]+)", "a proxy answers {}", "see to it that it leads to a service that runs"),
    (r"dns error", "the host's name is not known", "check the address, and this machine's name service"),
)
"""What the core's text shows, what it means, and what to do; the first that fits counts."""

_CLOSED = r"transport error|operation was canceled|http2 error"
_SYSTEM = r'message: "([^"]+)"'


def connection_fault(error: Exception, settings: Mapping[str, Any]) -> str:
    """Return the line about a connection that failed: where to, why, and what to do."""
    address, said = settings["target_host"], str(error)
    where = f"{address} (namespace {settings['namespace']!r})"
    for sign, meaning, remedy in _FAULTS:
        if found := re.search(sign, said):
            return f"no connection to {where}: {meaning.format(*found.groups())}; {remedy}"
    if not re.search(r":\d+$", address):
        return f"no connection to {where}: the address has no port; {_ADDRESS}"
    if re.search(_CLOSED, said):
        wanted = _WANTS_CERTIFICATE if settings.get("tls") or settings.get("api_key") else _WANTS_TLS
        return f"no connection to {where}: it was closed before the service answered; {wanted}"
    innermost = re.findall(_SYSTEM, said)
    return f"no Temporal server answers at {where}: {innermost[-1] if innermost else said}. {_ABSENT}"
