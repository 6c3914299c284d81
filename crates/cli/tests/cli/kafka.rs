//! Events of uploads at a broker: a real server on one side, a reader that shares no code with it on the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Answer};
use serde_json::{Value, json};

use crate::process::{Served, any_port, command, folder, said};
use crate::topic::{self, Record, TOPIC, check};

/// Whoever dies has let go of its uploads two seconds later.
const SETTINGS: &str = "[uploads]\nlease = \"2s\"\n";

/// A broker on the loopback.
struct Broker(MockCluster<'static, DefaultProducerContext>);

impl Broker {
    fn start() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, 3, 1).unwrap();
        Self(cluster)
    }

    /// Where events go; a broker that is away is found so after a second.
    fn url(&self) -> String {
        format!("kafka://{}?message.timeout.ms=1000", self.0.bootstrap_servers())
    }

    /// Everything on the topic, by event id, in the order it came.
    fn read(&self) -> BTreeMap<String, Vec<Record>> {
        topic::read(&self.0.bootstrap_servers(), TOPIC)
    }
}

fn serve(here: &Path, events: &str, fail: Option<&str>) -> Served {
    let mut serve = command(here);
    serve.args(["serve", "--listen", &any_port()]).env("UPLOAD_EVENTS", events);
    if let Some(place) = fail {
        serve.env("QUAYMASTER_FAIL", place);
    }
    Served::spawn(&mut serve)
}

/// Sends a file of one chunk; its upload's id.
fn upload(served: &Served, bytes: &str) -> String {
    let made = served.take("/v1/upload/documents/create", &json!({ "name": "a.txt" }).to_string());
    let id = made["upload_id"].as_str().unwrap().to_owned();
    let (status, told) = served.ask("PUT", &format!("/v1/upload/documents/{id}/chunk/0?last=true"), bytes);
    assert_eq!(status, 200, "{told}");
    id
}

fn state(served: &Served, id: &str) -> Value {
    served.take_get(&format!("/v1/upload/documents/{id}"))
}

fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(so) = so() {
            return so;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn completed(served: &Served, id: &str) -> Value {
    until("it is completed", || Some(state(served, id)).filter(|state| state["status"] == "COMPLETED"))
}

fn outbox(served: &Served) -> Vec<Value> {
    served.take_get("/v1/upload/documents/events")["events"].as_array().unwrap().clone()
}

#[test]
fn every_upload_is_one_event_although_the_broker_was_away_and_then_failed() {
    let begun = SystemTime::now();
    let broker = Broker::start();
    broker.0.broker_down(1).unwrap();
    let folder = folder(&[("quaymaster.toml", SETTINGS)]);
    let served = serve(folder.path(), &broker.url(), None);
    let files: Vec<String> = (0..4).map(|n| "x".repeat(100 + n)).collect();
    let ids: Vec<String> = files.iter().map(|bytes| upload(&served, bytes)).collect();
    // Object, row and event are there; only that nobody could be told keeps them from being completed.
    until("all events are kept", || (outbox(&served).len() == ids.len()).then_some(()));
    for id in &ids {
        assert_eq!(state(&served, id)["status"], "COMPLETING");
    }
    let failing = [
        Answer::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Answer::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ];
    broker.0.request_errors(RDKafkaApiKey::Produce, &failing);
    broker.0.broker_up(1).unwrap();
    let states: Vec<Value> = ids.iter().map(|id| completed(&served, id)).collect();
    let told = broker.read();
    let wanted: BTreeSet<String> = ids.iter().map(|id| format!("{id}.completed")).collect();
    assert_eq!(
        told.keys().cloned().collect::<BTreeSet<_>>(),
        wanted,
        "one id for every upload, and no other"
    );
    for (state, bytes) in states.iter().zip(&files) {
        let records = &told[&format!("{}.completed", state["upload_id"].as_str().unwrap())];
        for record in records {
            check(record, state, bytes.len() as u64, begun);
        }
        assert!(
            records.iter().all(|record| *record == records[0]),
            "a repetition says the same: {records:?}"
        );
    }
    // The outbox has told the same.
    let kept: BTreeMap<String, Value> = outbox(&served)
        .into_iter()
        .map(|event| (event["event_id"].as_str().unwrap().to_owned(), event["payload"].clone()))
        .collect();
    assert_eq!(kept, told.iter().map(|(id, records)| (id.clone(), records[0].value.clone())).collect());
    assert_eq!(served.stop().code, 0);
}

#[test]
fn a_server_that_dies_after_sending_and_before_noting_it_sends_the_same_event_again() {
    let begun = SystemTime::now();
    let broker = Broker::start();
    let folder = folder(&[("quaymaster.toml", SETTINGS)]);
    let dying = serve(folder.path(), &broker.url(), Some("complete.tell:after"));
    let id = upload(&dying, "hello");
    assert_eq!(dying.stop_code(), -1, "it was to be killed by a signal");
    let event_id = format!("{id}.completed");
    assert_eq!(broker.read()[&event_id].len(), 1, "it was sent before");
    let served = serve(folder.path(), &broker.url(), None);
    let state = completed(&served, &id);
    let told = broker.read();
    assert_eq!(told.keys().collect::<Vec<_>>(), [&event_id]);
    let records = &told[&event_id];
    assert_eq!(records.len(), 2, "at least once: {records:?}");
    assert_eq!(records[0], records[1], "under the same id, with the same words");
    check(&records[0], &state, 5, begun);
    assert_eq!(outbox(&served).len(), 1);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn a_server_that_dies_before_sending_sends_it_once() {
    let begun = SystemTime::now();
    let broker = Broker::start();
    let folder = folder(&[("quaymaster.toml", SETTINGS)]);
    let dying = serve(folder.path(), &broker.url(), Some("complete.tell:before"));
    let id = upload(&dying, "hello");
    assert_eq!(dying.stop_code(), -1, "it was to be killed by a signal");
    assert!(broker.read().is_empty());
    let served = serve(folder.path(), &broker.url(), None);
    let state = completed(&served, &id);
    let told = broker.read();
    assert_eq!(told.len(), 1);
    let records = &told[&format!("{id}.completed")];
    assert_eq!(records.len(), 1, "{records:?}");
    check(&records[0], &state, 5, begun);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn a_topic_that_may_not_be_written_keeps_the_event_until_it_may() {
    let begun = SystemTime::now();
    let broker = Broker::start();
    broker.0.topic_error(TOPIC, Answer::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).unwrap();
    let folder = folder(&[("quaymaster.toml", SETTINGS)]);
    let mut served = serve(folder.path(), &broker.url(), None);
    let id = upload(&served, "hello");
    served.wait_for_log("TopicAuthorizationFailed");
    assert_eq!(state(&served, &id)["status"], "COMPLETING");
    broker.0.topic_error(TOPIC, Answer::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    let state = completed(&served, &id);
    let told = broker.read();
    assert_eq!(told.len(), 1);
    for record in told.values().flatten() {
        check(record, &state, 5, begun);
    }
    assert_eq!(served.stop().code, 0);
}

#[test]
fn events_that_can_go_nowhere_are_refused_at_the_start_and_secrets_in_them_are_not_shown() {
    let folder = folder(&[]);
    for (events, named) in [
        ("kafka://h:9092/t?sasl.pasword=hunter2", "sasl.pasword"),
        ("kafka://me:hunter2@h:9092/t", "sasl.username"),
    ] {
        let mut serve = command(folder.path());
        // A database that is there, or nothing is opened before the first upload.
        serve.args(["serve", "--listen", &any_port()]).env("UPLOAD_EVENTS", events);
        std::fs::create_dir_all(folder.path().join("quaymaster-data")).unwrap();
        std::fs::write(folder.path().join("quaymaster-data/uploads.db"), "").unwrap();
        let told = said(&mut serve);
        assert_eq!(told.code, 2, "{told:?}");
        assert!(told.err.contains(named) && !told.err.contains("hunter2"), "{told:?}");
    }
}
