//! Our side: the crate's queue and worker, on one store or the other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use quaymaster::queue::{Push, Queue};
use quaymaster::schema::{Source, load};
use quaymaster::worker::{Failure, Worker};
use quaymaster::{Engine, Quaymaster};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::node::Work;
use super::{BATCH, HANDLERS, PAYLOAD, SCHEMA};
use crate::cpu::{Own, Watch};
use crate::drive::{Load, drive};
use crate::ours::{Durability, memory_engine};
use crate::process::Redis;
use crate::sample::{Latency, Sample, histogram};

/// A queue on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Ours {
    quaymaster: Quaymaster,
}

/// What the handlers saw.
#[derive(Debug)]
struct Seen {
    epoch: Instant,
    count: AtomicU64,
    until: AtomicU64,
    enough: Notify,
    latency: Mutex<Histogram<u64>>,
}

impl Ours {
    fn on(engine: Arc<dyn Engine>) -> Result<Self> {
        let loaded = load(&[Source { name: "benches/queue.toml", text: SCHEMA }], &|_| None);
        let schema = loaded.schema.with_context(|| format!("{:?}", loaded.diagnostics))?;
        Ok(Self { quaymaster: Quaymaster::new(Arc::new(schema), engine) })
    }

    /// With the settings a service would have by default.
    pub(super) fn redis(runtime: &Runtime, redis: &Redis) -> Result<Self> {
        let options = RedisOptions::from_url(&redis.url())?;
        Self::on(Arc::new(runtime.block_on(RedisStore::connect(options))?))
    }

    pub(super) fn memory(runtime: &Runtime) -> Result<Self> {
        Self::on(memory_engine(runtime)?)
    }

    pub(super) fn disk(runtime: &Runtime, folder: &Path, durability: Durability) -> Result<Self> {
        let options = EmbeddedOptions { durability, ..EmbeddedOptions::default() };
        Self::on(Arc::new(runtime.block_on(EmbeddedStore::open(folder, options))?))
    }

    pub(super) fn close(&self, runtime: &Runtime) -> Result<()> {
        Ok(runtime.block_on(self.quaymaster.engine().close())?)
    }

    fn queue(&self) -> Result<Queue> {
        Ok(self.quaymaster.queue("work")?.clone())
    }

    /// One run, as `peers/queues.mjs` does it. Nothing waits afterwards, except after `fill`.
    pub(super) fn run(
        &self,
        runtime: &Runtime,
        work: Work,
        processes: &[(&'static str, u32)],
    ) -> Result<Sample> {
        let ours = self.clone();
        match work.run {
            "push" => {
                let load = Load { tasks: work.tasks, keys: 1, lasting: work.lasting };
                let sample = drive(runtime, load, processes, move |_| ours.clone().push())?;
                runtime.block_on(self.drain())?;
                Ok(sample)
            }
            "bulk" => {
                runtime.block_on(self.bulk(work.lasting / 10))?;
                let watch = Watch::start(processes);
                let began = Instant::now();
                let n = runtime.block_on(async move {
                    tokio::spawn(async move { ours.bulk(work.lasting).await }).await?
                })?;
                let sample = watch.note(Sample::new(n, began.elapsed()), Own::Counts);
                runtime.block_on(self.drain())?;
                Ok(sample)
            }
            "fill" => {
                let began = Instant::now();
                runtime.block_on(self.add(work.jobs))?;
                Ok(Sample::new(work.jobs, began.elapsed()))
            }
            "work" | "both" | "steady" => {
                let processes = processes.to_vec();
                runtime.block_on(async move {
                    tokio::spawn(async move { ours.working(work, &processes).await }).await?
                })
            }
            other => bail!("no run {other}"),
        }
    }

    async fn push(self) -> Result<()> {
        let pushed =
            self.quaymaster.queue("work")?.push(Push::one(Bytes::from_static(PAYLOAD.as_bytes()))).await?;
        ensure!(pushed.accepted == 1, "a push was not taken: {pushed:?}");
        Ok(())
    }

    /// Batches, one after the other.
    async fn bulk(&self, lasting: Duration) -> Result<u64> {
        let end = Instant::now() + lasting;
        let mut n = 0;
        while Instant::now() < end {
            self.add(BATCH as u64).await?;
            n += BATCH as u64;
        }
        Ok(n)
    }

    async fn add(&self, jobs: u64) -> Result<()> {
        let queue = self.queue()?;
        let mut left = jobs;
        while left > 0 {
            let count = left.min(BATCH as u64);
            let batch = vec![Bytes::from_static(PAYLOAD.as_bytes()); count as usize];
            let pushed = queue.push(Push::many(batch)).await?;
            ensure!(pushed.accepted == count, "a bulk was not taken whole: {pushed:?}");
            left -= count;
        }
        Ok(())
    }

    async fn drain(&self) -> Result<()> {
        let waiting = self.queue()?.pressure().await?.current_length;
        let worker = self.start(Seen::until(waiting)?)?;
        worker.finish().await
    }

    async fn working(self, work: Work, processes: &[(&'static str, u32)]) -> Result<Sample> {
        let sample = match work.run {
            "work" => {
                self.add(work.jobs).await?;
                let watch = Watch::start(processes);
                let began = Instant::now();
                self.start(Seen::until(work.jobs)?)?.finish().await?;
                watch.note(Sample::new(work.jobs, began.elapsed()), Own::Counts)
            }
            "both" => {
                let seen = Seen::until(5 * BATCH as u64)?;
                let worker = self.start(seen.clone())?;
                self.add(5 * BATCH as u64).await?;
                seen.enough().await?;
                seen.again(work.jobs);
                let watch = Watch::start(processes);
                let began = Instant::now();
                self.add(work.jobs).await?;
                worker.finish().await?;
                watch.note(Sample::new(work.jobs, began.elapsed()), Own::Counts)
            }
            _ => {
                let seen = Seen::until(BATCH as u64)?;
                let worker = self.start(seen.clone())?;
                self.add(BATCH as u64).await?;
                seen.enough().await?;
                let total = (work.rate as f64 * work.lasting.as_secs_f64()) as u64;
                seen.again(total);
                let watch = Watch::start(processes);
                let began = Instant::now();
                let mut sends = Vec::with_capacity(total as usize);
                while (sends.len() as u64) < total {
                    let due = (began.elapsed().as_secs_f64() * work.rate as f64) as u64;
                    while (sends.len() as u64) < due.min(total) {
                        let (queue, sent) = (self.queue()?, seen.epoch.elapsed().as_nanos());
                        let payload = format!(r#"{{"sent":{sent},"job":{PAYLOAD}}}"#);
                        sends.push(tokio::spawn(async move { queue.push(Push::one(payload)).await }));
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                for send in sends {
                    send.await??;
                }
                worker.finish().await?;
                let mut sample = Sample::new(total, began.elapsed());
                sample.latency = Some(Latency::from(&*seen.latency.lock()));
                watch.note(sample, Own::Counts)
            }
        };
        let left = self.queue()?.pressure().await?;
        ensure!(
            left.current_length + left.leased + left.delayed + left.dead == 0,
            "not all was acked: {left:?}"
        );
        Ok(sample)
    }

    fn start(&self, seen: Arc<Seen>) -> Result<Running> {
        let stop = CancellationToken::new();
        // Handlers that never wait need no threads of their own, as those of Node have none.
        let worker =
            Worker::new(self.queue()?).concurrency(HANDLERS).handlers_on(tokio::runtime::Handle::current());
        let (handled, stopped) = (seen.clone(), stop.clone());
        let ended = tokio::spawn(async move {
            let handler = move |job: quaymaster::queue::Job, _lost| {
                handled.job(&job.payload);
                std::future::ready(Ok::<(), Failure>(()))
            };
            worker.run(handler, stopped).await
        });
        Ok(Running { seen, stop, ended })
    }
}

struct Running {
    seen: Arc<Seen>,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<quaymaster::Result<quaymaster::worker::Ended>>,
}

impl Running {
    /// Waits until the handlers have seen enough and everything is acked.
    async fn finish(self) -> Result<()> {
        self.seen.enough().await?;
        self.stop.cancel();
        let ended = self.ended.await??;
        ensure!(ended.cut == 0, "handlers were cut off: {ended:?}");
        Ok(())
    }
}

impl Seen {
    fn until(count: u64) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            epoch: Instant::now(),
            count: AtomicU64::new(0),
            until: AtomicU64::new(count),
            enough: Notify::new(),
            latency: Mutex::new(histogram()?),
        }))
    }

    /// Counts anew, when all before has come.
    fn again(&self, count: u64) {
        self.count.store(0, Relaxed);
        self.until.store(count, Relaxed);
    }

    fn job(&self, payload: &[u8]) {
        // A handler reads its job; those of the peers are handed an object.
        let job: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
        if let Some(sent) = std::hint::black_box(job)["sent"].as_u64() {
            self.latency.lock().saturating_record(self.epoch.elapsed().as_nanos() as u64 - sent);
        }
        if self.count.fetch_add(1, Relaxed) + 1 >= self.until.load(Relaxed) {
            self.enough.notify_one();
        }
    }

    async fn enough(&self) -> Result<()> {
        let all = async {
            while self.count.load(Relaxed) < self.until.load(Relaxed) {
                self.enough.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), all).await.context("jobs are missing")
    }
}
