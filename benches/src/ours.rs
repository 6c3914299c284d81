//! Our side: the crate's `limit take` on one store or the other.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use futures_util::TryStreamExt as _;
use futures_util::stream;
use quaymaster::limit::{Charge, Verdict};
use quaymaster::schema::{Source, load};
use quaymaster::{Engine, Quaymaster};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use tokio::runtime::Runtime;

pub(crate) use quaymaster_store::embedded::Durability;

use crate::process::Redis;

/// The schema of every contestant.
pub(crate) const SCHEMA: &str = include_str!("../schema.toml");

/// What `take` is called on. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Limiter {
    quaymaster: Quaymaster,
}

/// A caller's name: twelve digits, as redis-benchmark makes them.
pub(crate) fn caller(number: u64) -> String {
    format!("{number:012}")
}

/// The embedded store without a disk.
pub(crate) fn memory_engine(runtime: &Runtime) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(runtime.block_on(EmbeddedStore::memory(EmbeddedOptions::default()))?))
}

impl Limiter {
    pub(crate) fn on(engine: Arc<dyn Engine>) -> Result<Self> {
        let loaded = load(&[Source { name: "benches/schema.toml", text: SCHEMA }], &|_| None);
        let schema = loaded.schema.with_context(|| format!("{:?}", loaded.diagnostics))?;
        Ok(Self { quaymaster: Quaymaster::new(Arc::new(schema), engine) })
    }

    /// On Redis, with the settings a service would have by default.
    pub(crate) fn redis(runtime: &Runtime, redis: &Redis) -> Result<Self> {
        let options = RedisOptions::from_url(&redis.url())?;
        Self::on(Arc::new(runtime.block_on(RedisStore::connect(options))?))
    }

    pub(crate) fn memory(runtime: &Runtime) -> Result<Self> {
        Self::on(memory_engine(runtime)?)
    }

    pub(crate) fn disk(runtime: &Runtime, folder: &Path, durability: Durability) -> Result<Self> {
        let options = EmbeddedOptions { durability, ..EmbeddedOptions::default() };
        Self::on(Arc::new(runtime.block_on(EmbeddedStore::open(folder, options))?))
    }

    /// Ends the store's work and, on disk, makes everything durable.
    pub(crate) fn close(&self, runtime: &Runtime) -> Result<()> {
        Ok(runtime.block_on(self.quaymaster.engine().close())?)
    }

    /// One take of one caller. A refusal is a failure here: the schema's limit is never reached.
    pub(crate) async fn take(self, number: u64) -> Result<()> {
        let mut digits = [b'0'; 12];
        let name = twelve_digits(number, &mut digits);
        match self.quaymaster.limit("spread")?.take(&[("id", name)], Charge::one()).await? {
            Verdict::Allowed(_) => Ok(()),
            refused @ Verdict::Limited { .. } => bail!("{name} was refused: {refused:?}"),
        }
    }

    /// Takes once for every caller, so that all their keys exist.
    pub(crate) fn fill(&self, runtime: &Runtime, callers: u64) -> Result<()> {
        let takes = stream::iter((0..callers).map(anyhow::Ok));
        runtime.block_on(takes.try_for_each_concurrent(256, |number| self.clone().take(number)))
    }
}

/// [`caller`] without an allocation: the client's own work is part of what is measured.
fn twelve_digits(mut number: u64, digits: &mut [u8; 12]) -> &str {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    std::str::from_utf8(digits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_redis_benchmark_spells_them() {
        for number in [0, 7, 999_999, 123_456_789_012] {
            assert_eq!(twelve_digits(number, &mut [0; 12]), caller(number));
        }
    }
}
