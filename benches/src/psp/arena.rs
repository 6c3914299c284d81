//! A way with the servers it needs, and one measurement of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;

use super::direct::{Direct, SCHEMA, SEAL_KEY};
use super::documented::Documented;
use super::mix::{Class, Mix, Operation};
use super::over_http::OverHttp;
use super::pace::{Plan, run};
use super::way::Way;
use crate::cpu;
use crate::process::{Owned, Redis, free_port};
use crate::sample::Latency;

/// A way on a Redis of its own, so that nobody's idle connections are counted as another's.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) way: Arc<Way>,
    pub(crate) redis: Redis,
    server: Option<Owned>,
    pub(super) mix: Arc<Mix>,
}

/// Latencies, rates and costs of one run at one rate.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) steps: u64,
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    pub(crate) single: Latency,
    pub(crate) compound: Latency,
    pub(crate) by_operation: Vec<(Operation, u64, Latency)>,
    pub(crate) overloaded: bool,
    /// Commands Redis got from clients; those its scripts ran are not among them.
    pub(crate) round_trips: u64,
    /// Processor seconds.
    pub(crate) generator_s: f64,
    pub(crate) server_s: f64,
    pub(crate) redis_s: f64,
}

impl Figures {
    /// Whether both promises about the p95 are kept.
    pub(crate) fn hold(&self) -> bool {
        !self.overloaded
            && self.single.p95_ms < Class::Single.p95_ms()
            && self.compound.p95_ms < Class::Compound.p95_ms()
    }

    pub(crate) fn operations_per_s(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    pub(crate) fn steps_per_s(&self) -> f64 {
        self.steps as f64 / self.seconds
    }
}

impl Arena {
    /// A way that needs no server process of its own.
    pub(crate) fn new(way: Way, redis: Redis) -> Self {
        Self { way: Arc::new(way), redis, server: None, mix: Arc::new(Mix::new()) }
    }

    pub(crate) fn direct(runtime: &Runtime, folder: &Path) -> Result<Self> {
        let redis = Redis::start(folder, None::<&str>)?;
        let way = Way::Direct(runtime.block_on(Direct::connect(&redis, SCHEMA))?);
        Ok(Self::new(way, redis))
    }

    /// `program` is the `quaymaster` to serve with.
    pub(crate) fn over_http(program: &Path, folder: &Path) -> Result<Self> {
        let redis = Redis::start(folder, None::<&str>)?;
        let (port, schema) = (free_port()?, folder.join("schema.toml"));
        std::fs::write(&schema, SCHEMA)?;
        let program = program
            .canonicalize()
            .with_context(|| format!("{}: build it first, as scripts/bench does", program.display()))?;
        let mut command = Command::new(program);
        // In a folder without a configuration of its own.
        command.current_dir(folder).arg("serve").arg("--schema").arg(&schema);
        command.args(["--store", &redis.url(), "--listen", &format!("127.0.0.1:{port}")]);
        command.env("QUAYMASTER_SEAL_KEY", SEAL_KEY);
        let server = Owned::serving(command, port)?;
        Ok(Self { server: Some(server), ..Self::new(Way::OverHttp(OverHttp::new(port)), redis) })
    }

    pub(crate) fn documented(folder: &Path) -> Result<Self> {
        let redis = Redis::start(folder, None::<&str>)?;
        Ok(Self::new(Way::Documented(Documented::new(redis.port)), redis))
    }

    /// Runs the mix at one rate on an empty store, after a tenth of the time for everything to get warm.
    pub(crate) fn measure(&self, runtime: &Runtime, plan: Plan) -> Result<Figures> {
        let _: () = redis::cmd("FLUSHALL").arg("SYNC").query(&mut self.redis.connect()?)?;
        let lasting = (plan.lasting / 10).max(Duration::from_millis(200));
        self.run(runtime, Plan { lasting, ..plan })?;
        self.run(runtime, plan)
    }

    /// Runs the mix at one rate.
    pub(crate) fn run(&self, runtime: &Runtime, plan: Plan) -> Result<Figures> {
        let spent = || {
            let server = self.server.as_ref().map_or(0.0, |server| cpu::of(server.pid()));
            (cpu::own(), server, cpu::of(self.redis.pid()))
        };
        let (trips, before) = (self.round_trips()?, spent());
        let ran = runtime.block_on(run(self.way.clone(), self.mix.clone(), plan))?;
        let (after, now) = (spent(), self.round_trips()?);
        let book = &ran.book;
        let by_operation: Vec<_> = Operation::ALL
            .map(|operation| (operation, book.count(operation), book.latency(operation)))
            .into();
        Ok(Figures {
            steps: ran.steps,
            operations: by_operation.iter().map(|(_, count, _)| count).sum(),
            seconds: ran.took.as_secs_f64(),
            single: book.class(Class::Single)?,
            compound: book.class(Class::Compound)?,
            by_operation,
            overloaded: ran.overloaded,
            round_trips: now - trips,
            generator_s: after.0 - before.0,
            server_s: after.1 - before.1,
            redis_s: after.2 - before.2,
        })
    }

    /// Commands that came from clients so far. Where scripts run, only those that start one are counted: Redis
    /// counts what a script runs under the same names. That nothing else comes is looked at by
    /// [`super::witness`].
    fn round_trips(&self) -> Result<u64> {
        let counts = self.commands()?;
        let scripts = !matches!(*self.way, Way::Documented(_));
        let from_client = |name: &str| {
            if scripts {
                name.starts_with("eval") || name.starts_with("fcall")
            } else {
                // Asking for the counts is not part of the mix.
                name != "info" && !name.starts_with("client")
            }
        };
        Ok(counts.iter().filter(|(name, _)| from_client(name)).map(|(_, calls)| calls).sum())
    }

    fn commands(&self) -> Result<BTreeMap<String, u64>> {
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut self.redis.connect()?)?;
        let count = |line: &str| {
            let (name, facts) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = facts.split(',').find_map(|fact| fact.strip_prefix("calls="))?;
            Some((name.to_owned(), calls.parse().ok()?))
        };
        Ok(info.lines().filter_map(count).collect())
    }
}
