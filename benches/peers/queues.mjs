// One run of one queue on Node; prints one JSON object. PEER: list, bullmq or bee. RUN:
//   push    TASKS adds in flight for SECONDS
//   bulk    batches of BATCH, one after the other, for SECONDS
//   work    JOBS are waiting; TASKS no-op handlers drain them
//   both    JOBS are added in batches while TASKS no-op handlers drain them
//   steady  RATE jobs a second for SECONDS; the latency is from the add to the handler
//   fill    JOBS are added and left waiting
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const { NODE_MODULES, REDIS_PORT, PEER, RUN, PAYLOAD } = process.env
const need = createRequire(`${resolve(NODE_MODULES)}/`)
const number = (name) => Number(process.env[name])
const [tasks, batch, jobs, seconds, rate] = ['TASKS', 'BATCH', 'JOBS', 'SECONDS', 'RATE'].map(number)
const connection = { host: '127.0.0.1', port: Number(REDIS_PORT) }
const payload = JSON.parse(PAYLOAD)

const done = { count: 0, latency: [], finish: () => {}, until: Infinity }
const handle = ({ sent }) => {
  if (sent) done.latency.push(performance.now() - sent)
  if (++done.count >= done.until) done.finish()
}
const allDone = (n) => {
  Object.assign(done, { count: 0, latency: [], until: n })
  return new Promise((finish) => { done.finish = finish })
}

const peers = {
  // One connection per taker, since a blocking pop keeps its connection. A taker that dies loses its job.
  list() {
    const { Redis } = need('ioredis')
    const client = new Redis(connection)
    return {
      add: (data) => client.rpush('list', JSON.stringify(data)),
      addBulk: (many) => client.rpush('list', ...many.map((data) => JSON.stringify(data))),
      async work() {
        const takers = Array.from({ length: tasks }, () => new Redis(connection))
        await Promise.all(takers.map((taker) => taker.ping()))
        const take = async (taker) => {
          for (;;) handle(JSON.parse((await taker.blpop('list', 0))[1]))
        }
        takers.forEach((taker) => take(taker).catch(() => {}))
      },
    }
  },
  bullmq() {
    const { Queue, Worker } = need('bullmq')
    const queue = new Queue('peer', { connection, defaultJobOptions: { removeOnComplete: true } })
    return {
      add: (data) => queue.add('job', data),
      addBulk: (many) => queue.addBulk(many.map((data) => ({ name: 'job', data }))),
      async work() {
        const options = { connection, concurrency: tasks }
        await new Worker('peer', async ({ data }) => handle(data), options).waitUntilReady()
      },
    }
  },
  bee() {
    const Queue = need('bee-queue')
    const quiet = { removeOnSuccess: true, storeJobs: false, sendEvents: false, getEvents: false }
    const queue = new Queue('peer', { redis: connection, ...quiet })
    return {
      add: (data) => queue.createJob(data).save(),
      async addBulk(many) {
        const failed = await queue.saveAll(many.map((data) => queue.createJob(data)))
        if (failed.size) throw new Error(`${failed.size} jobs were not saved`)
      },
      async work() {
        await queue.ready()
        queue.process(tasks, async ({ data }) => handle(data))
      },
    }
  },
}

const peer = peers[PEER]()
const many = (n) => Array.from({ length: n }, () => payload)
async function addAll(n) {
  for (let added = 0; added < n; added += batch) await peer.addBulk(many(Math.min(batch, n - added)))
}
async function pushing(lastingMs, latency) {
  const end = performance.now() + lastingMs
  const task = async () => {
    for (let at = performance.now(); at < end; ) {
      await peer.add(payload)
      const now = performance.now()
      latency.push(now - at)
      at = now
    }
  }
  await Promise.all(Array.from({ length: tasks }, task))
}
async function bulk(lastingMs) {
  const end = performance.now() + lastingMs
  let n = 0
  for (; performance.now() < end; n += batch) await peer.addBulk(many(batch))
  return n
}

const clock = { began: 0, cpu: null }
const start = () => Object.assign(clock, { began: performance.now(), cpu: process.cpuUsage() })
const runs = {
  async push() {
    await pushing(500, []) // the compiler needs a while
    const latency = []
    start()
    await pushing(seconds * 1000, latency)
    return { n: latency.length, latency }
  },
  async bulk() {
    await bulk(500)
    start()
    return { n: await bulk(seconds * 1000) }
  },
  async work() {
    await addAll(jobs)
    const drained = allDone(jobs)
    start()
    await peer.work()
    await drained
    return { n: jobs }
  },
  async both() {
    await peer.work()
    const warm = allDone(batch * 5)
    await addAll(batch * 5)
    await warm
    const drained = allDone(jobs)
    start()
    await addAll(jobs)
    await drained
    return { n: jobs }
  },
  async steady() {
    await peer.work()
    const warm = allDone(batch)
    await addAll(batch)
    await warm
    const total = rate * seconds
    const drained = allDone(total)
    start()
    const sends = []
    while (sends.length < total) {
      const due = Math.min(total, ((performance.now() - clock.began) * rate) / 1000)
      while (sends.length < due) sends.push(peer.add({ ...payload, sent: performance.now() }))
      await sleep(1)
    }
    await Promise.all(sends)
    await drained
    return { n: total, latency: done.latency }
  },
  async fill() {
    start()
    await addAll(jobs)
    return { n: jobs }
  },
}

const { n, latency = [] } = await runs[RUN]()
const took = performance.now() - clock.began
const { user, system } = process.cpuUsage(clock.cpu)
const sorted = Float64Array.from(latency).sort()
const at = (q) => (sorted.length ? sorted[Math.floor((sorted.length - 1) * q)] : null)
console.log(JSON.stringify({
  n,
  seconds: took / 1000,
  p50_ms: at(0.5),
  p95_ms: at(0.95),
  p99_ms: at(0.99),
  client_cpu: `${Math.round((user + system) / 10 / took)}%`,
}))
process.exit(0)
