"""Loaded by schemathesis: keeps waits short, ends WebSockets, leaves out what cannot be sent."""

import requests
import schemathesis

# The longest wait that is sent. A larger one that fits the document is cut to this, which fits as well.
WAIT_MS = 20
# The longest that fits, an hour; an idempotency takes any.
MOST_MS = 3_600_000

_send = requests.Session.send


def send(session, request, **options):
    """Sends a request; an upgraded connection has no end, so only its head is read."""
    response = _send(session, request, **{**options, "stream": True})
    if response.status_code == 101:
        response.close()
        response._content = b""
    elif not options.get("stream"):
        response.content  # Reads it.
    return response


requests.Session.send = send


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if isinstance(body, dict):
        wait = body.get("wait_ms")
        if isinstance(wait, (int, float)) and not isinstance(wait, bool) and wait > WAIT_MS:
            if wait <= MOST_MS or "/idempotency/" in case.path:
                body["wait_ms"] = WAIT_MS


@schemathesis.hook
def filter_case(context, case):
    """Leaves out a query with an empty list or object: nothing of it is sent, so that the rest may well fit."""
    return all(value not in ([], {}) for value in (case.query or {}).values())
