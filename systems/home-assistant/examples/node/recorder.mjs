// Records a Node server's requests into `stats.ha`, over HTTP, beside instances in any other language.
//
//     const recorder = new Recorder("http://127.0.0.1:7469", { instance: process.env.pm_id });
//     recorder.watch(server, (request) => "/api/users/:id");   // the route, not the path
//     await recorder.close();                                  // brings in what is left
//
// Nothing but Node's own fetch. Requests are collected and sent once a second; a batch that was not answered is sent
// again under the same `request_id`, so it counts once whether it had arrived or not.

import { randomUUID } from "node:crypto";

const BATCH = 10_000; // the most a call may carry
const KEPT = 100_000; // the most that waits while nobody takes it; what comes then is counted in `lost`

export class Recorder {
  #url;
  #waiting = [];
  #frozen = null;
  #timer;
  #sending = null;
  #open = 0;
  lost = 0;

  constructor(server, { stats = "ha", instance = `instance-${Date.now()}`, every = 1000, token } = {}) {
    this.#url = `${server}/v1/stats/${stats}/record`;
    this.instance = String(instance);
    this.headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
    this.#timer = setInterval(() => this.flush().catch((error) => this.onerror?.(error)), every);
    this.#timer.unref();
  }

  // Connections and requests of an `http.Server`; `route` gives a request's template, or nothing when none matches,
  // and `caller` who it came from.
  watch(server, route, caller = (request) => request.socket.remoteAddress) {
    server.on("connection", (socket) => {
      this.#open += 1;
      socket.once("close", () => (this.#open -= 1));
    });
    server.on("request", (request, response) => {
      const began = process.hrtime.bigint();
      // Asked for now: a socket that is closed has forgotten.
      const remote = caller(request);
      response.once("close", () => {
        // A caller that hung up before its answer was written has got none.
        const status = response.writableFinished ? response.statusCode : 499;
        const duration_ms = Number(process.hrtime.bigint() - began) / 1e6;
        this.record({ method: request.method, path: route(request) ?? "*", status, duration_ms, remote });
      });
    });
  }

  record(request) {
    if (this.#waiting.length >= KEPT) this.lost += 1;
    else this.#waiting.push({ instance: this.instance, ...request });
  }

  // Resolves when everything recorded before is in the store.
  async flush() {
    while (this.#sending) await this.#sending.catch(() => {});
    this.#sending = this.#drain();
    try {
      await this.#sending;
    } finally {
      this.#sending = null;
    }
  }

  async #drain() {
    do {
      // Frozen until it is known to have arrived: what is sent again must be the same.
      this.#frozen ??= {
        request_id: randomUUID(),
        requests: this.#waiting.splice(0, BATCH),
        connections: { [this.instance]: this.#open },
      };
      await this.#send(this.#frozen);
      this.#frozen = null;
    } while (this.#waiting.length > 0);
  }

  async #send(batch) {
    const signal = AbortSignal.timeout(5000);
    const answer = await fetch(this.#url, { method: "POST", headers: this.headers, body: JSON.stringify(batch), signal });
    const text = await answer.text();
    if (answer.ok) return;
    // 4xx: the same again would be refused again. Anything else may pass.
    if (answer.status < 500 && answer.status !== 408 && answer.status !== 429) {
      this.lost += batch.requests.length;
      this.onerror?.(new Error(`${answer.status}: ${text}`));
      return;
    }
    throw new Error(`${answer.status}: ${text}`);
  }

  async close() {
    clearInterval(this.#timer);
    this.#open = 0;
    await this.flush();
  }
}
