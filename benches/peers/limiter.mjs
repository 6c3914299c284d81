// rate-limiter-flexible on ioredis, TASKS calls in flight for SECONDS; prints one JSON object.
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const { NODE_MODULES, REDIS_PORT, TASKS, KEYS, SECONDS } = process.env
const need = createRequire(`${resolve(NODE_MODULES)}/`)
const { Redis } = need('ioredis')
const { RateLimiterRedis } = need('rate-limiter-flexible')

const [tasks, keys, seconds] = [TASKS, KEYS, SECONDS].map(Number)
const storeClient = new Redis({ host: '127.0.0.1', port: Number(REDIS_PORT) })
// A refusal rejects the promise, so a limit that is never reached also proves that every call counted.
const limiter = new RateLimiterRedis({ storeClient, points: 1_000_000_000, duration: 3600, keyPrefix: 'rlf' })

async function round(lastingMs, latency) {
  const end = performance.now() + lastingMs
  const task = async () => {
    for (let at = performance.now(); at < end; ) {
      await limiter.consume(String(Math.floor(Math.random() * keys)).padStart(12, '0'))
      const now = performance.now()
      latency.push(now - at)
      at = now
    }
  }
  await Promise.all(Array.from({ length: tasks }, task))
}

await round(500, []) // the compiler needs a while
const latency = []
const cpu = process.cpuUsage()
const began = performance.now()
await round(seconds * 1000, latency)
const took = performance.now() - began
const { user, system } = process.cpuUsage(cpu)
storeClient.disconnect()

const sorted = Float64Array.from(latency).sort()
const at = (q) => sorted[Math.floor((sorted.length - 1) * q)]
console.log(JSON.stringify({
  n: latency.length,
  seconds: took / 1000,
  p50_ms: at(0.5),
  p95_ms: at(0.95),
  p99_ms: at(0.99),
  client_cpu: `${Math.round((user + system) / 10 / took)}%`,
}))
