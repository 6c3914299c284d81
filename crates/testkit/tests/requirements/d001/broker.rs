//! A broker of Kafka in this process, and what it was told.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};
use serde_json::Value;

pub(crate) const TOPIC: &str = "repository.uploads.completed";

/// Longer than a busy machine takes to hand out a record.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Broker(MockCluster<'static, DefaultProducerContext>);

impl Broker {
    /// One with the documented topic, which is empty.
    pub(crate) fn start() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, 1, 1).unwrap();
        Self(cluster)
    }

    pub(crate) fn url(&self) -> String {
        format!("kafka://{}", self.0.bootstrap_servers())
    }

    /// Key and value of the first record.
    pub(crate) fn first(&self) -> (String, Value) {
        let brokers = self.0.bootstrap_servers();
        let mut reader = ClientConfig::new();
        let reader: BaseConsumer =
            reader.set("bootstrap.servers", brokers).set("group.id", "reader").create().unwrap();
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(TOPIC, 0, Offset::Beginning).unwrap();
        reader.assign(&from).unwrap();
        let record = reader.poll(PATIENCE).unwrap().unwrap();
        let key = String::from_utf8(record.key().unwrap().to_vec()).unwrap();
        (key, serde_json::from_slice(record.payload().unwrap()).unwrap())
    }
}
