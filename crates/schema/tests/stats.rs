//! What a stats may declare, and how a cluster spells its keys.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use quaymaster_schema::{Kind, Loaded, Source, Spec, Spelling, StatsSpec, load};

fn loaded(rest: &str) -> Loaded {
    let text = format!("[schema]\nname = \"t\"\nowner = \"tests\"\n[stats.web]\nkey = \"web:\"\n{rest}");
    load(&[Source { name: "t.toml", text: &text }], &|_| None)
}

fn spec(rest: &str) -> StatsSpec {
    let schema = loaded(rest).schema.unwrap();
    match &schema.resource(Kind::Stats, "web").unwrap().spec {
        Spec::Stats(spec) => spec.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_heartbeat_is_three_flushes_and_at_least_five_seconds_unless_given() {
    assert_eq!(spec("").heartbeat, Duration::from_secs(5));
    assert_eq!(spec("flush = \"10s\"\n").heartbeat, Duration::from_secs(30));
    assert_eq!(spec("flush = \"100ms\"\nheartbeat = \"200ms\"\n").heartbeat, Duration::from_millis(200));
    let short = loaded("flush = \"1s\"\nheartbeat = \"1500ms\"\n");
    assert!(short.schema.is_none(), "an instance would be gone between two flushes");
    assert!(
        short.diagnostics.iter().any(|told| told.to_string().contains("heartbeat")),
        "{:?}",
        short.diagnostics
    );
}

#[test]
fn what_is_told_apart_is_bounded_unless_and_when_given() {
    let plain = spec("");
    assert_eq!(
        (plain.max_endpoints, plain.max_instances, plain.samples, plain.fold_ids),
        (500, 1000, 1000, false)
    );
    let given = spec("max_endpoints = 7\nmax_instances = 2\nsamples = 3\nfold_ids = true\n");
    assert_eq!((given.max_endpoints, given.max_instances, given.samples, given.fold_ids), (7, 2, 3, true));
    for wrong in ["max_instances = 0\n", "max_endpoints = 0\n", "fold_ids = 1\n", "flush = \"0s\"\n"] {
        assert!(loaded(wrong).schema.is_none(), "{wrong}");
    }
}

#[test]
fn every_key_of_a_flush_is_in_one_slot_of_a_cluster_and_reads_back() {
    let schema = loaded("").schema.unwrap();
    let values = [
        ("endpoint", "GET /users/:id"),
        ("instance_id", "::1"),
        ("timestamp", "1672531200000"),
        ("status_code", "404"),
        ("request_id", "a:b"),
    ];
    for row in &schema.resource(Kind::Stats, "web").unwrap().keys {
        let needed: Vec<(&str, &str)> = values
            .into_iter()
            .filter(|(name, _)| row.pattern.text().contains(&format!("{{{name}}}")))
            .collect();
        for spelling in [Spelling::Single, Spelling::Cluster] {
            let mut key = Vec::new();
            row.pattern.render(&needed, 0, spelling, &mut key).unwrap();
            let text = String::from_utf8(key.clone()).unwrap();
            if spelling == Spelling::Cluster {
                assert!(text.starts_with("{web:stats}:"), "{text}");
            }
            let read =
                row.pattern.parse_as(&key, spelling).unwrap_or_else(|| panic!("{text} does not read back"));
            assert_eq!(read.values.len(), needed.len(), "{text}");
            assert!(
                needed.iter().all(|(name, value)| read.values.contains(&((*name).into(), (*value).into())))
            );
        }
    }
}
