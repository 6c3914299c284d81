//! The mix through the crate: one call an operation.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use quaymaster::cache::{Fetched, Put, Stored, Value};
use quaymaster::guard::{Enter, Entered, Leave};
use quaymaster::idempotency::{Begin, Begun, Finished};
use quaymaster::lock::{Acquire, Acquired, Released};
use quaymaster::schema::{Source, load};
use quaymaster::{Key, Quaymaster, Seal, Settings, Token};
use quaymaster_store::redis::{RedisOptions, RedisStore};

use super::book::Lap;
use super::mix::{AMOUNT, MERCHANT_PROVIDER, Operation, RESPONSE, STATUS, Step, TIMESTAMP};
use crate::process::Redis;

/// The reference system's own schema, limits and lifetimes included.
pub(super) const SCHEMA: &str = include_str!("../../../systems/psp/schema.toml");
/// Kept responses are encrypted, as the schema asks. A key for measurements only.
pub(super) const SEAL_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The psp schema on a Redis.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(super) psp: Quaymaster,
}

impl Direct {
    pub(crate) async fn connect(redis: &Redis, schema: &str) -> Result<Self> {
        let loaded = load(&[Source { name: "psp/schema.toml", text: schema }], &|_| None);
        let schema = loaded.schema.with_context(|| format!("{:?}", loaded.diagnostics))?;
        let engine = RedisStore::connect(RedisOptions::from_url(&redis.url())?).await?;
        let settings = Settings { seal: Seal::from_text(SEAL_KEY)?, ..Settings::default() };
        Ok(Self { psp: Quaymaster::with(Arc::new(schema), Arc::new(engine), settings) })
    }

    pub(crate) async fn step(&self, step: Step, mut lap: Lap<'_>) -> Result<()> {
        match step {
            Step::Check { psp_id, qr_tx_id } => {
                let key = [
                    ("psp_id", psp_id.as_str()),
                    ("merchant_provider", MERCHANT_PROVIDER),
                    ("qr_tx_id", &qr_tx_id),
                    ("amount", AMOUNT),
                ];
                let token = self.begin("check", &key, &qr_tx_id).await?;
                lap.done(Operation::Begin);
                self.finish("check", &key, &token, Some(RESPONSE)).await?;
                lap.done(Operation::Finish);
            }
            Step::Create { psp_id, psp_transaction_id } => {
                let key = [("psp_id", psp_id.as_str()), ("psp_transaction_id", &psp_transaction_id)];
                self.guarded("create", &key, &psp_transaction_id, lap).await?;
            }
            Step::Execute { psp_id, transaction_id } => {
                let key = [("psp_id", psp_id.as_str()), ("transaction_id", &transaction_id)];
                self.guarded("execute", &key, &transaction_id, lap).await?;
            }
            Step::Update { transaction_id } => {
                let record = [("transaction_id", transaction_id.as_str()), ("status", STATUS)];
                let lock = &record[..1];
                let claim = self.begin("update", &record, &transaction_id).await?;
                lap.done(Operation::Begin);
                let updates = self.psp.lock("update")?;
                let lease = match updates.acquire(lock, Acquire::default()).await? {
                    Acquired::Ours(lease) if lease.outage.is_none() => lease,
                    other => bail!("lock.update: {other:?}"),
                };
                lap.done(Operation::Acquire);
                let released = updates.release(lock, &lease.token, None).await?;
                ensure!(released == Released::Released, "lock.update: {released:?}");
                lap.done(Operation::Release);
                self.finish("update", &record, &claim, Some(RESPONSE)).await?;
                lap.done(Operation::Finish);
            }
            Step::Status { transaction_id } => self.status(&transaction_id, lap).await?,
        }
        Ok(())
    }

    pub(super) async fn begin(&self, name: &str, key: Key<'_>, request: &str) -> Result<Token> {
        let begin = Begin { fingerprint: Some(request.as_bytes()), ..Begin::default() };
        match self.psp.idempotency(name)?.begin(key, begin).await? {
            Begun::Started(claim) if claim.outage.is_none() => Ok(claim.token),
            other => bail!("idempotency.{name}: {other:?}"),
        }
    }

    pub(super) async fn finish(
        &self,
        name: &str,
        key: Key<'_>,
        token: &Token,
        response: Option<&str>,
    ) -> Result<()> {
        match self.psp.idempotency(name)?.finish(key, token, response.map(str::as_bytes)).await? {
            Finished::Finished { outage: None, .. } => Ok(()),
            other => bail!("idempotency.{name}: {other:?}"),
        }
    }

    async fn guarded(&self, name: &str, key: Key<'_>, request: &str, mut lap: Lap<'_>) -> Result<()> {
        let guard = self.psp.guard(name)?;
        let enter = Enter { fingerprint: Some(request.as_bytes()), ..Enter::default() };
        let pass = match guard.enter(key, enter).await? {
            Entered::Entered(pass) if pass.outage.is_none() => pass,
            other => bail!("guard.{name}: {other:?}"),
        };
        lap.done(Operation::Enter);
        let leave = Leave { response: Some(RESPONSE.as_bytes()), ..Leave::default() };
        let left = guard.leave(key, &pass.token, leave).await?;
        ensure!(!left.lost_any() && left.outage.is_none(), "guard.{name}: {left:?}");
        lap.done(Operation::Leave);
        Ok(())
    }

    async fn status(&self, transaction_id: &str, mut lap: Lap<'_>) -> Result<()> {
        let (cache, key) = (self.psp.cache("status")?, [("transaction_id", transaction_id)]);
        let found = cache.get(&key).await?;
        lap.done(Operation::Get);
        match found {
            Fetched::Hit(_) => {}
            Fetched::Miss { outage: None } => {
                let fields = [("status", "SUCCESS"), ("amount", AMOUNT), ("timestamp", TIMESTAMP)];
                let stored = cache.put(&key, &Value::fields(fields), Put::default()).await?;
                ensure!(stored == Stored::Stored, "cache.status: {stored:?}");
                lap.done(Operation::Put);
            }
            other @ Fetched::Miss { .. } => bail!("cache.status: {other:?}"),
        }
        Ok(())
    }
}
