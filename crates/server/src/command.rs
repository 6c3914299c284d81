//! The calls without HTTP: the same table, the same reading of fields, the same answers.

use std::fmt::Write as _;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quaymaster::layer::Trust;
use quaymaster::schema::Kind;
use quaymaster::{Error, Quaymaster, Result};
use serde_json::{Map, Value};

use crate::app::{App, Bounds, Serves};
use crate::call::{Arg, CALLS, Call, Effect, Input};
use crate::config::Thresholds;
use crate::depot::Depot;
use crate::fan::Fan;
use crate::http::auth::Guard;
use crate::http::listen::Address;
use crate::http::origin::Origins;
use crate::http::presence::Presence;
use crate::metrics::Metrics;
use crate::page::queues::Depths;
use crate::page::runs::Recent;
use crate::page::stats::Reports;
use crate::page::uploads::Counted;
use crate::probe::Probe;

/// A call's fields besides `key`, each as it is written in JSON: a payload reaches the store byte for byte.
pub type Fields = std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>;

/// Told how many are done so far by a call that takes its time.
pub type Progress<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// A call as a command line offers it.
#[derive(Debug, Clone, Copy)]
pub struct Command(&'static Call);

/// Every call there is.
pub fn commands() -> impl Iterator<Item = Command> {
    CALLS.iter().map(Command)
}

/// What a kind's calls are for, in one line.
pub fn kind_about(kind: Kind) -> &'static str {
    match kind {
        Kind::Limit => "Count calls against a limit",
        Kind::Idempotency => "Run an operation once and replay its answer",
        Kind::Lock => "Hold a lease on a name",
        Kind::Cache => "Keep values that may be forgotten",
        Kind::Dedupe => "Tell the first one from its repetitions",
        Kind::Guard => "Enter limits, an idempotency and a lock in one step",
        Kind::Queue => "Hand jobs to workers",
        Kind::Batch => "Collect items until a window ends",
        Kind::Event => "Send messages to whoever listens",
        Kind::Run => "Follow a pipeline's run",
        Kind::Stats => "Count requests over several instances",
        Kind::Upload => "Carry chunks into object storage",
        Kind::Key => "Look at keys of other programs",
    }
}

impl Command {
    /// The kind of resource it is for.
    pub fn kind(self) -> Kind {
        self.0.kind
    }

    /// Its verb.
    pub fn verb(self) -> &'static str {
        self.0.verb
    }

    /// What it does, in one line.
    pub fn about(self) -> &'static str {
        self.0.about
    }

    /// Its fields besides `key`.
    pub fn args(self) -> &'static [Arg] {
        self.0.args
    }

    /// Whether it changes nothing.
    pub fn only_reads(self) -> bool {
        self.0.effect == Effect::Reads
    }

    /// Whether an answer of it is a "no".
    pub fn said_no(self, answer: &Value) -> bool {
        (self.0.said_no)(answer)
    }

    /// Runs it on the resource `name`; the answer is the JSON that HTTP would answer.
    pub async fn run(
        self,
        quaymaster: Quaymaster,
        depot: Depot,
        name: &str,
        key: &[(String, String)],
        fields: Fields,
        progress: Progress<'_>,
    ) -> Result<String> {
        let (mut query, mut body) = (String::new(), Vec::new());
        match self.0.effect {
            Effect::Reads => query = as_query(key, &fields),
            Effect::Writes => body = as_body(key, fields),
        }
        let outage = OnceLock::new();
        let caller = Presence::default();
        let input = Input {
            name,
            query: &query,
            body: &body,
            outage: &outage,
            caller: &caller,
            progress: Some(progress),
        };
        let answer = self.0.answer(&alone(quaymaster, depot), input).await.map_err(|problem| {
            let doubt = problem.has_doubt();
            Error::new(self.0.template, problem.code, problem.detail).ran(doubt)
        })?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A server's state without a server: nobody else asks, so nothing needs a bound but the depth of JSON.
fn alone(quaymaster: Quaymaster, depot: Depot) -> App {
    App {
        serves: Serves::Everything,
        quaymaster,
        bounds: Bounds {
            max_body_bytes: usize::MAX,
            max_json_depth: 120,
            max_requests: 1,
            max_waiting: 1,
            request_timeout: Duration::MAX,
            heartbeat: Duration::from_secs(15),
        },
        guard: Guard::new(Vec::new(), Origins::default(), &Address::Tcp(([127, 0, 0, 1], 0).into())),
        thresholds: Thresholds::default(),
        metrics: Metrics::default(),
        probe: Probe::default(),
        in_flight: AtomicUsize::new(0),
        waiting: AtomicUsize::new(0),
        trust: Trust::nobody(),
        stopping: tokio_util::sync::CancellationToken::new(),
        fan: Arc::new(Fan::new(1)),
        workers: None,
        depths: Depths::default(),
        runs: Recent::default(),
        reports: Reports::default(),
        depot,
        counted: Counted::default(),
    }
}

fn as_body(key: &[(String, String)], mut fields: Fields) -> Vec<u8> {
    // Not every call has a key: one that was not given is not sent.
    if !key.is_empty() {
        let key: Map<String, Value> =
            key.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        if let Ok(raw) = serde_json::value::to_raw_value(&key) {
            fields.insert("key".into(), raw);
        }
    }
    serde_json::to_vec(&fields).unwrap_or_default()
}

fn as_query(key: &[(String, String)], fields: &Fields) -> String {
    let mut query = String::new();
    let mut add = |name: &str, value: &str| {
        encode(&mut query, name);
        query.push('=');
        encode(&mut query, value);
        query.push('&');
    };
    for (name, value) in key {
        add(&format!("key.{name}"), value);
    }
    for (name, value) in fields {
        match serde_json::from_str::<String>(value.get()) {
            Ok(text) => add(name, &text),
            Err(_) => add(name, value.get()),
        }
    }
    query
}

/// Percent-encodes all that is not plainly a letter, a digit or one of `-._~`.
fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::query;

    #[test]
    fn a_query_made_here_reads_back_the_same() {
        let key = [("a".to_owned(), "1 +&=%ü/".to_owned()), ("b".to_owned(), "::1".to_owned())];
        let text = as_query(&key, &Fields::new());
        let read: Vec<(String, String)> = query::key_values(&text)
            .map(|pairs| pairs.into_iter().map(|(k, v)| (k.into_owned(), v.into_owned())).collect())
            .unwrap_or_default();
        assert_eq!(read, key);
    }

    #[test]
    fn no_two_calls_of_a_kind_share_a_verb_and_every_field_is_named_once() {
        let mut seen = std::collections::HashSet::new();
        for command in commands() {
            assert!(seen.insert((command.kind(), command.verb())), "{} {}", command.kind(), command.verb());
            let mut names = std::collections::HashSet::new();
            assert!(command.args().iter().all(|arg| names.insert(arg.name)), "{:?}", command.args());
        }
    }
}
