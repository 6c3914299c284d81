//! The five bundled schemas against a hand-written table of what their documents say.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use RedisType::{Hash, List, String as Text, Zset};
use common::{bundled, bundled_with};
use quaymaster_schema::{
    Algorithm, CacheType, Kind, Order, Outage, Overflow, RedisType, Schema, Spec, Spelling, Ttl,
};

const NEVER: u64 = 0;
const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

/// Resource, key, type, seconds to live.
type Fact = (Kind, &'static str, &'static str, RedisType, u64);

#[rustfmt::skip]
const FACTS: &[Fact] = &[
    // courtlistener
    (Kind::Limit, "courtlistener", "courtlistener:rate_limit:{hour}", Text, 2 * HOUR),
    (Kind::Limit, "courtlistener_counter", "courtlistener:counter:{hour}", Text, 2 * HOUR),
    (Kind::Run, "courtlistener", "courtlistener:pipeline:{dag_run_id}", Hash, 25 * HOUR),
    (Kind::Run, "courtlistener", "courtlistener:task_start:{dag_run_id}:{task_id}", Text, 25 * HOUR),
    (Kind::Run, "courtlistener", "courtlistener:failed:{hour}", List, 2 * HOUR),
    // uploads
    (Kind::Upload, "documents", "upload:{upload_id}:state", Hash, 24 * HOUR),
    (Kind::Upload, "documents", "upload:{upload_id}:chunks:{chunk_number}", Text, HOUR),
    (Kind::Upload, "documents", "upload:{upload_id}:etags", Zset, 24 * HOUR),
    (Kind::Upload, "documents", "upload:{upload_id}:metadata", Hash, 24 * HOUR),
    // home-assistant
    // Corrected: gone, and so 0, when nobody flushes.
    (Kind::Stats, "ha", "ha:connections:http:current", Text, 5),
    (Kind::Stats, "ha", "ha:connections:http:max_since_startup", Text, NEVER),
    (Kind::Stats, "ha", "ha:requests:accepted", Text, NEVER),
    (Kind::Stats, "ha", "ha:requests:total", Text, NEVER),
    (Kind::Stats, "ha", "ha:requests:speed_per_second", Text, 5),
    (Kind::Stats, "ha", "ha:requests:max_speed_per_second", Text, NEVER),
    (Kind::Stats, "ha", "ha:requests:endpoint:{endpoint}", Text, NEVER),
    (Kind::Stats, "ha", "ha:requests:instance:{instance_id}", Text, NEVER),
    (Kind::Stats, "ha", "ha:requests:hourly:{timestamp}", Text, 24 * HOUR),
    (Kind::Stats, "ha", "ha:errors:total", Text, NEVER),
    (Kind::Stats, "ha", "ha:errors:endpoint:{endpoint}", Text, NEVER),
    (Kind::Stats, "ha", "ha:errors:status:{status_code}", Text, NEVER),
    (Kind::Stats, "ha", "ha:response_times:{endpoint}", Zset, NEVER),
    (Kind::Stats, "ha", "ha:avg_response:{endpoint}", Text, NEVER),
    (Kind::Stats, "ha", "ha:response_count:{endpoint}", Text, NEVER),
    (Kind::Limit, "ha", "ha:rate_limit:{identifier}", Zset, 15 * MINUTE),
    (Kind::Limit, "ha_sliding", "ha:sliding_limit:{identifier}", Zset, 15 * MINUTE),
    // cameras
    (Kind::Queue, "detection_queue", "detection_queue", List, NEVER),
    (Kind::Queue, "detection_queue", "dlq:detection_queue", List, NEVER),
    (Kind::Queue, "detection_queue", "dlq:overflow:detection_queue", List, NEVER),
    (Kind::Queue, "analysis_queue", "analysis_queue", List, NEVER),
    (Kind::Queue, "analysis_queue", "dlq:analysis_queue", List, NEVER),
    (Kind::Queue, "analysis_queue", "dlq:overflow:analysis_queue", List, NEVER),
    (Kind::Queue, "priority_queue", "priority_queue", Zset, NEVER),
    (Kind::Batch, "camera", "batch:{camera_id}:current", Text, HOUR),
    (Kind::Batch, "camera", "batch:{batch_id}:camera_id", Text, HOUR),
    (Kind::Batch, "camera", "batch:{batch_id}:detections", Text, HOUR),
    (Kind::Batch, "camera", "batch:{batch_id}:started_at", Text, HOUR),
    (Kind::Batch, "camera", "batch:{batch_id}:last_activity", Text, HOUR),
    (Kind::Dedupe, "image", "dedupe:{sha256_hash}", Text, 5 * MINUTE),
    (Kind::Cache, "camera", "cache:{namespace}:{key}", Text, HOUR),
    (Kind::Cache, "key", "cache:{key}", Text, HOUR),
    (Kind::Lock, "key", "lock:{key}", Text, 30),
    (Kind::Limit, "endpoint", "ratelimit:{endpoint}:{client_ip}", Zset, MINUTE),
    // psp
    (Kind::Idempotency, "check", "idem:check:{psp_id}:{merchant_provider}:{qr_tx_id}:{amount}", Text, 120),
    (Kind::Idempotency, "create", "idem:create:{psp_transaction_id}", Text, 24 * HOUR),
    (Kind::Idempotency, "execute", "idem:execute:{transaction_id}", Text, 24 * HOUR),
    (Kind::Idempotency, "update", "idem:update:{transaction_id}:{status}", Text, 24 * HOUR),
    (Kind::Limit, "psp", "rl:{psp_id}:{minute}", Text, MINUTE),
    (Kind::Limit, "transaction", "rl:tx:{transaction_id}", Zset, 5 * MINUTE),
    (Kind::Cache, "status", "status:{transaction_id}", Hash, MINUTE),
    (Kind::Cache, "jwks", "jwks:operator:{kid}", Text, HOUR),
    (Kind::Cache, "token", "token:psp:{psp_id}", Text, 24 * HOUR),
    (Kind::Lock, "update", "lock:update:{transaction_id}", Text, 30),
    (Kind::Lock, "process", "lock:process:{psp_transaction_id}", Text, 60),
];

/// Channel and the fields of its messages.
const CHANNELS: &[(Kind, &str, &str, &[&str])] = &[
    (
        Kind::Upload,
        "documents",
        "upload:chunk:received",
        &["upload_id", "chunk_number", "is_last", "timestamp"],
    ),
    (
        Kind::Upload,
        "documents",
        "upload:progress:{upload_id}",
        &["uploaded_chunks", "total_chunks", "bytes_uploaded", "total_bytes", "percent", "status"],
    ),
    (Kind::Event, "security_events", "security_events", &["type", "data"]),
    (Kind::Event, "system_status", "system_status", &["type", "data"]),
];

/// Key and the fields the document names for it.
#[rustfmt::skip]
const FIELDS: &[(&str, &[&str])] = &[
    ("courtlistener:pipeline:{dag_run_id}", &[
        "dag_run_id", "start_time", "current_hour", "api_calls_this_hour", "status", "dockets_processed", "redis_keys",
    ]),
    ("upload:{upload_id}:state", &[
        "node_id", "s3_upload_id", "s3_key", "drive", "status", "expected_size", "received_chunks", "uploaded_chunks",
        "total_chunks", "is_last_received", "created_at", "updated_at", "mime_type", "final_etag", "final_size",
        "error_message",
    ]),
    ("upload:{upload_id}:metadata", &[
        "name", "connector_id", "parent_id", "path", "custom_metadata", "client_node_id",
    ]),
    ("detection_queue", &["camera_id", "file_path", "timestamp"]),
    ("analysis_queue", &["batch_id", "camera_id", "detection_ids", "started_at", "ended_at"]),
    ("dlq:detection_queue", &[
        "original_job", "error", "attempt_count", "first_failed_at", "last_failed_at", "queue_name",
    ]),
    ("dlq:analysis_queue", &[
        "original_job", "error", "attempt_count", "first_failed_at", "last_failed_at", "queue_name",
    ]),
    ("status:{transaction_id}", &["status", "amount", "timestamp"]),
];

/// Every difference between the schema and these facts.
fn differences(schema: &Schema, facts: &[Fact]) -> Vec<String> {
    let mut found = Vec::new();
    for (kind, name, pattern, holds, seconds) in facts {
        let Some(resource) = schema.resource(*kind, name) else {
            found.push(format!("no {kind}.{name}"));
            continue;
        };
        let Some(row) = resource.keys.iter().find(|row| row.pattern.text() == *pattern) else {
            found.push(format!("{kind}.{name} has no key {pattern}"));
            continue;
        };
        if row.kind != *holds {
            found.push(format!("{pattern} is a {}, not a {holds}", row.kind));
        }
        let lives = row.ttl.duration().unwrap_or_default();
        if lives != Duration::from_secs(*seconds) {
            found.push(format!("{pattern} lives {lives:?}, not {seconds} s"));
        }
    }
    found
}

#[test]
fn every_key_type_and_ttl_of_the_documents_is_declared() {
    assert_eq!(differences(&bundled(), FACTS), Vec::<String>::new());
}

#[test]
fn a_changed_fact_is_noticed() {
    let schema = bundled();
    for index in 0..FACTS.len() {
        for change in [
            |fact: &mut Fact| fact.4 += 1,
            |fact: &mut Fact| fact.3 = RedisType::Stream,
            |fact: &mut Fact| fact.2 = "elsewhere",
            |fact: &mut Fact| fact.1 = "nobody",
        ] {
            let mut facts = FACTS.to_vec();
            change(&mut facts[index]);
            assert_eq!(differences(&schema, &facts).len(), 1, "{:?}", facts[index]);
        }
    }
}

#[test]
fn there_is_no_documented_key_the_table_does_not_know() {
    for resource in bundled().resources() {
        for row in &resource.keys {
            let text = row.pattern.text();
            let ours = row.pattern.literal_head(Spelling::Single).contains('{')
                || [
                    "upload:{upload_id}:received",
                    "upload:{upload_id}:leases",
                    "upload:{upload_id}:map",
                    "upload:{upload_id}:todo",
                    "upload:{upload_id}:work",
                    "upload:{upload_id}:claims:{claim_id}",
                    "upload:{upload_id}:staging:{stage_id}",
                ]
                .contains(&text)
                || [
                    // What the pipeline's program needs beside the document's keys.
                    "courtlistener:dockets",
                    "courtlistener:dlq:dockets",
                    "courtlistener:dlq:overflow:dockets",
                    "courtlistener:pause:{api}",
                ]
                .contains(&text)
                || ["batch:{batch_id}:ids", "batch:{batch_id}:size"].contains(&text)
                || text.ends_with(":priority_queue");
            assert!(ours || FACTS.iter().any(|fact| fact.2 == text), "{text}");
        }
    }
}

#[test]
fn channels_and_fields_are_the_documents() {
    let schema = bundled();
    for (kind, name, channel, fields) in CHANNELS {
        let resource = schema.resource(*kind, name).unwrap();
        let row = resource.channels.iter().find(|row| row.pattern.text() == *channel).unwrap();
        let names: Vec<&str> = row.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, *fields, "{channel}");
    }
    let rows = || schema.resources().flat_map(|resource| resource.keys.iter());
    for (pattern, fields) in FIELDS {
        let row = rows().find(|row| row.pattern.text() == *pattern).unwrap();
        let names: Vec<&str> = row.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, *fields, "{pattern}");
    }
}

#[test]
fn limits_count_as_the_documents_say() {
    let schema = bundled();
    #[rustfmt::skip]
    let facts = [
        ("courtlistener", Algorithm::FixedWindow, 5000, 4975, HOUR, Outage::Deny),
        ("courtlistener_counter", Algorithm::FixedWindow, 5000, 4975, HOUR, Outage::Deny),
        ("ha", Algorithm::SlidingLog, 100, 100, 15 * MINUTE, Outage::Deny),
        ("ha_sliding", Algorithm::SlidingLog, 100, 100, 15 * MINUTE, Outage::Deny),
        ("endpoint", Algorithm::SlidingLog, 60, 60, MINUTE, Outage::Deny),
        ("psp", Algorithm::FixedWindow, 1000, 1000, MINUTE, Outage::Database),
        ("transaction", Algorithm::SlidingLog, 10, 10, 5 * MINUTE, Outage::Database),
    ];
    for (name, algorithm, limit, effective, window, outage) in facts {
        let resource = schema.resource(Kind::Limit, name).unwrap();
        let spec = resource.as_limit().unwrap();
        assert_eq!(
            (spec.algorithm, spec.limit, spec.effective(), spec.window, resource.on_outage),
            (algorithm, limit, effective, Duration::from_secs(window), outage),
            "{name}"
        );
        let request = resource.key("request").unwrap();
        assert_eq!((request.kind, &request.ttl), (Text, &Ttl::For(Duration::from_secs(600))), "{name}");
    }
    assert_eq!(schema.resources().filter(|r| r.kind == Kind::Limit).count(), facts.len());
}

#[test]
fn queues_batches_and_the_rest_have_the_documents_defaults() {
    let schema = bundled();
    for name in ["detection_queue", "analysis_queue"] {
        let Spec::Queue(queue) = &schema.resource(Kind::Queue, name).unwrap().spec else { panic!("{name}") };
        assert_eq!(
            (queue.order, queue.max_size, queue.overflow),
            (Order::Fifo, Some(10_000), Overflow::Reject)
        );
        assert_eq!(
            (queue.retry.max_attempts, queue.retry.base, queue.retry.max),
            (3, Duration::from_secs(1), Duration::from_secs(30))
        );
        assert!((queue.pressure_at - 0.8).abs() < 1e-9 && (queue.retry.jitter - 0.25).abs() < 1e-9);
        assert_eq!(queue.compress_over, Some(1024));
    }
    let Spec::Queue(queue) = &schema.resource(Kind::Queue, "priority_queue").unwrap().spec else { panic!() };
    assert_eq!(queue.order, Order::Priority);
    let Spec::Batch(batch) = &schema.resource(Kind::Batch, "camera").unwrap().spec else { panic!() };
    assert_eq!((batch.window, batch.idle), (Duration::from_secs(90), Duration::from_secs(30)));
    assert_eq!(
        (batch.by.as_str(), batch.to.as_str(), batch.items_as.as_str()),
        ("camera_id", "analysis_queue", "detection_ids")
    );
    let Spec::Upload(upload) = &schema.resource(Kind::Upload, "documents").unwrap().spec else { panic!() };
    assert_eq!((upload.workers, upload.keep_after_done), (20, Duration::from_secs(HOUR)));
    assert_eq!(upload.object_key, "connectors/{connector_id}/{node_id}.pb");
    assert_eq!(
        (upload.connector.as_str(), upload.topic.as_str()),
        ("default", "repository.uploads.completed")
    );
    let Spec::Stats(stats) = &schema.resource(Kind::Stats, "ha").unwrap().spec else { panic!() };
    assert_eq!((stats.max_endpoints, stats.samples), (500, 1000));
    let Spec::Cache(cache) = &schema.resource(Kind::Cache, "status").unwrap().spec else { panic!() };
    assert_eq!(cache.holds, CacheType::Hash);
    for name in ["camera", "key", "jwks"] {
        let Spec::Cache(cache) = &schema.resource(Kind::Cache, name).unwrap().spec else { panic!("{name}") };
        assert_eq!(cache.holds, CacheType::Json, "{name}");
    }
    let Spec::Run(run) = &schema.resource(Kind::Run, "courtlistener").unwrap().spec else { panic!() };
    assert_eq!((run.id.as_str(), run.limit.as_deref()), ("dag_run_id", Some("courtlistener")));
}

#[test]
fn guards_name_the_parts_they_enter() {
    let schema = bundled();
    for (name, limits, idempotency, lock) in [
        ("create", vec!["psp"], "create", "process"),
        ("execute", vec!["psp", "transaction"], "execute", "update"),
    ] {
        let Spec::Guard(guard) = &schema.resource(Kind::Guard, name).unwrap().spec else { panic!("{name}") };
        assert_eq!(guard.limits, limits);
        assert_eq!((guard.idempotency.as_deref(), guard.lock.as_deref()), (Some(idempotency), Some(lock)));
    }
    for (kind, name) in [(Kind::Cache, "token"), (Kind::Idempotency, "create"), (Kind::Idempotency, "check")]
    {
        assert!(schema.resource(kind, name).unwrap().sensitive, "{kind}.{name}");
    }
}

#[test]
fn the_environment_changes_what_the_documents_say_it_changes() {
    let schema = bundled_with(&[
        ("REDIS_COUNTER_TTL_HOURS", "3"),
        ("REDIS_STATE_TTL_HOURS", "26"),
        ("COURTLISTENER_SAFETY_BUFFER", "100"),
        ("CALL_LIMIT_PER_HOUR", "600"),
        ("COURTLISTENER_ON_OUTAGE", "local"),
        ("REDIS_KEY_PREFIX", "home:"),
        ("DEDUPE_TTL_SECONDS", "7"),
        ("QUEUE_MAX_SIZE", "5"),
        ("QUEUE_OVERFLOW_POLICY", "dlq"),
    ]);
    let limit = schema.resource(Kind::Limit, "courtlistener").unwrap().as_limit().unwrap();
    assert_eq!((limit.effective(), limit.ttl), (500, Duration::from_secs(3 * HOUR)));
    for name in ["courtlistener", "courtlistener_counter"] {
        assert_eq!(schema.resource(Kind::Limit, name).unwrap().on_outage, Outage::Local, "{name}");
    }
    let run = schema.resource(Kind::Run, "courtlistener").unwrap();
    assert_eq!(run.keys[0].ttl, Ttl::For(Duration::from_secs(26 * HOUR)));
    assert_eq!(
        schema.resource(Kind::Limit, "ha").unwrap().keys[0].pattern.text(),
        "home:rate_limit:{identifier}"
    );
    assert_eq!(
        schema.resource(Kind::Stats, "ha").unwrap().keys[0].pattern.text(),
        "home:connections:http:current"
    );
    assert_eq!(schema.resource(Kind::Dedupe, "image").unwrap().keys[0].ttl, Ttl::For(Duration::from_secs(7)));
    let Spec::Queue(queue) = &schema.resource(Kind::Queue, "detection_queue").unwrap().spec else { panic!() };
    assert_eq!((queue.max_size, queue.overflow), (Some(5), Overflow::Dlq));
}

#[test]
fn the_five_load_together_and_a_cluster_can_run_them() {
    let loaded = common::load_bundled(&[]);
    let codes: Vec<&str> = loaded.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(codes, ["key-overlap-literal"], "a PSP called `tx` would be a transaction");
    assert!(loaded.schema.unwrap().cluster_problems().is_empty());
}

#[test]
fn each_of_the_five_loads_alone() {
    for (name, text) in quaymaster_schema::BUNDLED {
        let loaded = quaymaster_schema::load(&[quaymaster_schema::Source { name, text }], &|_| None);
        assert!(loaded.schema.is_some(), "{name}: {:?}", loaded.diagnostics);
    }
}
