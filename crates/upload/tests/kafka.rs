//! Events at a broker: told at least once, each under its own id, or not told and said so.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use quaymaster_upload::Trouble;
use quaymaster_upload::announce::{Announcer, TOPIC};
use quaymaster_upload::ledger::Event;
use rdkafka::ClientConfig;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use secure_broker::SecureBroker;

#[path = "support/secure_broker.rs"]
mod secure_broker;
#[path = "support/servers.rs"]
mod servers;

fn event(n: i64) -> Event {
    Event {
        event_id: format!("u{n}.completed"),
        seq: n,
        upload_id: format!("u{n}"),
        resource: None,
        node_id: format!("node-{}", n % 3),
        topic: TOPIC.to_owned(),
        payload: format!("{{\"event_id\":\"u{n}.completed\"}}"),
        created_ms: 1_763_000_000_000 + n,
        published_ms: None,
    }
}

/// What a reader that begins at the beginning is told: event id, key and payload.
async fn read(brokers: &str, count: usize) -> Vec<(String, String, String)> {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reader")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    consumer.subscribe(&[TOPIC]).unwrap();
    let mut told = Vec::new();
    while told.len() < count {
        let record = tokio::time::timeout(Duration::from_secs(60), consumer.recv()).await.unwrap().unwrap();
        let headers = record.headers().unwrap();
        let id = headers.iter().find(|header| header.key == "event_id").unwrap();
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        told.push((text(id.value), text(record.key()), text(record.payload())));
    }
    told.sort();
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_told_with_its_id_and_its_node() {
    let cluster = MockCluster::new(3).unwrap();
    cluster.create_topic(TOPIC, 4, 3).unwrap();
    let announcer = Announcer::open(&format!("kafka://{}", cluster.bootstrap_servers())).unwrap();
    assert_eq!(announcer.topic(), TOPIC);
    for n in 0..20 {
        announcer.tell(&event(n)).await.unwrap();
    }
    let mut wanted: Vec<_> =
        (0..20).map(event).map(|event| (event.event_id, event.node_id, event.payload)).collect();
    wanted.sort();
    assert_eq!(read(&cluster.bootstrap_servers(), 20).await, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_brokers_are_outlived_or_told() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    let url = format!("kafka://{}/{TOPIC}?message.timeout.ms=2000", cluster.bootstrap_servers());
    let announcer = Announcer::open(&url).unwrap();
    let passing = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 2];
    cluster.request_errors(RDKafkaApiKey::Produce, &passing);
    announcer.tell(&event(1)).await.unwrap();

    cluster.broker_down(1).unwrap();
    let error = announcer.tell(&event(2)).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Passing, "{error}");
    cluster.broker_up(1).unwrap();
    // Whoever has an event comes again until it is told.
    let mut tries = 0;
    while let Err(error) = announcer.tell(&event(2)).await {
        assert_eq!(error.trouble(), Trouble::Passing, "{error}");
        tries += 1;
        assert!(tries < 30, "the broker is back");
    }
    // A repetition has the id of what it repeats.
    announcer.tell(&event(2)).await.unwrap();
    let told = read(&cluster.bootstrap_servers(), 3).await;
    let ids: BTreeSet<_> = told.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, BTreeSet::from(["u1.completed", "u2.completed"]));

    cluster.topic_error(TOPIC, RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).unwrap();
    let refused = Announcer::open(&url).unwrap().tell(&event(3)).await.unwrap_err();
    assert_eq!(refused.trouble(), Trouble::Credentials, "{refused}");
}

#[test]
fn what_makes_an_event_safe_cannot_be_set_away() {
    let url = "kafka://127.0.0.1:9/t?acks=0&enable.idempotence=false";
    assert_eq!(Announcer::open(url).unwrap().topic(), "t");
    assert_eq!(Announcer::with_topic("kafka://127.0.0.1:9", "mine").unwrap().topic(), "mine");
}

#[test]
fn a_setting_that_cannot_be_is_named_and_what_it_says_is_not_shown() {
    for (settings, named) in [
        ("acks=all&hunter2", "setting 2"),
        ("sasl.pasword=hunter2", "sasl.pasword"),
        ("message.timeout.ms=hunter2", "message.timeout.ms"),
        ("sasl.password=hunter2%2", "sasl.password"),
    ] {
        let error = Announcer::open(&format!("kafka://127.0.0.1:9/t?{settings}")).unwrap_err();
        assert_eq!(error.trouble(), Trouble::Never, "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
        let shown = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let settings = "client.id=a%26b%3Dc";
    assert_eq!(Announcer::open(&format!("kafka://127.0.0.1:9/t?{settings}")).unwrap().topic(), "t");
}

/// A TLS broker with a password, and the setting of a URL that trusts it.
async fn secured(cluster: &MockCluster<'_, impl rdkafka::ClientContext>) -> (SecureBroker, String) {
    let broker = SecureBroker::start(cluster.bootstrap_servers(), Some(("quay", "p&ss"))).await;
    let url = format!(
        "kafka://{}/{TOPIC}?message.timeout.ms=3000&security.protocol=sasl_ssl&sasl.mechanism=PLAIN\
         &ssl.ca.location={}&sasl.username=quay&sasl.password=",
        broker.address,
        broker.ca.display()
    );
    (broker, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_through_tls_with_a_password() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    let (_broker, url) = secured(&cluster).await;
    let announcer = Announcer::open(&format!("{url}p%26ss")).unwrap();
    for n in 0..3 {
        announcer.tell(&event(n)).await.unwrap();
    }
    let wanted: Vec<_> =
        (0..3).map(event).map(|event| (event.event_id, event.node_id, event.payload)).collect();
    assert_eq!(read(&cluster.bootstrap_servers(), 3).await, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_not_trusted_is_told_nothing_and_the_reason_is_said() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    let (broker, url) = secured(&cluster).await;
    let (other, _) = secured(&cluster).await;
    let stranger =
        format!("{url}p%26ss").replace(&broker.ca.display().to_string(), &other.ca.display().to_string());
    let error = Announcer::open(&stranger).unwrap().tell(&event(1)).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Passing, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");

    let error = Announcer::open(&format!("{url}wrong")).unwrap().tell(&event(2)).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Credentials, "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");

    Announcer::open(&format!("{url}p%26ss")).unwrap().tell(&event(3)).await.unwrap();
    let told = read(&cluster.bootstrap_servers(), 1).await;
    assert_eq!(told[0].0, "u3.completed");
}
