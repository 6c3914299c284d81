// One more instance of the backend, in Node: node server.mjs [port]
//
// HA_SERVER is Quaymaster's server (http://127.0.0.1:7469), pm_id or HA_INSTANCE the instance's name, HA_PROXIES the
// proxies whose X-Forwarded-For is believed.

import { createServer } from "node:http";
import { Recorder } from "./recorder.mjs";

const users = ["ada", "brahms", "curie", "dirac"];
const proxies = (process.env.HA_PROXIES ?? "").split(",");
const instance = process.env.HA_INSTANCE ?? process.env.pm_id;
const recorder = new Recorder(process.env.HA_SERVER ?? "http://127.0.0.1:7469", instance && { instance });
recorder.onerror = (error) => console.error(`not recorded yet: ${error.message}`);

const routes = [
  { method: "GET", path: /^\/api\/users$/, route: "/api/users", serve: () => users },
  { method: "GET", path: /^\/api\/users\/(\d+)$/, route: "/api/users/:id", serve: (id) => users[id - 1] },
];
const match = ({ method, url }) => {
  const path = url.split("?")[0];
  return routes.find((route) => route.method === method && route.path.test(path));
};

const server = createServer((request, response) => {
  const found = match(request);
  const body = found?.serve(...request.url.split("?")[0].match(found.path).slice(1));
  response.writeHead(body ? 200 : 404, { "content-type": "application/json", "ha-instance": recorder.instance });
  response.end(JSON.stringify(body ?? { error: "there is no such page" }));
});

// Whoever the proxy in front names, if it is one of ours.
const caller = (request) => {
  const named = request.headers["x-forwarded-for"]?.split(",").at(-1)?.trim();
  const peer = request.socket.remoteAddress?.replace(/^::ffff:/, "");
  return named && proxies.includes(peer) ? named : peer;
};
recorder.watch(server, (request) => match(request)?.route, caller);

server.listen(Number(process.argv[2] ?? 7465), process.argv[3] ?? "127.0.0.1", () => {
  const { address, port } = server.address();
  console.log(`ha-backend (node) listens on http://${address}:${port} as instance ${recorder.instance}`);
});

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, () => {
    server.close(async () => {
      await recorder.close();
      process.exit(0);
    });
    server.closeIdleConnections();
  });
}
