"""flow.py ADDRESS: calls a fresh `quaymaster serve` through the client that openapi-python-client generates.

Every answer is checked by its generated type and by its values.
"""

import base64
import hashlib
import sys
import time
from io import BytesIO
from typing import Any, TypeVar

from quaymaster_client import Client
from quaymaster_client.api.idempotency import idempotency_begin, idempotency_finish
from quaymaster_client.api.limit import limit_peek, limit_take
from quaymaster_client.api.lock import lock_acquire, lock_release
from quaymaster_client.api.queue import queue_ack, queue_claim, queue_peek, queue_push
from quaymaster_client.api.upload import upload_chunk, upload_content, upload_create, upload_show
from quaymaster_client.models import (
    IdempotencyBegin,
    IdempotencyBeginKey,
    IdempotencyBegunFinished,
    IdempotencyBegunInProgress,
    IdempotencyBegunMismatch,
    IdempotencyBegunStarted,
    IdempotencyFinish,
    IdempotencyFinishedFinished,
    IdempotencyFinishedLost,
    IdempotencyFinishKey,
    LimitAnswer,
    LimitCharge,
    LimitChargeKey,
    LimitPeekKey,
    LockAcquire,
    LockAcquiredHeld,
    LockAcquiredOurs,
    LockAcquireKey,
    LockRelease,
    LockReleasedLost,
    LockReleasedReleased,
    LockReleaseKey,
    Problem,
    QueueAck,
    QueueAcked,
    QueueClaim,
    QueueClaimed,
    QueuePeeked,
    QueuePushed,
    QueuePush,
    UploadChunk,
    UploadCreate,
    UploadCreated,
    UploadCreatedOutcome,
    UploadPhase,
    UploadState,
)
from quaymaster_client.types import UNSET, File

T = TypeVar("T")

SECOND_MS = 1000
MIB = 1024 * 1024


def is_a(kind: type[T], answer: object) -> T:
    """The answer, which must be of this generated type."""
    assert isinstance(answer, kind), f"expected {kind.__name__}, got {answer!r}"
    return answer


def equal(found: object, expected: object) -> None:
    assert found == expected, f"expected {expected!r}, got {found!r}"


def within(found: int, least: int, most: int) -> None:
    assert least <= found <= most, f"expected {least} to {most}, got {found}"


def limits(client: Client) -> None:
    def take(cost: int) -> LimitAnswer:
        charge = LimitCharge(key=LimitChargeKey.from_dict({"transaction_id": "py-1"}), cost=cost)
        return is_a(LimitAnswer, limit_take.sync("transaction", client=client, body=charge))

    taken = take(3)
    equal((taken.allowed, taken.limit, taken.used, taken.remaining), (True, 10, 3, 7))
    equal((taken.retry_after_ms, taken.outage), (0, UNSET))
    within(taken.reset_after_ms, 1, 300 * SECOND_MS)

    refused = take(8)
    equal((refused.allowed, refused.used, refused.remaining), (False, 3, 7))
    within(is_a(int, refused.retry_after_ms), 1, 300 * SECOND_MS)
    equal(take(11).retry_after_ms, None)

    # The generator ignores `style: deepObject` and writes an object's fields as parameters of their own.
    key = LimitPeekKey.from_dict({"key.transaction_id": "py-1"})
    peeked = is_a(LimitAnswer, limit_peek.sync("transaction", client=client, key=key))
    equal((peeked.allowed, peeked.limit, peeked.used, peeked.remaining), (True, 10, 3, 7))

    charge = LimitCharge(key=LimitChargeKey.from_dict({"transaction_id": "py-1"}))
    missing = limit_take.sync_detailed("nowhere", client=client, body=charge)
    problem = is_a(Problem, missing.parsed)
    equal((missing.status_code, problem.status), (404, 404))
    assert "nowhere" in problem.detail, problem.detail


def queues(client: Client) -> None:
    def push(payload: Any, **fields: Any) -> QueuePushed:
        body = QueuePush(payload=payload, **fields)
        return is_a(QueuePushed, queue_push.sync("detection_queue", client=client, body=body))

    payload = {"camera_id": "front_door", "sizes": [1, 2.5, None]}
    pushed = push(payload, id="py-job")
    equal((pushed.accepted, pushed.queue_length, pushed.moved_to_dlq, pushed.dropped), (1, 1, 0, 0))
    equal(pushed.duplicate, UNSET)
    again = push(payload, id="py-job")
    equal((again.accepted, again.queue_length, again.duplicate), (0, 1, True))

    peeked = is_a(QueuePeeked, queue_peek.sync("detection_queue", client=client, count=5))
    equal(peeked.items, [payload])

    def claim() -> QueueClaimed:
        body = QueueClaim(count=2, lease_ms=30 * SECOND_MS, worker="py")
        return is_a(QueueClaimed, queue_claim.sync("detection_queue", client=client, body=body))

    (job,) = claim().jobs
    equal((job.payload, job.attempt), (payload, 1))
    within(job.lease_expires_in_ms, 1, 30 * SECOND_MS)
    equal(claim().jobs, [])

    def ack() -> QueueAcked:
        return is_a(QueueAcked, queue_ack.sync("detection_queue", client=client, body=QueueAck(leases=[job.lease])))

    acked = ack()
    equal((acked.acked, acked.lost, acked.jobs), (1, 0, UNSET))
    lost = ack()
    equal((lost.acked, lost.lost), (0, 1))


def locks(client: Client) -> None:
    key = {"transaction_id": "py-1"}

    def acquire() -> object:
        body = LockAcquire(key=LockAcquireKey.from_dict(key), owner="py")
        return lock_acquire.sync("update", client=client, body=body)

    ours = is_a(LockAcquiredOurs, acquire())
    equal((ours.outcome, ours.outage), ("ours", UNSET))
    within(ours.fence, 1, 2**53)
    within(ours.expires_in_ms, 1, 30 * SECOND_MS)
    held = is_a(LockAcquiredHeld, acquire())
    equal((held.outcome, held.owner), ("held", "py"))
    within(held.retry_after_ms, 1, 30 * SECOND_MS)

    def release() -> object:
        body = LockRelease(key=LockReleaseKey.from_dict(key), token=ours.token)
        return lock_release.sync("update", client=client, body=body)

    equal(is_a(LockReleasedReleased, release()).outcome, "released")
    equal(is_a(LockReleasedLost, release()).outcome, "lost")
    after = is_a(LockAcquiredOurs, acquire())
    assert after.fence > ours.fence, (after.fence, ours.fence)


def idempotency(client: Client) -> None:
    key = {"psp_transaction_id": "py-1"}

    def begin(fingerprint: str) -> object:
        body = IdempotencyBegin(key=IdempotencyBeginKey.from_dict(key), fingerprint=fingerprint)
        return idempotency_begin.sync("create", client=client, body=body)

    started = is_a(IdempotencyBegunStarted, begin("100 EUR"))
    equal(started.outcome, "started")
    within(started.expires_in_ms, 1, 24 * 3600 * SECOND_MS)
    running = is_a(IdempotencyBegunInProgress, begin("100 EUR"))
    equal(running.outcome, "in_progress")
    within(running.retry_after_ms, 1, 24 * 3600 * SECOND_MS)
    equal(is_a(IdempotencyBegunMismatch, begin("200 EUR")).outcome, "mismatch")

    response = {"status": "CREATED", "amount": 100}

    def finish(token: str) -> object:
        body = IdempotencyFinish(key=IdempotencyFinishKey.from_dict(key), token=token, response=response)
        return idempotency_finish.sync("create", client=client, body=body)

    finished = is_a(IdempotencyFinishedFinished, finish(started.token))
    equal((finished.outcome, finished.kept), ("finished", True))
    equal(is_a(IdempotencyFinishedLost, finish("another")).outcome, "lost")
    replayed = is_a(IdempotencyBegunFinished, begin("100 EUR"))
    equal((replayed.outcome, replayed.kept, replayed.response), ("finished", True, response))


def uploads(client: Client) -> None:
    content = b"hello from Python\x00\xff\n"

    def create() -> UploadCreated:
        body = UploadCreate(
            name="hello.bin", size=len(content), mime_type="application/octet-stream", idempotency_key="py-1"
        )
        return is_a(UploadCreated, upload_create.sync("documents", client=client, body=body))

    created = create()
    equal(created.outcome, UploadCreatedOutcome.CREATED)
    equal((created.chunk_min_bytes, created.chunk_max_bytes), (5 * MIB, 100 * MIB))
    again = create()
    equal((again.outcome, again.upload_id), (UploadCreatedOutcome.EXISTING, created.upload_id))

    def chunk(digested: bytes) -> object:
        digest = base64.b64encode(hashlib.sha256(digested).digest()).decode()
        return upload_chunk.sync(
            "documents",
            created.upload_id,
            0,
            client=client,
            body=File(payload=BytesIO(content)),
            last=True,
            content_digest=f"sha-256=:{digest}:",
        )

    equal(is_a(Problem, chunk(b"something else")).status, 422)
    sent = is_a(UploadChunk, chunk(content))
    equal((sent.upload_id, sent.node_id), (created.upload_id, created.node_id))
    equal((sent.chunk_number, sent.received_chunks, sent.total_chunks), (0, 1, 1))

    def show() -> UploadState:
        return is_a(UploadState, upload_show.sync("documents", created.upload_id, client=client))

    deadline = time.monotonic() + 60
    while (state := show()).status != UploadPhase.COMPLETED:
        assert time.monotonic() < deadline, f"not completed: {state!r}"
    equal((state.status, state.final_size, state.resend), (UploadPhase.COMPLETED, len(content), []))
    read = is_a(File, upload_content.sync("documents", created.upload_id, client=client))
    equal(read.payload.read(), content)


def main() -> None:
    with Client(base_url=sys.argv[1], raise_on_unexpected_status=True) as client:
        for part in (limits, queues, locks, idempotency, uploads):
            part(client)
            print(f"python: {part.__name__}: as expected")


main()
