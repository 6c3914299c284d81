//! Events on their way out: at least once, under an id that never changes.
//!
//! The fact is the row in the ledger's outbox, written with the node it tells of. What happens here may happen again:
//! after a crash between telling and noting it, the same event is told once more, with the same `event_id`.
//!
//! - `outbox:` keeps them: readers pull with [`crate::ledger::Ledger::events`] and a cursor. Telling is done when the
//!   row is there, and that it already is.
//! - `kafka://host:port,host:port/topic` sends them (cargo feature `kafka`): the node's id is the record's key, so
//!   that events of one node keep their order; `event_id` is a header; all replicas in sync have it when it counts as
//!   told. Settings of librdkafka may follow as a query: `?message.timeout.ms=30000`. Without `/topic` the topic is the
//!   schema's.

#[cfg(feature = "kafka")]
mod kafka;

use crate::ledger::Event;
use crate::{Error, Result, Trouble};

/// The documented topic.
pub const TOPIC: &str = "repository.uploads.completed";

/// Where events go.
#[derive(Debug)]
pub struct Announcer {
    topic: String,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Outbox,
    #[cfg(feature = "kafka")]
    Kafka(Box<kafka::Kafka>),
}

impl Announcer {
    /// Opens `outbox:` or `kafka://host:port,…/topic`, with the documented topic unless the URL names one.
    pub fn open(url: &str) -> Result<Self> {
        Self::with_topic(url, TOPIC)
    }

    /// The same, with `default` for a topic unless the URL names one. Brokers are not asked for anything yet.
    pub fn with_topic(url: &str, default: &str) -> Result<Self> {
        let wrong =
            |detail: &str| Err(Error::new("announce.open", Trouble::Never, format!("events: {detail}")));
        let topic = topic_of(url, default);
        match url.split_once(':') {
            Some(("outbox", _)) => {
                if !is_topic(topic) {
                    return wrong("a topic is of letters, digits, `.`, `_`, `-`");
                }
                Ok(Self { topic: topic.to_owned(), way: Way::Outbox })
            }
            Some(("kafka", place)) => {
                let Some(place) = place.strip_prefix("//") else { return wrong("kafka://host:port/topic") };
                let (place, settings) = place.split_once('?').unwrap_or((place, ""));
                let brokers = place.split('/').next().unwrap_or_default();
                if brokers.contains('@') {
                    return wrong(
                        "kafka://host:port,host:port/topic names no user: what brokers want to know is a setting, as in \
                         ?sasl.username=…",
                    );
                }
                if brokers.is_empty() || !is_topic(topic) {
                    return wrong(
                        "kafka://host:port,host:port/topic wants brokers, and a topic of letters, digits, `.`, `_`, `-`",
                    );
                }
                Self::kafka(brokers, topic, settings)
            }
            _ => wrong("is outbox: or kafka://host:port,host:port/topic"),
        }
    }

    #[cfg(feature = "kafka")]
    fn kafka(brokers: &str, topic: &str, settings: &str) -> Result<Self> {
        let kafka = kafka::Kafka::open(brokers, settings)?;
        Ok(Self { topic: topic.to_owned(), way: Way::Kafka(Box::new(kafka)) })
    }

    #[cfg(not(feature = "kafka"))]
    fn kafka(_: &str, _: &str, _: &str) -> Result<Self> {
        let detail = "events: this build has no Kafka (cargo feature `kafka`)";
        Err(Error::new("announce.open", Trouble::Never, detail))
    }

    /// The topic that events are recorded under.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Tells an event; done when it will not get lost any more. May tell it twice, when the answer gets lost.
    #[cfg_attr(not(feature = "kafka"), expect(clippy::unused_async, reason = "only a broker is waited for"))]
    pub async fn tell(&self, event: &Event) -> Result<()> {
        match &self.way {
            Way::Outbox => {
                // Kept with its row already.
                let Event { event_id, seq, .. } = event;
                tracing::debug!(event_id, seq, "event kept");
                Ok(())
            }
            #[cfg(feature = "kafka")]
            Way::Kafka(kafka) => kafka.tell(event).await,
        }
    }
}

/// The topic that a URL names, else `default`. [`Announcer::with_topic`] judges both.
pub fn topic_of<'a>(url: &'a str, default: &'a str) -> &'a str {
    let place = url.split_once(':').map_or("", |(_, place)| place);
    let topic = match place.strip_prefix("//") {
        Some(brokers) => {
            brokers.split('?').next().and_then(|place| place.split_once('/')).map_or("", |(_, topic)| topic)
        }
        None => place,
    };
    if topic.is_empty() { default } else { topic }
}

/// As Kafka bounds them.
fn is_topic(topic: &str) -> bool {
    (1..=249).contains(&topic.len())
        && !matches!(topic, "." | "..")
        && topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn events_go_where_the_url_says() {
        assert_eq!(Announcer::open("outbox:").unwrap().topic(), TOPIC);
        for (url, topic) in [
            ("outbox:", "mine"),
            ("outbox:files.done", "files.done"),
            ("kafka://a:1,b:2", "mine"),
            ("kafka://a:1/files.done?message.timeout.ms=30000", "files.done"),
            ("kafka://a:1?ssl.ca.location=/etc/ca", "mine"),
        ] {
            assert_eq!(topic_of(url, "mine"), topic, "{url}");
        }
        assert_eq!(Announcer::open("outbox:files.done").unwrap().topic(), "files.done");
        assert_eq!(Announcer::with_topic("outbox:", "mine").unwrap().topic(), "mine");
        for wrong in [
            "",
            "outbox",
            "outbox:a b",
            "kafka:",
            "kafka://",
            "kafka:///t",
            "kafka://h/a b",
            "kafka://me:hunter2@h/t",
            "nats://x",
        ] {
            let error = Announcer::open(wrong).unwrap_err();
            assert_eq!(error.trouble(), Trouble::Never, "{wrong}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
