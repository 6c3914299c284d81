//! How much memory an idempotency key takes: a million of them on a fresh Redis, by `used_memory`.

use anyhow::{Context as _, Result, ensure};
use futures_util::stream::{self, TryStreamExt as _};
use tokio::runtime::Runtime;

use super::direct::{Direct, SCHEMA};
use super::documented::Documented;
use super::mix::{AMOUNT, MERCHANT_PROVIDER, Mix, RESPONSE, STATUS};
use crate::Settings;
use crate::process::Redis;

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// Fingerprint and encrypted response.
    WithResponse,
    /// Fingerprint alone.
    WithoutResponse,
    /// Declared `compact`.
    Compact,
    /// The document's `"1"`.
    One,
}

/// Bytes per key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weight {
    pub(crate) record: Record,
    pub(crate) bytes: f64,
}

impl Record {
    pub(crate) const ALL: [Record; 4] =
        [Record::WithResponse, Record::WithoutResponse, Record::Compact, Record::One];

    pub(crate) fn name(self) -> String {
        match self {
            Record::WithResponse => format!("finished, response of {} bytes, encrypted", RESPONSE.len()),
            Record::WithoutResponse => "finished, without a response".into(),
            Record::Compact => "finished, `compact`".into(),
            Record::One => "the documented `\"1\"`".into(),
        }
    }
}

/// Fills a fresh Redis with `settings.many` keys of every record in turn.
pub(crate) fn weigh(settings: &Settings, runtime: &Runtime) -> Result<Vec<Weight>> {
    Record::ALL.into_iter().map(|record| one(settings, runtime, record)).collect()
}

fn one(settings: &Settings, runtime: &Runtime, record: Record) -> Result<Weight> {
    let folder = settings.folder()?;
    let redis = Redis::start(folder.path(), None::<&str>)?;
    let mix = Mix::new();
    let direct = runtime.block_on(Direct::connect(&redis, &schema(record)))?;
    let documented = Documented::new(redis.port);
    let fill = |from: u64, to: u64| {
        let numbers = stream::iter((from..to).map(anyhow::Ok));
        let put = |number| put(record, &direct, &documented, &mix, number);
        runtime.block_on(numbers.try_for_each_concurrent(64, put))
    };
    // Scripts, connections and their buffers are there before anything is weighed.
    let (warm, many) = (1_000, settings.many);
    fill(0, warm)?;
    let before = used_memory(&redis)?;
    fill(warm, warm + many)?;
    let after = used_memory(&redis)?;
    let held: u64 = redis::cmd("DBSIZE").query(&mut redis.connect()?)?;
    ensure!(held == warm + many, "{record:?}: {held} keys instead of {}", warm + many);
    let bytes = after.saturating_sub(before) as f64 / many as f64;
    eprintln!("psp: {}: {bytes:.1} bytes a key", record.name());
    Ok(Weight { record, bytes })
}

/// One key; the four shapes of the document in turn.
async fn put(record: Record, direct: &Direct, documented: &Documented, mix: &Mix, number: u64) -> Result<()> {
    let (transaction, psp_transaction) = (mix.transaction_id(number), Mix::psp_transaction_id(number));
    let (psp, qr) = (format!("PSP{:03}", number % 1_000), format!("QR{number:09}"));
    let (name, key): (_, Vec<(&str, &str)>) = match number % 4 {
        0 => {
            let key = vec![
                ("psp_id", psp.as_str()),
                ("merchant_provider", MERCHANT_PROVIDER),
                ("qr_tx_id", &qr),
                ("amount", AMOUNT),
            ];
            ("check", key)
        }
        1 => ("create", vec![("psp_transaction_id", &psp_transaction)]),
        2 => ("execute", vec![("transaction_id", &transaction)]),
        _ => ("update", vec![("transaction_id", &transaction), ("status", STATUS)]),
    };
    if record == Record::One {
        let values: Vec<&str> = key.iter().map(|(_, value)| *value).collect();
        return documented.first(&format!("idem:{name}:{}", values.join(":")), "86400").await;
    }
    let token = direct.begin(name, &key, &transaction).await?;
    let response = (record == Record::WithResponse).then_some(RESPONSE);
    direct.finish(name, &key, &token, response).await
}

/// The psp schema, compact if asked. A check lives as long as the rest: its two minutes could end during a fill.
fn schema(record: Record) -> String {
    let schema = SCHEMA.replace("ttl = \"120s\"", "ttl = \"24h\"");
    if record != Record::Compact {
        return schema;
    }
    let more = |line: &str| if line.starts_with("[idempotency.") { "\ncompact = true\n" } else { "\n" };
    schema.lines().flat_map(|line| [line, more(line)]).collect()
}

fn used_memory(redis: &Redis) -> Result<u64> {
    let info: String = redis::cmd("INFO").arg("memory").query(&mut redis.connect()?)?;
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).context("no used_memory")?;
    Ok(line.trim().parse()?)
}
