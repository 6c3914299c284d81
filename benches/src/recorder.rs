//! What a take becomes on the wire: the same script, keys and arguments for the peers.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use quaymaster_store::{
    Code, Deployment, Engine, Error, Health, Invocation, KeyFacts, Message, Reply, ScanCursor, ScanPage,
    Topology,
};
use tokio::runtime::Runtime;

use crate::ours::{Limiter, caller};
use crate::process::Redis;

/// A recorded call whose caller can be another.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    invocation: Invocation,
}

impl Call {
    /// What the crate sends for one take.
    pub(crate) fn of_take(runtime: &Runtime) -> Result<Self> {
        let recorder = Arc::new(Recorder::default());
        // The recorder answers nothing, so the take fails; what it sent is what is wanted.
        let unanswered = runtime.block_on(Limiter::on(recorder.clone())?.take(0));
        ensure!(unanswered.is_err(), "the recorder answered");
        let invocation = recorder.last.lock().take().context("a take ran no script")?;
        ensure!(invocation.keys.len() == 1, "a plain take has one key: {:?}", invocation.keys);
        Ok(Self { invocation })
    }

    /// `EVALSHA sha 1 key arguments` for the caller of this name.
    pub(crate) fn evalsha(&self, name: &str) -> Vec<String> {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let keys = self.invocation.keys.iter().map(|key| text(key).replace(&caller(0), name));
        ["EVALSHA".into(), self.invocation.script.sha.into(), self.invocation.keys.len().to_string()]
            .into_iter()
            .chain(keys)
            .chain(self.invocation.args.iter().map(text))
            .collect()
    }

    /// Teaches a Redis the script.
    pub(crate) fn load_into(&self, redis: &Redis) -> Result<()> {
        let script = self.invocation.script;
        let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(script.source).query(&mut redis.connect()?)?;
        ensure!(sha == script.sha, "Redis hashes {} to {sha}", script.id);
        Ok(())
    }
}

/// A store that keeps the last call and answers none.
#[derive(Debug, Default)]
struct Recorder {
    last: Mutex<Option<Invocation>>,
}

fn unanswered<T: Send + 'static>() -> BoxFuture<'static, quaymaster_store::Result<T>> {
    ready(Err(Error::new("recorder", Code::StoreProtocol, "a recorder answers nothing"))).boxed()
}

impl Engine for Recorder {
    fn run(&self, call: Invocation) -> BoxFuture<'_, quaymaster_store::Result<Reply>> {
        *self.last.lock() = Some(call);
        unanswered()
    }

    fn time_us(&self) -> BoxFuture<'_, quaymaster_store::Result<i64>> {
        unanswered()
    }

    fn now_us(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
    }

    fn topology(&self) -> Topology {
        Topology::Single
    }

    fn subscribe<'a>(
        &'a self,
        _: &'a [u8],
    ) -> BoxFuture<'a, quaymaster_store::Result<BoxStream<'static, Message>>> {
        unanswered()
    }

    fn wait_for_item<'a>(
        &'a self,
        _: &'a [u8],
        _: Duration,
    ) -> BoxFuture<'a, quaymaster_store::Result<bool>> {
        unanswered()
    }

    fn key_facts<'a>(&'a self, _: &'a [u8]) -> BoxFuture<'a, quaymaster_store::Result<Option<KeyFacts>>> {
        unanswered()
    }

    fn scan<'a>(
        &'a self,
        _: &'a [u8],
        _: usize,
        _: Option<ScanCursor>,
    ) -> BoxFuture<'a, quaymaster_store::Result<ScanPage>> {
        unanswered()
    }

    fn health(&self) -> Health {
        Health::default()
    }

    fn deployment(&self) -> BoxFuture<'_, quaymaster_store::Result<Deployment>> {
        unanswered()
    }

    fn close(&self) -> BoxFuture<'_, quaymaster_store::Result<()>> {
        unanswered()
    }
}
