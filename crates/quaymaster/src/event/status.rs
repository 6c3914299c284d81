//! The status of a system, published now and then by whichever node's turn it is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::{Event, ops};
use crate::scripts::{event_depth, event_report, event_turn};
use crate::{Code, Error, Result, json, moment};

/// How many values may be reported at a time.
pub const MAX_REPORTED: usize = 64;

/// The longest name of a reported value, and its longest JSON.
const NAME_MAX: usize = 64;
const JSON_MAX: usize = 4096;

/// How long a reported value counts, at most.
const LONGEST: Duration = Duration::from_secs(86_400);

/// What the status itself tells; nobody reports these.
const OURS: [&str; 2] = ["timestamp", "queue_depths"];

/// The answer of [`Event::tell_status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The status was published.
    Published {
        /// How many got it, as the store counts them.
        receivers: u64,
    },
    /// Somebody has published the status of this interval.
    NotYet {
        /// When the interval ends.
        left: Duration,
    },
}

impl Event {
    /// Leaves values that statuses tell from now on, each for `ttl` (a minute unless given). A later report of the
    /// same name takes its place; several programs may report, each its own names.
    pub async fn report(&self, values: &[(&str, &str)], ttl: Option<Duration>) -> Result<()> {
        let reported = self.leave(values, ttl.unwrap_or(Duration::from_secs(60))).await;
        if reported.is_err() {
            self.counts.errors.fetch_add(1, Relaxed);
        }
        reported
    }

    async fn leave(&self, values: &[(&str, &str)], ttl: Duration) -> Result<()> {
        const OP: &str = ops::REPORT;
        if self.spec.status.is_none() {
            return Err(without_status(OP, self.name()));
        }
        let refuse = |field: &'static str, detail: String| {
            Err(Error::new(OP, Code::RequestInvalid, detail).field(field))
        };
        if ttl < Duration::from_millis(1) || ttl > LONGEST {
            return refuse("ttl_ms", "ttl_ms: a value counts for 1 ms to 24 h".to_owned());
        }
        for (name, text) in values {
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
            if name.is_empty() || name.len() > NAME_MAX || !plain || OURS.contains(name) {
                return refuse(
                    "data",
                    format!(
                        "data: a name is 1 to {NAME_MAX} letters, digits, `_`, `-` and `.`, and none of {OURS:?}"
                    ),
                );
            }
            if text.len() > JSON_MAX {
                let detail = format!("data.{name} has {} bytes; the most is {JSON_MAX}", text.len());
                return Err(Error::new(OP, Code::RequestTooLarge, detail).field(format!("data.{name}")));
            }
            if let Err(why) = json::check(text.as_bytes()) {
                let detail = format!("data.{name} is not JSON: {why}");
                let field = format!("data.{name}");
                return Err(Error::new(OP, Code::RequestInvalid, detail).field(field).because(why));
            }
        }
        if values.is_empty() || values.len() > MAX_REPORTED {
            return refuse("data", format!("data: 1 to {MAX_REPORTED} values, got {}", values.len()));
        }
        let call = ops::report(&self.bound, values, ttl, MAX_REPORTED)?;
        match event_report::Reply::read(OP, self.bound.run(OP, call).await?)? {
            event_report::Reply::Reported { .. } => Ok(()),
            event_report::Reply::Full { .. } => {
                let detail = format!("data: more than {MAX_REPORTED} names would be reported at a time");
                Err(Error::new(OP, Code::EventFull, detail).field("data"))
            }
        }
    }

    /// Publishes the status of this interval, unless some node has: whoever asks first after the last interval's end
    /// does. A node that dies between its turn and its message leaves one status out.
    pub async fn tell_status(&self) -> Result<Told> {
        let told = self.tell().await;
        match &told {
            Ok(Told::Published { .. }) => {
                self.counts.statuses.fetch_add(1, Relaxed);
                self.counts.published.fetch_add(1, Relaxed);
            }
            Ok(Told::NotYet { .. }) => {}
            Err(_) => drop(self.counts.errors.fetch_add(1, Relaxed)),
        }
        told
    }

    async fn tell(&self) -> Result<Told> {
        const OP: &str = ops::STATUS;
        let Some(status) = &self.spec.status else {
            return Err(without_status(OP, self.name()));
        };
        let turn = self.bound.run(OP, ops::turn(&self.bound, status.every)?).await?;
        let (now_us, rows) = match event_turn::Reply::read(OP, turn)? {
            event_turn::Reply::Ours { now_us, reported } => (now_us, reported),
            event_turn::Reply::Theirs { left_ms } => {
                let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
                return Ok(Told::NotYet { left });
            }
        };
        let mut reported = BTreeMap::new();
        for row in rows {
            // Another program may have written there; what is not JSON would spoil the whole message.
            if json::check(&row.json).is_ok() {
                reported.insert(
                    String::from_utf8_lossy(&row.name).into_owned(),
                    String::from_utf8_lossy(&row.json).into_owned(),
                );
            }
        }
        let depths = try_join_all(self.queues.iter().map(|queue| async {
            let told = self.bound.run(OP, ops::depth(&self.bound, queue)?).await?;
            let event_depth::Reply::Depth { length } = event_depth::Reply::read(OP, told)?;
            Ok::<_, Error>((queue.name.as_str(), length))
        }))
        .await?;
        let message = render(now_us, &depths, &reported);
        let receivers = self.send(&[], message.as_bytes(), None).await?;
        Ok(Told::Published { receivers })
    }
}

/// The documented message.
fn without_status(op: &'static str, event: &str) -> Error {
    Error::new(op, Code::ResourceMismatch, format!("event {event:?} declares no status"))
}

pub(super) fn render(now_us: i64, depths: &[(&str, i64)], reported: &BTreeMap<String, String>) -> String {
    let mut out = String::from("{\"type\":\"status\",\"data\":{\"timestamp\":");
    json::push_text(&mut out, &moment::document_text(now_us));
    out.push_str(",\"queue_depths\":{");
    for (index, (name, depth)) in depths.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        json::push_text(&mut out, name);
        let _ = write!(out, ":{depth}");
    }
    out.push('}');
    for (name, text) in reported {
        out.push(',');
        json::push_text(&mut out, name);
        out.push(':');
        out.push_str(text.trim());
    }
    out.push_str("}}");
    out
}
