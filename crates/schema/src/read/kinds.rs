//! Reading idempotencies, guards and stats.

use std::time::Duration;

use super::common::{Body, Reading};
use super::draft::ChannelDraft;
use crate::field::guard::MOST_LIMITS;
use crate::field::{self, Period, Spec};
use crate::keys::{idempotency_rows, stats_rows};
use crate::kind::Kind;
use crate::pattern::Template;
use crate::spec::{GuardSpec, IdempotencySpec, StatsSpec};

pub(crate) fn idempotency(reading: &mut Reading<'_, '_>) -> Option<Body> {
    use field::idempotency as declared;

    let fields = &reading.fields;
    let key = reading.key(&declared::KEY);
    let ttl = reading.lifetime(&declared::TTL, None);
    let claim = fields.read(&declared::IN_PROGRESS_TTL);
    let claim_at = claim.at();
    let in_progress_ttl = claim.option().unwrap_or(declared::IN_PROGRESS_TTL.presence.0);
    let max_response = fields.read(&declared::MAX_RESPONSE);
    let replay_errors = fields.or_default(&declared::REPLAY_ERRORS);
    let compact = fields.or_default(&declared::COMPACT);
    if let (true, Some(at)) = (compact, max_response.at()) {
        let message = "a compact record keeps no response, so `max_response` bounds nothing";
        reading.add(at, "contradiction", message, Some("drop `max_response`, or `compact`"));
    }
    let max_response = max_response.option().unwrap_or(declared::MAX_RESPONSE.presence.0);
    let max_response = if compact { 0 } else { max_response };
    let ((key, key_at), (ttl, ttl_at)) = (key?, ttl?);
    if key.bucket().is_some() {
        // Begun in one bucket and finished in the next, it would be two records.
        let message = "an operation that crosses the edge of a time bucket would run twice";
        reading.add(
            key_at,
            "bad-pattern",
            message,
            Some("take the bucket out of the key; `ttl` ends the record"),
        );
    }
    if ttl < in_progress_ttl {
        let message = "the record would expire before the claim that is still in progress";
        reading.add(
            claim_at.unwrap_or(ttl_at),
            "ttl-shorter-than-window",
            message,
            Some("make `ttl` at least `in_progress_ttl` (60s unless given)"),
        );
    }
    let spec = IdempotencySpec { ttl, in_progress_ttl, max_response, replay_errors, compact };
    let done = ChannelDraft::hint(&key, "done", "The end of a claim, for those who wait for it");
    let rows = idempotency_rows(key, &spec);
    let mut body = Body::new(Spec::Idempotency(spec), rows, key_at);
    body.channels.push(done);
    Some(body)
}

#[expect(clippy::unnecessary_wraps, reason = "as every kind is read")]
pub(crate) fn guard(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let mut limits = reading.fields.or_default(&field::guard::LIMITS);
    if let Some((_, at)) = limits.get(MOST_LIMITS) {
        let message = format!("a guard takes at most {MOST_LIMITS} limits, not {}", limits.len());
        reading.add(*at, "bad-value", message, Some("one step takes them all; drop some or use two guards"));
        limits.truncate(MOST_LIMITS);
    }
    let idempotency = reading.fields.read(&field::guard::IDEMPOTENCY);
    let lock = reading.fields.read(&field::guard::LOCK);
    for (index, (name, at)) in limits.iter().enumerate() {
        if limits[..index].iter().any(|(before, _)| before == name) {
            let message = format!("the limit {} is entered twice", crate::diagnostic::excerpt(name));
            reading.add(*at, "contradiction", message, None);
        }
        reading.refer(Kind::Limit, name, *at);
    }
    for (kind, part) in [(Kind::Idempotency, &idempotency), (Kind::Lock, &lock)] {
        if let super::fields::Got::Value(name, at) = part {
            reading.refer(kind, name, *at);
        }
    }
    let spec = GuardSpec {
        limits: limits.into_iter().map(|(name, _)| name).collect(),
        idempotency: idempotency.option(),
        lock: lock.option(),
    };
    if reading.references.is_empty() {
        let message = format!("[{}] guards nothing", reading.fields.path);
        reading.add(
            reading.fields.at,
            "missing-field",
            message,
            Some("name `limits`, an `idempotency` or a `lock`"),
        );
    }
    Some(Body::new(Spec::Guard(spec), Vec::new(), reading.fields.at))
}

pub(crate) fn stats(reading: &mut Reading<'_, '_>) -> Option<Body> {
    use field::stats as declared;

    let fields = &reading.fields;
    let (base, key_at) = fields.placed(&declared::KEY);
    let base = format!("{}{base}", reading.document.prefix);
    let flush = fields.or_default(&declared::FLUSH);
    // Shorter than two flushes, an instance would be gone between them.
    let mut heartbeat = declared::HEARTBEAT;
    heartbeat.holds = Period { least: 2 * flush, ..heartbeat.holds };
    let usual = (3 * flush).max(Duration::from_secs(5));
    let spec = StatsSpec {
        max_endpoints: fields.or_default(&declared::MAX_ENDPOINTS),
        samples: fields.or_default(&declared::SAMPLES),
        flush,
        heartbeat: fields.read(&heartbeat).option().unwrap_or(usual),
        max_instances: fields.or_default(&declared::MAX_INSTANCES),
        fold_ids: fields.or_default(&declared::FOLD_IDS),
        ignore_remote: fields
            .or_default(&declared::IGNORE_REMOTE)
            .into_iter()
            .map(|(remote, _)| remote)
            .collect(),
    };
    // The base is text in front of many keys, so it must be text that a key may have.
    match Template::parse(&format!("{base}stats")) {
        Ok(tag) if tag.names().next().is_none() && tag.bucket().is_none() => {
            let rows = stats_rows(&base, &tag, &spec);
            let mut body = Body::new(Spec::Stats(spec), rows, key_at);
            body.tag = tag;
            Some(body)
        }
        Ok(_) => {
            reading.add(
                key_at,
                "bad-pattern",
                "the `key` of stats is the text in front of its keys, without placeholders",
                None,
            );
            None
        }
        Err(fault) => {
            reading.add(key_at, fault.code, fault.message, None);
            None
        }
    }
}
