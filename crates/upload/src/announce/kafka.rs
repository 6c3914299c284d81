//! Events to Kafka.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::util::Timeout;
use rdkafka::{ClientConfig, ClientContext};

use crate::ledger::Event;
use crate::{Error, Result, Trouble};

/// How long a record may be on its way, tries of librdkafka's own included.
const PATIENCE_MS: &str = "30000";

/// How long librdkafka keeps to itself that a connection fails as it did before.
const SILENCE: Duration = Duration::from_secs(30);

pub(super) struct Kafka {
    config: ClientConfig,
    producer: RwLock<FutureProducer<Connection>>,
    connection: Connection,
}

/// What went wrong last with a connection to a broker: a record that waits for one only learns that it waited too long.
#[derive(Clone, Default)]
struct Connection(Arc<Mutex<Option<Failure>>>);

#[derive(Clone)]
struct Failure {
    at: Instant,
    code: RDKafkaErrorCode,
    reason: String,
}

impl Connection {
    /// What went wrong last, unless that is too old to hold up a record that was sent then.
    fn failure_of(&self, sent: Instant) -> Option<Failure> {
        let last = self.0.lock().clone()?;
        (sent.saturating_duration_since(last.at) < SILENCE).then_some(last)
    }
}

impl ClientContext for Connection {
    fn error(&self, error: KafkaError, reason: &str) {
        // That none is left says nothing of why.
        if let Some(code) =
            error.rdkafka_error_code().filter(|code| *code != RDKafkaErrorCode::AllBrokersDown)
        {
            *self.0.lock() = Some(Failure { at: Instant::now(), code, reason: reason.to_owned() });
        }
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kafka")
    }
}

impl Kafka {
    /// `settings` is `name=value&…`, as librdkafka spells them; what makes an event safe cannot be set away.
    pub(super) fn open(brokers: &str, settings: &str) -> Result<Self> {
        let mut config = ClientConfig::new();
        config.set("client.id", "quaymaster").set("message.timeout.ms", PATIENCE_MS);
        let wrong = |detail: String| Error::new("announce.open", Trouble::Never, format!("events: {detail}"));
        for (at, setting) in settings.split('&').enumerate().filter(|(_, setting)| !setting.is_empty()) {
            // Never what it says: half a password looks like this.
            let Some((name, value)) = setting.split_once('=') else {
                return Err(wrong(format!("setting {} of kafka://…?name=value&… has no `=`", at + 1)));
            };
            let Some(value) = decoded(value) else {
                return Err(wrong(format!("{name}: `%` begins a byte, as in %26 for `&`")));
            };
            config.set(name, value);
        }
        config.set("bootstrap.servers", brokers).set("acks", "all").set("enable.idempotence", "true");
        let connection = Connection::default();
        let producer = config.create_with_context(connection.clone()).map_err(|error| match error {
            // librdkafka's own words may have the value in them.
            KafkaError::ClientConfig(_, _, name, _) => {
                wrong(format!("{name}: this librdkafka has no such setting, or cannot have it so"))
            }
            error => wrong(error.to_string()).because(error),
        })?;
        Ok(Self { config, producer: RwLock::new(producer), connection })
    }

    /// A producer that keeps order strictly gives up for good when it cannot: the next one starts anew.
    fn renew_if_broken(&self, producer: &FutureProducer<Connection>) {
        if producer.client().fatal_error().is_none() {
            return;
        }
        let mut current = self.producer.write();
        if current.client().fatal_error().is_some()
            && let Ok(fresh) = self.config.create_with_context(self.connection.clone())
        {
            *current = fresh;
        }
    }

    pub(super) async fn tell(&self, event: &Event) -> Result<()> {
        let headers = OwnedHeaders::new()
            .insert(Header { key: "event_id", value: Some(&event.event_id) })
            .insert(Header { key: "upload_id", value: Some(&event.upload_id) });
        let record = FutureRecord::to(&event.topic)
            .key(&event.node_id)
            .payload(&event.payload)
            .timestamp(event.created_ms)
            .headers(headers);
        // No wait for room in the queue: whoever calls comes again.
        let (producer, sent) = (self.producer.read().clone(), Instant::now());
        match producer.send(record, Timeout::After(Duration::ZERO)).await {
            Ok(_) => {
                *self.connection.0.lock() = None;
                Ok(())
            }
            Err((error, _)) => {
                self.renew_if_broken(&producer);
                Err(self.failed(error, sent))
            }
        }
    }

    fn failed(&self, error: KafkaError, sent: Instant) -> Error {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageTimedOut)
            && let Some(Failure { code, reason, .. }) = self.connection.failure_of(sent)
        {
            let failure = Error::new("announce.tell", trouble(Some(code)), format!("the broker: {reason}"));
            return failure.saying(format!("{code:?}")).because(error);
        }
        failed(error)
    }
}

/// A value as it was before `%` and two digits stood for what a URL cannot hold.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = if byte == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            (u8::from_str_radix(digits, 16).ok()?, &after[2..])
        } else {
            (byte, after)
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn trouble(code: Option<RDKafkaErrorCode>) -> Trouble {
    use RDKafkaErrorCode as Code;
    match code {
        Some(
            Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::SaslAuthenticationFailed
            | Code::Authentication,
        ) => Trouble::Credentials,
        Some(
            Code::MessageSizeTooLarge | Code::InvalidTopic | Code::InvalidMessageSize | Code::InvalidRecord,
        ) => Trouble::Never,
        // A topic may still be made; brokers come back; a full queue empties.
        _ => Trouble::Passing,
    }
}

fn failed(error: KafkaError) -> Error {
    let code = error.rdkafka_error_code();
    let failure = Error::new("announce.tell", trouble(code), format!("the broker: {error}"));
    match code {
        Some(code) => failure.saying(format!("{code:?}")).because(error),
        None => failure.because(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_failed_long_before_is_not_the_reason() {
        let connection = Connection::default();
        connection.error(KafkaError::Global(RDKafkaErrorCode::Authentication), "the password is wrong");
        let failed = Instant::now();
        let blamed = |sent| connection.failure_of(sent).is_some();
        assert!(blamed(failed) && blamed(failed + SILENCE / 2));
        assert!(!blamed(failed + SILENCE));
    }
}
