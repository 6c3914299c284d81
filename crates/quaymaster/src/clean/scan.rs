//! The walk: indexes first, then every key of the store, a page at a time.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use quaymaster_schema::{Bucket, KeyRow, Resource, Spec};
use quaymaster_store::{Engine, ScanCursor};
use tokio::time::Instant;

use super::judge::{Number, Verdict, can_err, judge, number};
use super::log::Deletions;
use super::{Ask, Finding, Mode, Report, What, ops};
use crate::bound::{spelling, unspellable};
use crate::{Code, Error, Quaymaster, Result};

const OP: &str = "clean.scan";

/// Keys of one page of the scan.
const PAGE: usize = 500;
/// Members of an index looked at in one step.
const MEMBERS: u64 = 200;
/// Questions on their way at once.
const AT_ONCE: usize = 16;
/// The longest cursor a caller may hand in.
const CURSOR_MAX: usize = 1024;

pub(super) async fn run(quaymaster: &Quaymaster, ask: Ask, mut told: impl FnMut(&Report)) -> Result<Report> {
    if ask.rate == 0 {
        return Err(
            Error::new(OP, Code::RequestInvalid, "rate: at least 1 key a second, got 0").field("rate")
        );
    }
    let wanted = wanted(quaymaster, &ask)?;
    let mut cursor = ask.from.as_deref().map(cursor).transpose()?;
    let engine = quaymaster.engine();
    // One measurement, so that a node whose clock is wrong judges by the store's all the same.
    engine.time_us().await.map_err(|error| error.during(OP))?;
    let mut walk = Walk {
        quaymaster,
        engine,
        mode: ask.mode,
        fences: if ask.only.is_some() { ask.mode } else { Mode::Look },
        report: Report::default(),
        pace: Pace::new(ask.rate),
        deletions: Deletions::default(),
    };
    if cursor.is_none() {
        for resource in &wanted {
            walk.indexes(resource).await?;
        }
    }
    let glob = glob(&wanted, engine.as_ref());
    loop {
        let page = engine.scan(&glob, PAGE, cursor.take()).await.map_err(stopped)?;
        let seen = page.keys.len() as u64;
        walk.page(&wanted, page.keys).await?;
        told(&walk.report);
        let Some(next) = page.next else { break };
        let enough = ask.most.is_some_and(|most| walk.report.examined >= most);
        if enough || ask.stop.is_cancelled() {
            walk.report.next = Some(BASE64.encode(&next.0));
            break;
        }
        cursor = Some(next);
        // A page that matched nothing was a walk over as many keys nevertheless.
        tokio::select! {
            () = walk.pace.rest(seen.max(PAGE as u64)) => {}
            () = ask.stop.cancelled() => {}
        }
    }
    Ok(walk.report)
}

fn wanted(quaymaster: &Quaymaster, ask: &Ask) -> Result<Vec<Arc<Resource>>> {
    let schema = quaymaster.schema();
    match &ask.only {
        None => Ok(schema.resources().cloned().collect()),
        Some((kind, name)) => match schema.resource(*kind, name) {
            Some(resource) => Ok(vec![resource.clone()]),
            None => Err(quaymaster.unknown(*kind, name)),
        },
    }
}

fn cursor(text: &str) -> Result<ScanCursor> {
    let bytes = Some(text).filter(|text| text.len() <= CURSOR_MAX).and_then(|text| BASE64.decode(text).ok());
    let wrong = || {
        Error::new(
            OP,
            Code::RequestInvalid,
            "from: no scan gave this out; give `next` as it was told, or begin again without --from",
        )
        .field("from")
    };
    bytes.map(ScanCursor).ok_or_else(wrong)
}

/// What ended the walk; a cursor that the store does not know, in the words of whoever gave it.
fn stopped(mut error: Error) -> Error {
    if error.code == Code::RequestInvalid {
        error.detail = format!("from: {} (--from)", error.detail);
        error = error.field("from");
    }
    error.during(OP)
}

/// Finds every key of these resources, and others with them: what they have in common is the head of their names, or
/// of the hash tag in front.
fn glob(wanted: &[Arc<Resource>], engine: &dyn Engine) -> Vec<u8> {
    let spelled = spelling(engine.topology());
    let rows = wanted.iter().flat_map(|resource| &resource.keys);
    let heads = rows.map(|row| {
        let head = row.pattern.literal_head(spelled);
        match head.split_once('{') {
            // `ha:{ha:rate_limit:` and `ha:rate_limit:` have the second in common.
            Some((prefix, tag)) if tag.starts_with(prefix) => tag,
            _ => head,
        }
    });
    let common = heads.reduce(|one, two| {
        let same = one.bytes().zip(two.bytes()).take_while(|(one, two)| one == two).count();
        // Within a character there is no end to cut at.
        (0..=same).rev().find_map(|at| one.get(..at)).unwrap_or_default()
    });
    let mut glob = b"*".to_vec();
    for byte in common.unwrap_or_default().bytes() {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^') {
            glob.push(b'\\');
        }
        glob.push(byte);
    }
    if glob.len() > 1 {
        glob.push(b'*');
    }
    glob
}

struct Walk<'a> {
    quaymaster: &'a Quaymaster,
    engine: &'a Arc<dyn Engine>,
    mode: Mode,
    fences: Mode,
    report: Report,
    pace: Pace,
    deletions: Deletions,
}

impl Walk<'_> {
    async fn page(&mut self, wanted: &[Arc<Resource>], keys: Vec<Bytes>) -> Result<()> {
        self.report.examined += keys.len() as u64;
        let schema = self.quaymaster.schema();
        let mut doubtful = Vec::new();
        for key in keys {
            let Some(found) = schema.explain(&key) else { continue };
            if !wanted.iter().any(|resource| Arc::ptr_eq(resource, found.resource)) {
                continue;
            }
            self.report.declared += 1;
            doubtful.push((found.resource, found.row, found.bucket, key));
        }
        let (engine, mode) = (self.engine, self.mode);
        // Boxed one by one: a closure over borrowed keys would make the whole walk no task of its own.
        let mut looks: Vec<BoxFuture<'_, Result<Option<Finding>>>> = Vec::with_capacity(doubtful.len());
        for (resource, row, bucket, key) in doubtful {
            if let Some(number) = number(resource.kind, row) {
                let mode = if number == Number::Fence { self.fences } else { mode };
                looks.push(Box::pin(look_at_number(engine, mode, resource, row, number, key.clone())));
            }
            if can_err(resource.kind, row) {
                looks.push(Box::pin(look(engine, mode, resource, row, bucket, key)));
            }
        }
        let mut looked = futures_util::stream::iter(looks).buffer_unordered(AT_ONCE);
        while let Some(finding) = looked.next().await {
            if let Some(finding) = finding? {
                self.deletions.note(&finding);
                self.report.note(finding);
            }
        }
        Ok(())
    }

    /// The indexes of one resource; those of other kinds are repaired by the sweeps that read them.
    async fn indexes(&mut self, resource: &Arc<Resource>) -> Result<()> {
        let (Spec::Run(spec), Some(state)) = (&resource.spec, resource.key("state")) else { return Ok(()) };
        for index in ["runs", "live", "kept"].iter().filter_map(|role| resource.key(role)) {
            self.index(resource, index, state, &spec.id).await?;
        }
        Ok(())
    }

    /// An index whose members are values of the placeholder `id` of the keys it names.
    async fn index(
        &mut self,
        resource: &Arc<Resource>,
        index: &KeyRow,
        named: &KeyRow,
        id: &str,
    ) -> Result<()> {
        let index_key = self.spelled(index, &[])?;
        let mut offset = 0;
        loop {
            let call = ops::members(&index_key, offset, MEMBERS)?;
            let page = ops::listed(self.engine.run(call).await.map_err(|error| error.during(ops::MEMBERS))?)?;
            let (seen, mut gone) = (page.len() as u64, Vec::new());
            for (member, score) in page {
                let value = String::from_utf8_lossy(&member).into_owned();
                // A member that nobody of ours could have written is not ours to judge.
                let Ok(key) = self.spelled(named, &[(id, &value)]) else { continue };
                let facts = self.engine.key_facts(&key).await.map_err(|error| error.during(OP))?;
                if facts.is_none() {
                    gone.push((member, score, value));
                }
            }
            let pruned = self.prune(&index_key, &gone).await?;
            for (at, (_, _, member)) in gone.iter().enumerate() {
                self.report.note(Finding {
                    key: String::from_utf8_lossy(&index_key).into_owned(),
                    resource: format!("{}.{}", resource.kind, resource.name),
                    role: index.role,
                    what: What::Dangling,
                    member: Some(member.clone()),
                    done: (at as u64) < pruned,
                });
            }
            if seen < MEMBERS {
                return Ok(());
            }
            offset += seen - pruned;
            self.pace.rest(seen).await;
        }
    }

    async fn prune(&self, index: &[u8], gone: &[(Bytes, Bytes, String)]) -> Result<u64> {
        if self.mode == Mode::Look || gone.is_empty() {
            return Ok(0);
        }
        let reply = self.engine.run(ops::prune(index, gone)?).await;
        ops::pruned(reply.map_err(|error| error.during(ops::PRUNE))?)
    }

    fn spelled(&self, row: &KeyRow, values: &[(&str, &str)]) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        let spelled = spelling(self.engine.topology());
        row.pattern
            .render(values, self.engine.now_us(), spelled, &mut key)
            .map_err(|error| unspellable(OP, error))?;
        Ok(key)
    }
}

/// Looks at one key, and puts it right.
async fn look(
    engine: &Arc<dyn Engine>,
    mode: Mode,
    resource: &Arc<Resource>,
    row: &KeyRow,
    bucket: Option<Bucket>,
    key: Bytes,
) -> Result<Option<Finding>> {
    let facts = engine.key_facts(&key).await.map_err(|error| error.during(OP))?;
    let Some(verdict) = facts.and_then(|facts| judge(row, bucket, &facts, engine.now_us() / 1000)) else {
        return Ok(None);
    };
    let apply = mode == Mode::Apply;
    let run = async |op: &'static str, call| engine.run(call).await.map_err(|error| error.during(op));
    let (what, done) = match verdict {
        Verdict::Stale { over_ms } if apply => {
            let reply = run(ops::REMOVE, ops::remove(&key, row.kind, over_ms)?).await?;
            (What::Stale, ops::removed(reply)?)
        }
        Verdict::Immortal { ttl_ms } if apply => {
            let reply = run(ops::HEAL, ops::heal(&key, row.kind, ttl_ms)?).await?;
            (What::Immortal, ops::healed(reply)?)
        }
        Verdict::Stale { .. } => (What::Stale, false),
        Verdict::Immortal { .. } => (What::Immortal, false),
        Verdict::OtherType => (What::OtherType, false),
    };
    Ok(Some(Finding {
        key: String::from_utf8_lossy(&key).into_owned(),
        resource: format!("{}.{}", resource.kind, resource.name),
        role: row.role,
        what,
        member: None,
        done,
    }))
}

/// Looks whether calls can go on from the number in a key, and takes it away otherwise.
async fn look_at_number(
    engine: &Arc<dyn Engine>,
    mode: Mode,
    resource: &Arc<Resource>,
    row: &KeyRow,
    number: Number,
    key: Bytes,
) -> Result<Option<Finding>> {
    let reply = engine.run(ops::reset(&key, number, mode)?).await;
    let reset = ops::numbered(reply.map_err(|error| error.during(ops::RESET))?)?;
    Ok(reset.map(|done| Finding {
        key: String::from_utf8_lossy(&key).into_owned(),
        resource: format!("{}.{}", resource.kind, resource.name),
        role: row.role,
        what: What::Unusable,
        member: number.field().map(str::to_owned),
        done,
    }))
}

/// No faster than so many keys a second.
struct Pace {
    rate: u32,
    due: Instant,
}

impl Pace {
    fn new(rate: u32) -> Self {
        Self { rate, due: Instant::now() }
    }

    /// Until `keys` more may be looked at; a time in which nothing was done is not made up for.
    async fn rest(&mut self, keys: u64) {
        let takes = Duration::from_secs_f64(keys as f64 / f64::from(self.rate));
        self.due = self.due.max(Instant::now().checked_sub(takes).unwrap_or(self.due)) + takes;
        tokio::time::sleep_until(self.due).await;
    }
}
