//! What a call brings along now and then: the hour, its keys and its count.

use quaymaster_schema::{Algorithm, Bucket};
use quaymaster_store::{Topology, Words};

use super::{Run, keys, ops};
use crate::outage::is_outage;
use crate::{Result, json, moment};

/// The hour as a script renders it into the documented hash.
#[derive(Debug, Clone)]
pub(super) struct Pulse {
    /// `2024-09-17_14`.
    pub(super) hour: String,
    /// The first millisecond of it, and the first after it.
    pub(super) bucket: Bucket,
    /// The documented `redis_keys`, as JSON.
    pub(super) keys: String,
    /// What the limit has counted, where the script cannot read it; `None` where nobody could be asked either.
    pub(super) calls: Option<u64>,
    /// The limit's key, where it can.
    pub(super) counter: Option<Words>,
}

impl Run {
    /// Whether the keys of the hour and the indexes are written by the run's own script.
    pub(super) fn is_whole(&self) -> bool {
        self.bound.engine.topology() == Topology::Single
    }

    /// What belongs to the hour of `now_us`.
    pub(super) async fn pulse(&self, op: &'static str, id: &str, now_us: i64) -> Result<Pulse> {
        let (failed, bucket) = keys::hour(op, &self.bound, now_us)?;
        let own = [(&*self.spec.id, id)];
        let state = self.bound.role(op, "state", &own)?;
        let mut texts = vec![
            ("state_key", keys::text(op, &self.bound, state)?),
            ("failed_key", keys::text(op, &self.bound, failed)?),
        ];
        let (mut calls, mut counter) = (Some(0), None);
        if let Some(limit) = &self.limit {
            let mut key = Words::default();
            limit.bound.bind(op, &[], now_us, &mut key)?;
            texts.insert(1, ("counter_key", word(&key)));
            if self.is_whole() && limit.spec().algorithm == Algorithm::FixedWindow {
                (calls, counter) = (None, Some(key));
            } else {
                let mut counted_us = now_us;
                let peeked = limit.peek_at(&[], &mut counted_us).await;
                let same_hour = keys::hour(op, &self.bound, counted_us)?.1 == bucket;
                calls = match peeked {
                    Ok(verdict) if same_hour && verdict.quota().outage.is_none() => {
                        Some(verdict.quota().used)
                    }
                    // A policy's count, or one of another hour, must not stand beside this hour.
                    Ok(_) => None,
                    // What a worker did must not be lost because its limit, elsewhere, cannot be asked.
                    Err(error) if is_outage(error.code) && op != ops::START => None,
                    Err(error) => return Err(error.during(op)),
                };
            }
        }
        Ok(Pulse { hour: hour_text(bucket.start_ms), bucket, keys: object(&texts), calls, counter })
    }
}

fn word(words: &Words) -> String {
    String::from_utf8_lossy(words.word(0).unwrap_or_default()).into_owned()
}

fn object(texts: &[(&str, String)]) -> String {
    let mut out = String::from("{");
    for (index, (name, text)) in texts.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        json::push_text(&mut out, name);
        out.push_str(": ");
        json::push_text(&mut out, text);
    }
    out.push('}');
    out
}

/// `2024-09-17_14`, as the documents write an hour.
pub(super) fn hour_text(start_ms: i64) -> String {
    moment::document_text(start_ms * 1000)[..13].replace('T', "_")
}
