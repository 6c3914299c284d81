// flow.ts ADDRESS: calls a fresh `quaymaster serve` through openapi-fetch, typed by openapi-typescript.
//
// The compiler checks requests and answers against the document; the program checks the values.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import createClient from "openapi-fetch";

import type { components, paths } from "./api.js";

type Schemas = components["schemas"];

const SECOND_MS = 1000;
const MIB = 1024 * 1024;

const address = process.argv[2];
assert.ok(address, "usage: flow.ts ADDRESS");
const client = createClient<paths>({ baseUrl: address });

/** The answer of a call that must not be refused. */
async function answered<Data>(call: Promise<{ data?: Data; error?: Schemas["Problem"] }>): Promise<Data> {
  const { data, error } = await call;
  assert.ok(data !== undefined, `refused: ${JSON.stringify(error)}`);
  return data;
}

/** The answer with this outcome, as the type that belongs to it. */
function outcome<Answer extends { outcome: string }, Word extends Answer["outcome"]>(
  answer: Answer,
  word: Word,
): Extract<Answer, { outcome: Word }> {
  assert.equal(answer.outcome, word);
  return answer as Extract<Answer, { outcome: Word }>;
}

function within(found: number, least: number, most: number): void {
  assert.ok(least <= found && found <= most, `expected ${least} to ${most}, got ${found}`);
}

async function limits(): Promise<void> {
  const key = { transaction_id: "ts-1" };
  const path = { name: "transaction" };
  const take = (cost: number): Promise<Schemas["LimitAnswer"]> =>
    answered(client.POST("/v1/limit/{name}/take", { params: { path }, body: { key, cost } }));

  const taken = await take(3);
  const { reset_after_ms, ...rest } = taken;
  assert.deepEqual(rest, { allowed: true, limit: 10, used: 3, remaining: 7, retry_after_ms: 0 });
  within(reset_after_ms, 1, 300 * SECOND_MS);

  const refused = await take(8);
  assert.deepEqual([refused.allowed, refused.used, refused.remaining], [false, 3, 7]);
  assert.ok(refused.retry_after_ms !== null);
  within(refused.retry_after_ms, 1, 300 * SECOND_MS);
  assert.equal((await take(11)).retry_after_ms, null);

  const peeked = await answered(client.GET("/v1/limit/{name}/peek", { params: { path, query: { key } } }));
  assert.deepEqual([peeked.allowed, peeked.limit, peeked.used, peeked.remaining], [true, 10, 3, 7]);

  const missing = await client.POST("/v1/limit/{name}/take", {
    params: { path: { name: "nowhere" } },
    body: { key },
  });
  assert.equal(missing.data, undefined);
  assert.deepEqual([missing.response.status, missing.error?.status], [404, 404]);
  assert.match(missing.error?.detail ?? "", /nowhere/);
}

async function queues(): Promise<void> {
  const params = { path: { name: "detection_queue" } };
  const payload = { camera_id: "front_door", sizes: [1, 2.5, null] };
  const push = (): Promise<Schemas["QueuePushed"]> =>
    answered(client.POST("/v1/queue/{name}/push", { params, body: { payload, id: "ts-job" } }));

  assert.deepEqual(await push(), { accepted: 1, queue_length: 1, moved_to_dlq: 0, dropped: 0 });
  const again = await push();
  assert.deepEqual([again.accepted, again.queue_length, again.duplicate], [0, 1, true]);

  const peeked = await answered(
    client.GET("/v1/queue/{name}/peek", { params: { ...params, query: { count: 5 } } }),
  );
  assert.deepEqual(peeked.items, [payload]);

  const claim = (): Promise<Schemas["QueueClaimed"]> =>
    answered(
      client.POST("/v1/queue/{name}/claim", {
        params,
        body: { count: 2, lease_ms: 30 * SECOND_MS, worker: "ts" },
      }),
    );
  const { jobs } = await claim();
  const job: Schemas["QueueJob"] | undefined = jobs[0];
  assert.ok(job !== undefined && jobs.length === 1);
  assert.deepEqual(job.payload, payload);
  assert.equal(job.attempt, 1);
  within(job.lease_expires_in_ms, 1, 30 * SECOND_MS);
  assert.deepEqual((await claim()).jobs, []);

  const ack = (): Promise<Schemas["QueueAcked"]> =>
    answered(client.POST("/v1/queue/{name}/ack", { params, body: { leases: [job.lease] } }));
  assert.deepEqual(await ack(), { acked: 1, lost: 0 });
  assert.deepEqual(await ack(), { acked: 0, lost: 1 });
}

async function locks(): Promise<void> {
  const params = { path: { name: "update" } };
  const key = { transaction_id: "ts-1" };
  const acquire = (): Promise<Schemas["LockAcquired"]> =>
    answered(client.POST("/v1/lock/{name}/acquire", { params, body: { key, owner: "ts" } }));

  const ours = outcome(await acquire(), "ours");
  within(ours.fence, 1, Number.MAX_SAFE_INTEGER);
  within(ours.expires_in_ms, 1, 30 * SECOND_MS);
  const held = outcome(await acquire(), "held");
  assert.equal(held.owner, "ts");
  within(held.retry_after_ms, 1, 30 * SECOND_MS);

  const release = (): Promise<Schemas["LockReleased"]> =>
    answered(client.POST("/v1/lock/{name}/release", { params, body: { key, token: ours.token } }));
  assert.deepEqual(await release(), { outcome: "released" });
  assert.deepEqual(await release(), { outcome: "lost" });
  assert.ok(outcome(await acquire(), "ours").fence > ours.fence);
}

async function idempotency(): Promise<void> {
  const params = { path: { name: "create" } };
  const key = { psp_transaction_id: "ts-1" };
  const begin = (fingerprint: string): Promise<Schemas["IdempotencyBegun"]> =>
    answered(client.POST("/v1/idempotency/{name}/begin", { params, body: { key, fingerprint } }));

  const started = outcome(await begin("100 EUR"), "started");
  within(started.expires_in_ms, 1, 24 * 3600 * SECOND_MS);
  const running = outcome(await begin("100 EUR"), "in_progress");
  within(running.retry_after_ms, 1, 24 * 3600 * SECOND_MS);
  assert.deepEqual(await begin("200 EUR"), { outcome: "mismatch" });

  const response = { status: "CREATED", amount: 100 };
  const finish = (token: string): Promise<Schemas["IdempotencyFinished"]> =>
    answered(client.POST("/v1/idempotency/{name}/finish", { params, body: { key, token, response } }));
  assert.deepEqual(await finish(started.token), { outcome: "finished", kept: true });
  assert.deepEqual(await finish("another"), { outcome: "lost" });
  const replayed = outcome(await begin("100 EUR"), "finished");
  assert.equal(replayed.kept, true);
  assert.deepEqual(replayed.response, response);
}

async function uploads(): Promise<void> {
  const content = Buffer.from("hello from TypeScript\x00\n");
  const create = (): Promise<Schemas["UploadCreated"]> =>
    answered(
      client.POST("/v1/upload/{name}/create", {
        params: { path: { name: "documents" } },
        body: {
          name: "hello.bin",
          size: content.length,
          mime_type: "application/octet-stream",
          idempotency_key: "ts-1",
        },
      }),
    );
  const created = await create();
  assert.equal(created.outcome, "created");
  assert.deepEqual([created.chunk_min_bytes, created.chunk_max_bytes], [5 * MIB, 100 * MIB]);
  const again = await create();
  assert.deepEqual([again.outcome, again.upload_id], ["existing", created.upload_id]);

  const path = { name: "documents", upload_id: created.upload_id };
  const chunk = (digested: Buffer) =>
    client.PUT("/v1/upload/{name}/{upload_id}/chunk/{n}", {
      params: {
        path: { ...path, n: 0 },
        query: { last: true },
        header: { "content-digest": `sha-256=:${createHash("sha256").update(digested).digest("base64")}:` },
      },
      // `format: binary` is typed as a string; the bytes are given by the serializer.
      body: "",
      bodySerializer: () => content,
      headers: { "content-type": "application/octet-stream" },
    });
  assert.equal((await chunk(Buffer.from("something else"))).error?.status, 422);
  const sent = await answered(chunk(content));
  assert.deepEqual([sent.upload_id, sent.node_id], [created.upload_id, created.node_id]);
  assert.deepEqual([sent.chunk_number, sent.received_chunks, sent.total_chunks], [0, 1, 1]);

  const show = (): Promise<Schemas["UploadState"]> =>
    answered(client.GET("/v1/upload/{name}/{upload_id}", { params: { path } }));
  const deadline = Date.now() + 60 * SECOND_MS;
  let state = await show();
  while (state.status !== "COMPLETED") {
    assert.ok(Date.now() < deadline, `not completed: ${JSON.stringify(state)}`);
    state = await show();
  }
  assert.deepEqual([state.status, state.final_size, state.resend], ["COMPLETED", content.length, []]);
  const read = await answered(
    client.GET("/v1/upload/{name}/{upload_id}/content", { params: { path }, parseAs: "arrayBuffer" }),
  );
  assert.deepEqual(Buffer.from(read), content);
}

for (const part of [limits, queues, locks, idempotency, uploads]) {
  await part();
  console.log(`typescript: ${part.name}: as expected`);
}
