"use strict";
// Draws /v1/status every two seconds. Text from the server is only ever set as text, never as HTML.

const EVERY_MS = 2000;
const by = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
let token = sessionStorage.getItem("token");
let before = null;
let resources = null;

// Characters that are not seen or turn what is read around are shown, not obeyed.
const shown = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
  (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

function cell(text, { code = false, numeric = false } = {}) {
  const td = document.createElement("td");
  if (numeric) td.className = "number";
  const inside = code ? td.appendChild(document.createElement("code")) : td;
  inside.textContent = shown(text ?? "–");
  return td;
}

function duration(ms) {
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  for (const [name, size] of units) if (ms >= size) return `${number.format(Math.round(ms / size * 10) / 10)} ${name}`;
  return `${ms} ms`;
}

function bytes(count) {
  if (count == null) return null;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at ? count.toFixed(1) : count} ${units[at]}`;
}

function drawStore(store) {
  const rows = [
    ["product", store.product && `${store.product} ${store.version}`],
    ["mode", store.mode],
    ["persistence", store.persistence],
    ["eviction", store.eviction_policy],
    ["memory", store.max_memory_bytes ? `${bytes(store.used_memory_bytes)} of ${bytes(store.max_memory_bytes)}` : bytes(store.used_memory_bytes)],
    ["clients", store.connected_clients],
    ["operations", number.format(store.operations)],
    ["success rate", `${(store.success_rate * 100).toFixed(2)} %`],
    ["failures in a row", store.consecutive_failures],
    ["latency, mean", `${number.format(store.latency_mean_us)} µs`],
    ...store.latency.map(({ class: name, p95_us: us, p95_over: over }) =>
      [`p95 of a minute, ${name}`, us == null ? null : `${over ? "over " : ""}${number.format(us)} µs`]),
    ["clock offset", `${number.format(store.clock_offset_us)} µs`],
  ];
  by("store").replaceChildren(...rows.filter(([, value]) => value != null).map(([name, value]) => {
    const row = document.createElement("div");
    row.appendChild(document.createElement("dt")).textContent = name;
    row.appendChild(document.createElement("dd")).textContent = shown(value);
    return row;
  }));
}

function drawLimits(limits, seconds) {
  const last = new Map((before?.limits ?? []).map((limit) => [limit.name, limit]));
  by("limits").replaceChildren(...limits.map((limit) => {
    const tr = document.createElement("tr");
    const was = last.get(limit.name);
    const takes = limit.allowed + limit.limited;
    const rate = was && seconds > 0 ? Math.max(0, takes - was.allowed - was.limited) / seconds : 0;
    tr.append(
      cell(limit.name, { code: true }), cell(limit.algorithm), cell(number.format(limit.limit), { numeric: true }),
      cell(duration(limit.window_ms), { numeric: true }), cell(number.format(limit.allowed), { numeric: true }),
      cell(number.format(limit.limited), { numeric: true }), cell(number.format(limit.errors), { numeric: true }),
      cell(number.format(Math.round(rate)), { numeric: true }),
    );
    const share = document.createElement("td");
    if (takes > 0) {
      const meter = share.appendChild(document.createElement("meter"));
      // Refusing nobody is best; from half of the callers on it is bad.
      Object.assign(meter, { max: 1, optimum: 0, low: 0.05, high: 0.5 });
      meter.value = limit.limited / takes;
      meter.title = `${(100 * limit.limited / takes).toFixed(1)} % refused`;
    }
    tr.append(share);
    return tr;
  }));
}

function queueState(queue) {
  if (queue.paused) return ["paused", "warn"];
  if (queue.is_full) return [`full: ${queue.overflow_policy}`, "bad"];
  if (queue.unattended) return ["nobody works", "bad"];
  if (queue.is_at_pressure_threshold) return ["under pressure", "warn"];
  return [queue.pushes ? `${queue.pushes} calls at once` : "", ""];
}

function drawQueues(queues, seconds) {
  const last = new Map((before?.queues ?? []).map((queue) => [queue.name, queue]));
  by("queues-section").hidden = queues.length === 0;
  by("queues").replaceChildren(...queues.map((queue) => {
    const tr = document.createElement("tr");
    const was = last.get(queue.name);
    const rate = was && seconds > 0 ? Math.max(0, queue.acked - was.acked) / seconds : 0;
    const count = (value) => cell(value == null ? null : number.format(value), { numeric: true });
    const fill = document.createElement("td");
    if (queue.max_size) {
      const meter = fill.appendChild(document.createElement("meter"));
      Object.assign(meter, { max: 1, optimum: 0, low: 0.5, high: 0.8 });
      meter.value = Math.min(1, queue.fill_ratio);
      meter.title = `${(100 * queue.fill_ratio).toFixed(1)} % full`;
    }
    const [text, mood] = queueState(queue);
    const state = cell(text);
    state.className = mood;
    tr.append(
      cell(queue.name, { code: true }), count(queue.current_length), count(queue.max_size), fill,
      count(queue.leased), count(queue.delayed), count(queue.dead), count(queue.overflowed),
      cell(queue.oldest_age_ms == null ? null : duration(queue.oldest_age_ms), { numeric: true }),
      count(Math.round(rate)), state,
    );
    if (queue.dead > 0) tr.children[6].classList.add("warn");
    return tr;
  }));
}

function drawRuns(runs) {
  by("runs-section").hidden = runs.length === 0;
  by("runs").replaceChildren(...runs.map((run) => {
    const tr = document.createElement("tr");
    const count = (value) => cell(number.format(value), { numeric: true });
    const status = cell(run.status);
    status.className = run.stale ? "bad" : "";
    tr.append(
      cell(run.name, { code: true }), cell(run.run_id, { code: true }), count(run.processed), count(run.failed),
      count(run.calls_this_hour), cell(run.last_activity.slice(0, 19).replace("T", " ")), status,
    );
    if (run.failed > 0) tr.children[3].classList.add("warn");
    return tr;
  }));
}

function drawStats(stats) {
  const count = (value) => cell(number.format(value), { numeric: true });
  const ms = (value) => cell(`${number.format(value)} ms`, { numeric: true });
  by("stats-section").hidden = stats.length === 0;
  by("stats").replaceChildren(...stats.map((told) => {
    const tr = document.createElement("tr");
    const { requests, connections } = told;
    tr.append(
      cell(told.name, { code: true }), count(requests.total), count(requests.accepted), count(told.errors.total),
      count(requests.speed_per_second), count(requests.max_speed_per_second), count(connections.current),
      count(connections.max_since_startup), count(told.alive),
    );
    return tr;
  }));
  by("endpoints").replaceChildren(...stats.flatMap((told) => told.endpoints.map((endpoint) => {
    const tr = document.createElement("tr");
    tr.append(
      cell(told.name, { code: true }), cell(endpoint.endpoint, { code: true }), count(endpoint.count),
      count(endpoint.errors), ms(endpoint.avg_ms), ms(endpoint.p50_ms), ms(endpoint.p95_ms), ms(endpoint.p99_ms),
    );
    if (endpoint.endpoint === "overflow") tr.children[1].classList.add("warn");
    return tr;
  })));
}

function drawUploads(uploads) {
  by("uploads-section").hidden = uploads.length === 0;
  by("uploads").replaceChildren(...uploads.map((told) => {
    const tr = document.createElement("tr");
    const count = (value) => cell(value == null ? null : number.format(value), { numeric: true });
    const { by_status: is, bytes_in_flight: held, max_bytes_in_flight: most } = told;
    const fill = document.createElement("td");
    if (held != null && most > 0) {
      const meter = fill.appendChild(document.createElement("meter"));
      Object.assign(meter, { max: 1, optimum: 0, low: 0.5, high: 0.8 });
      meter.value = Math.min(1, held / most);
      meter.title = `${(100 * held / most).toFixed(1)} % of the bytes that may be in flight`;
    }
    tr.append(
      cell(told.name, { code: true }), count(is.open), count(is.completing), count(is.completed), count(is.failed),
      count(is.expired), count(is.aborted), count(told.chunks_queued), cell(bytes(held), { numeric: true }),
      cell(bytes(most), { numeric: true }), fill,
    );
    if (told.more) tr.title = "There are more uploads than were counted.";
    if (is.failed > 0) tr.children[4].classList.add("bad");
    return tr;
  }));
  const failures = uploads.flatMap((told) => told.failures.map((failure) => [told.name, failure]));
  by("failures-table").hidden = failures.length === 0;
  by("failures").replaceChildren(...failures.map(([name, failure]) => {
    const tr = document.createElement("tr");
    tr.append(
      cell(name, { code: true }), cell(failure.upload_id, { code: true }),
      cell(failure.failed_at.slice(0, 19).replace("T", " "), { numeric: true }), cell(failure.reason),
    );
    return tr;
  }));
}

function drawSchema() {
  const wanted = by("filter").value.trim().toLowerCase();
  const rows = [];
  for (const resource of resources ?? []) {
    const keys = resource.keys.length ? resource.keys : [{ role: "", pattern: null, type: null, ttl: null }];
    for (const key of keys) {
      const name = `${resource.kind}.${resource.name}`;
      const text = `${name} ${key.role} ${key.pattern} ${key.type} ${resource.owner}`.toLowerCase();
      if (wanted && !text.includes(wanted)) continue;
      const tr = document.createElement("tr");
      const first = cell(name, { code: true });
      if (resource.description) first.title = resource.description;
      tr.append(first, cell(key.pattern, { code: true }), cell(key.type), cell(key.ttl), cell(resource.owner));
      rows.push(tr);
    }
  }
  by("schema").replaceChildren(...rows);
}

function state(text, good) {
  by("state").textContent = shown(text);
  by("state").className = `state ${good ? "good" : "bad"}`;
}

async function look() {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch("/v1/status", { headers, cache: "no-store", signal: AbortSignal.timeout(5000) });
  by("login").hidden = answer.status !== 401 && answer.status !== 403;
  if (!by("login").hidden) {
    by("denied").textContent = token ? "The last one was not accepted." : "";
    return state("needs a token", false);
  }
  const status = await answer.json();
  if (!answer.ok) return state(status.detail ?? `answered ${answer.status}`, false);
  const now = performance.now();
  state(status.store.connected ? "ready" : `the store is away: ${status.store.reason}`, status.store.connected);
  by("about").textContent = `version ${status.version}, up ${duration(status.uptime_ms)}`;
  by("warnings").hidden = status.warnings.length === 0;
  by("warnings").replaceChildren(...status.warnings.map((warning) => {
    const item = document.createElement("li");
    item.textContent = shown(warning);
    return item;
  }));
  drawStore(status.store);
  const seconds = before ? (now - before.at) / 1000 : 0;
  drawLimits(status.limits, seconds);
  drawQueues(status.queues, seconds);
  drawRuns(status.runs);
  drawStats(status.stats);
  drawUploads(status.uploads);
  if (JSON.stringify(resources) !== JSON.stringify(status.resources)) {
    resources = status.resources;
    drawSchema();
  }
  before = { limits: status.limits, queues: status.queues, at: now };
}

async function poll() {
  try {
    await look();
  } catch (error) {
    state("the server does not answer", false);
  }
  setTimeout(poll, EVERY_MS);
}

by("filter").addEventListener("input", drawSchema);
by("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = by("token").value;
  sessionStorage.setItem("token", token);
  look().catch(() => state("the server does not answer", false));
});
poll();
