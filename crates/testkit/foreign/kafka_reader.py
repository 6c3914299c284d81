"""Everything a topic holds, by a client that shares no code with ours: kafka-python.

    kafka_reader.py host:port,host:port topic

One JSON object a line: partition, offset, key, value, headers, timestamp.
"""

import json
import sys

from kafka import KafkaConsumer, TopicPartition


def main(brokers, topic):
    consumer = KafkaConsumer(
        bootstrap_servers=brokers.split(","),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # The brokers that tests start answer a newer client's question for versions in a way it cannot read.
        api_version=(2, 0, 0),
    )
    partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for records in consumer.poll(timeout_ms=1000).values():
            for record in records:
                said = {
                    "partition": record.partition,
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": record.key.decode("utf-8"),
                    "value": record.value.decode("utf-8"),
                    "headers": {name: value.decode("utf-8") for name, value in record.headers},
                }
                print(json.dumps(said))
    consumer.close()


main(*sys.argv[1:])
