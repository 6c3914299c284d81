// A program of the documented scheme on ioredis: no Quaymaster in it.
// One JSON command a line on standard input, one JSON answer a line on standard output.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [url, modules] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Redis } = require("ioredis");
const zstd = require("@bokuweb/zstd-wasm");

const PREFIX = "Z:";
const THRESHOLD = 1024;

function compress(text) {
  const data = Buffer.from(text, "utf8");
  return data.length <= THRESHOLD ? text : PREFIX + Buffer.from(zstd.compress(data)).toString("base64");
}

function decompress(item) {
  if (!item.startsWith(PREFIX)) return item;
  return Buffer.from(zstd.decompress(Buffer.from(item.slice(PREFIX.length), "base64"))).toString("utf8");
}

async function answer(client, ask) {
  const { do: verb, queue } = ask;
  switch (verb) {
    case "push":
      return { length: await client.rpush(queue, ...ask.jobs.map((job) => compress(JSON.stringify(job)))) };
    case "raw":
      return { length: await client.rpush(queue, ...ask.items) };
    case "pop": {
      const popped = await client.blpop(queue, ask.timeout);
      if (!popped) return { job: null };
      return { job: JSON.parse(decompress(popped[1])), compressed: popped[1].startsWith(PREFIX) };
    }
    case "range":
      return { items: (await client.lrange(queue, 0, -1)).map((item) => JSON.parse(decompress(item))) };
    case "zadd":
      return { added: await client.zadd(queue, ...Object.entries(ask.members).flatMap(([m, s]) => [s, m])) };
    case "zpopmax": {
      const flat = await client.zpopmax(queue, ask.count);
      const members = [];
      for (let at = 0; at < flat.length; at += 2) members.push([flat[at], Number(flat[at + 1])]);
      return { members };
    }
    default:
      throw new Error(verb);
  }
}

await zstd.init();
const client = new Redis(url);
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(client, JSON.parse(line)))}\n`);
}
client.disconnect();
