//! How keys are spelled, and what the documents' own examples are.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::bundled;
use quaymaster_schema::{Kind, OWN_PREFIX, Source, Spelling, docs, load};

/// A key, its resource, its role, its values.
type Example<'a> = (String, &'a str, &'a str, &'a [(&'a str, &'a str)]);

#[test]
fn the_documents_example_keys_are_explained() {
    let schema = bundled();
    let run = "manual_2024-09-17T14:30:00+00:00";
    let id = "fbded76a-9fc6-42d8-b0a0-e7e7110e0cc7";
    let cases: &[Example<'_>] = &[
        ("courtlistener:rate_limit:2024-09-17_14".into(), "limit.courtlistener", "limit", &[]),
        ("courtlistener:counter:2024-09-17_14".into(), "limit.courtlistener_counter", "limit", &[]),
        (format!("courtlistener:pipeline:{run}"), "run.courtlistener", "state", &[("dag_run_id", run)]),
        (
            format!("courtlistener:task_start:{run}:process_docket_123"),
            "run.courtlistener",
            "task",
            &[("dag_run_id", run), ("task_id", "process_docket_123")],
        ),
        ("courtlistener:failed:2024-12-31_23".into(), "run.courtlistener", "failed", &[]),
        ("upload:abc123:state".into(), "upload.documents", "state", &[("upload_id", "abc123")]),
        (
            "upload:abc123:chunks:0".into(),
            "upload.documents",
            "chunk",
            &[("upload_id", "abc123"), ("chunk_number", "0")],
        ),
        ("upload:abc123:etags".into(), "upload.documents", "etags", &[("upload_id", "abc123")]),
        ("ha:connections:http:current".into(), "stats.ha", "connections_current", &[]),
        (
            "ha:requests:endpoint:PUT /api/forum/questions/:id".into(),
            "stats.ha",
            "requests_endpoint",
            &[("endpoint", "PUT /api/forum/questions/:id")],
        ),
        (
            "ha:requests:hourly:1672531200000".into(),
            "stats.ha",
            "requests_hourly",
            &[("timestamp", "1672531200000")],
        ),
        ("ha:errors:status:404".into(), "stats.ha", "errors_status", &[("status_code", "404")]),
        ("ha:rate_limit:user:123".into(), "limit.ha", "limit", &[("identifier", "user:123")]),
        (
            "ha:sliding_limit:192.168.1.100".into(),
            "limit.ha_sliding",
            "limit",
            &[("identifier", "192.168.1.100")],
        ),
        ("detection_queue".into(), "queue.detection_queue", "items", &[]),
        ("dlq:overflow:detection_queue".into(), "queue.detection_queue", "overflow", &[]),
        ("batch:front_door:current".into(), "batch.camera", "current", &[("camera_id", "front_door")]),
        ("batch:abc123:detections".into(), "batch.camera", "items", &[("batch_id", "abc123")]),
        (
            "cache:camera:front_door".into(),
            "cache.camera",
            "entry",
            &[("namespace", "camera"), ("key", "front_door")],
        ),
        ("cache:key".into(), "cache.key", "entry", &[("key", "key")]),
        ("lock:key".into(), "lock.key", "lock", &[("key", "key")]),
        (
            "ratelimit:api:2001:db8::1".into(),
            "limit.endpoint",
            "limit",
            &[("endpoint", "api"), ("client_ip", "2001:db8::1")],
        ),
        (
            "idem:check:PSP001:DEMO_MERCHANT:QR123:100000".into(),
            "idempotency.check",
            "record",
            &[
                ("psp_id", "PSP001"),
                ("merchant_provider", "DEMO_MERCHANT"),
                ("qr_tx_id", "QR123"),
                ("amount", "100000"),
            ],
        ),
        (
            format!("idem:update:{id}:50"),
            "idempotency.update",
            "record",
            &[("transaction_id", id), ("status", "50")],
        ),
        ("rl:PSP001:2024-01-15-14-30".into(), "limit.psp", "limit", &[("psp_id", "PSP001")]),
        (format!("rl:tx:{id}"), "limit.transaction", "limit", &[("transaction_id", id)]),
        (
            "rl:tx:2024-01-15-14-30".into(),
            "limit.transaction",
            "limit",
            &[("transaction_id", "2024-01-15-14-30")],
        ),
        ("token:psp:PSP001".into(), "cache.token", "entry", &[("psp_id", "PSP001")]),
        (
            "lock:process:PSP-TX-123456".into(),
            "lock.process",
            "lock",
            &[("psp_transaction_id", "PSP-TX-123456")],
        ),
        (
            "{rl:PSP001}:req:a:b".into(),
            "limit.psp",
            "request",
            &[("psp_id", "PSP001"), ("request_id", "a:b")],
        ),
    ];
    for (key, resource, role, values) in cases {
        let found = schema.explain(key.as_bytes()).unwrap_or_else(|| panic!("{key}"));
        assert_eq!(format!("{}.{}", found.resource.kind, found.resource.name), *resource, "{key}");
        assert_eq!(found.row.role, *role, "{key}");
        let pairs: Vec<(&str, &str)> = found.values.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, *values, "{key}");
    }
}

#[test]
fn keys_of_nobody_are_not_explained() {
    let schema = bundled();
    for key in [
        &b""[..],
        b"rl",
        b"rl:",
        b"rl::2024-01-15-14-30",
        b"rl:PSP001:2024-01-15-14-61",
        b"upload:a:chunks:01",
        b"upload:a:chunks:x",
        b"detection_queue2",
        b"ha:requests:endpoint:",
        b"\xff\xfe",
        b"{rl:PSP001}:other",
        b"courtlistener:rate_limit:2024-09-17_24",
    ] {
        assert!(schema.explain(key).is_none(), "{}", String::from_utf8_lossy(key));
    }
}

fn spellings(text: &str) -> Vec<(String, String, String)> {
    let loaded = load(&[Source { name: "s", text }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let row = |row: &quaymaster_schema::KeyRow| {
        (row.role.to_owned(), row.pattern.text().to_owned(), row.pattern.cluster_text().to_owned())
    };
    schema.resources().flat_map(|resource| resource.keys.iter().map(row).collect::<Vec<_>>()).collect()
}

fn limit(key: &str, algorithm: &str, more: &str) -> String {
    format!("[limit.a]\nkey = \"{key}\"\nalgorithm = \"{algorithm}\"\nlimit = 1\nwindow = \"60s\"\n{more}")
}

#[test]
fn on_a_cluster_the_keys_of_a_limit_share_a_tag() {
    let cluster =
        |text: String| spellings(&text).into_iter().map(|(_, _, cluster)| cluster).collect::<Vec<_>>();
    let plain = limit("rl:{p}", "sliding_log", "");
    assert_eq!(cluster(plain), ["rl:{p}", "{rl:{p}}:req:{request_id}"]);
    let bucketed = limit("rl:{p}:{minute}", "fixed_window", "");
    assert_eq!(cluster(bucketed), ["{rl:{p}}:{minute}", "{rl:{p}}:req:{request_id}"]);
    let in_the_middle = limit("rl:{minute}:{p}", "fixed_window", "");
    assert_eq!(cluster(in_the_middle), ["{rl:{p}}:rl:{minute}:{p}", "{rl:{p}}:req:{request_id}"]);
    let by_entity = limit("rl:{p}:{minute}", "fixed_window", "colocate = \"{p}\"\n");
    assert_eq!(cluster(by_entity), ["rl:{{p}}:{minute}", "{{p}}:{rl:{p}}:req:{request_id}"]);
    let by_constant = limit("rl:{p}", "sliding_log", "colocate = \"pay\"\n");
    assert_eq!(cluster(by_constant), ["{pay}:rl:{p}", "{pay}:{rl:{p}}:req:{request_id}"]);
    let by_itself = limit("rl:{p}", "sliding_log", "colocate = \"rl:{p}\"\n");
    assert_eq!(cluster(by_itself), ["rl:{p}", "{rl:{p}}:req:{request_id}"]);
}

#[test]
fn a_queues_public_name_survives_on_a_cluster() {
    for more in ["", "colocate = \"jobs\"\n"] {
        let rows = spellings(&format!("[queue.jobs]\nmax_size = 9\n{more}"));
        let cluster = |role: &str| rows.iter().find(|row| row.0 == role).unwrap().2.clone();
        assert_eq!(cluster("items"), "jobs");
        assert_eq!(cluster("dead"), "dlq:{jobs}");
        assert_eq!(cluster("overflow"), "dlq:overflow:{jobs}");
        assert_eq!(cluster("leases"), "{jobs}:leases");
    }
    let rows = spellings("[schema]\nprefix = \"app:\"\n[queue.jobs]\nmax_size = 9\n");
    assert_eq!(rows[1].1, "app:dlq:jobs", "a prefixed schema keeps to its own keys");
    assert_eq!(rows[1].2, "app:{app:jobs}:app:dlq:jobs");
}

#[test]
fn a_prefix_stands_in_front_of_the_hash_tag() {
    let both = |text: &str| {
        let rows = spellings(&format!("[schema]\nprefix = \"ha:\"\n{text}")).into_iter();
        rows.map(|(_, single, cluster)| (single, cluster)).collect::<Vec<_>>()
    };
    let pair = |single: &str, cluster: &str| (single.to_owned(), cluster.to_owned());
    assert_eq!(
        both(&limit("rl:{p}:{minute}", "fixed_window", "")),
        [
            pair("ha:rl:{p}:{minute}", "ha:{ha:rl:{p}}:{minute}"),
            pair("ha:{ha:rl:{p}}:req:{request_id}", "ha:{ha:rl:{p}}:req:{request_id}"),
        ]
    );
    assert_eq!(
        both(&limit("rl:{p}", "sliding_log", "colocate = \"pay\"\n")),
        [
            pair("ha:rl:{p}", "ha:{pay}:ha:rl:{p}"),
            pair("ha:{ha:rl:{p}}:req:{request_id}", "ha:{pay}:{ha:rl:{p}}:req:{request_id}"),
        ]
    );
    assert_eq!(
        both("[event.news]\n"),
        [pair("ha:{ha:news}:pub:{publish_id}", "ha:{ha:news}:pub:{publish_id}")]
    );
    let text = "[schema]\nprefix = \"ha:\"\n[lock.door]\nkey = \"door:{id}\"\nttl = \"1m\"\n";
    let schema = load(&[Source { name: "s", text }], &|_| None).schema.unwrap();
    let wake = schema.resource(Kind::Lock, "door").unwrap().channel("wake").unwrap();
    assert_eq!(wake.pattern.text(), "ha:{ha:door:{id}}:wake", "channels too");
    let docs = docs(&schema, OWN_PREFIX);
    let rules: Vec<&str> =
        docs.lines().filter(|line| line.contains("ACL SETUSER") && line.contains('{')).collect();
    assert!(rules.iter().any(|rule| rule.ends_with(" ~ha:{ha:door:*}:fence")), "{rules:?}");
    assert!(rules.iter().any(|rule| rule.ends_with(" &ha:{ha:door:*}:wake")), "{rules:?}");
    assert!(rules.iter().all(|rule| rule.contains("~ha:{") || rule.contains("&ha:{")), "{rules:?}");
}

#[test]
fn every_key_of_the_five_systems_begins_with_its_schemas_prefix() {
    let schema = bundled();
    let mut behind = 0;
    for resource in schema.resources() {
        let document = schema.documents().iter().find(|document| document.name == resource.document).unwrap();
        for row in &resource.keys {
            for spelling in [Spelling::Single, Spelling::Cluster] {
                let head = row.pattern.literal_head(spelling);
                assert!(head.starts_with(&document.prefix), "{head} of {}", resource.name);
                behind += usize::from(head.starts_with(&format!("{}{{", document.prefix)));
            }
        }
        for channel in &resource.channels {
            assert!(channel.pattern.text().starts_with(&document.prefix), "{}", channel.pattern.text());
        }
    }
    assert!(behind > 100, "{behind}");
}

#[test]
fn only_names_of_earlier_versions_are_spelled_anew() {
    let schema = bundled();
    let respelled = |key: &str| schema.respelled(key.as_bytes()).map(|key| String::from_utf8(key).unwrap());
    for old in [
        "{ha:stats}:beats",
        "{ha:rate_limit:user:123}:req:R1",
        "{ha:stats}:ha:requests:total",
        "{courtlistener:pipeline}:runs",
        "{courtlistener:pipeline:manual_2024-09-17T14:30:00+00:00}:processed",
        "{courtlistener:rate_limit}:2024-09-17_14",
    ] {
        let prefix = old[1..=old.find(':').unwrap()].to_owned();
        assert_eq!(respelled(old), Some(format!("{prefix}{old}")), "{old}");
        assert_eq!(respelled(&format!("{prefix}{old}")), None, "once is enough: {old}");
        assert!(schema.explain(old.as_bytes()).is_none(), "{old}");
    }
    for kept in [
        "{rl:PSP001}:req:a",
        "{detection_queue}:leases",
        "{ha:stats}:other",
        "{ha:stats}",
        "{}:x",
        "{",
        "{ha:rate_limit:a*}:req:R1",
        "{ha:rate_limit:{a}}:req:R1",
        "ha:requests:total",
        "other",
        "",
    ] {
        assert_eq!(respelled(kept), None, "{kept}");
    }
    let names = schema.old_names(Spelling::Single);
    assert!(names.contains(&"{ha:stats}:beats".to_owned()), "{names:?}");
    assert!(names.contains(&"{courtlistener:pipeline}:live".to_owned()), "{names:?}");
    assert!(names.iter().all(|name| respelled(name).is_some()), "{names:?}");
    assert!(schema.old_names(Spelling::Cluster).contains(&"{ha:stats}:ha:requests:total".to_owned()));
    assert!(schema.has_prefixes());
    let moved: Vec<&str> =
        schema.respelled_patterns().iter().map(|(document, _)| &*document.prefix).collect();
    assert_eq!(moved, ["courtlistener:", "ha:"]);
}

#[test]
fn an_entitys_keys_are_tagged_by_its_id() {
    let schema = bundled();
    let mut out = Vec::new();
    let upload = schema.resource(Kind::Upload, "documents").unwrap();
    upload.keys[0].pattern.render(&[("upload_id", "abc123")], 0, Spelling::Cluster, &mut out).unwrap();
    assert_eq!(out, b"upload:{abc123}:state");
}

#[test]
fn the_document_of_a_schema_names_every_key_in_both_spellings_and_every_field() {
    let schema = bundled();
    let text = docs(&schema, OWN_PREFIX);
    for resource in schema.resources() {
        assert!(text.contains(&format!("`{}.{}`", resource.kind, resource.name)));
        for row in &resource.keys {
            assert!(text.contains(&format!("`{}`", row.pattern.text())), "{}", row.pattern.text());
            let cluster = row.pattern.cluster_text();
            assert!(cluster == row.pattern.text() || text.contains(&format!("`{cluster}`")), "{cluster}");
            for field in &row.fields {
                assert!(text.contains(&format!("| `{}` |", field.name)), "{}", field.name);
            }
        }
        for channel in &resource.channels {
            assert!(text.contains(&format!("`{}`", channel.pattern.text())));
        }
    }
}

#[test]
fn the_document_of_a_small_schema_reads_well() {
    let text = "[schema]\nname = \"shop\"\nowner = \"sales\"\n\n[limit.order]\ndescription = \"Orders | buyer\"\n\
                key = \"rl:{buyer}:{hour}\"\nalgorithm = \"fixed_window\"\nlimit = 100\nwindow = \"1h\"\nsafety_buffer = 5\n\n\
                [cache.price]\nkey = \"price:{sku}\"\nttl = \"5m\"\ntype = \"hash\"\nfields = { amount = \"cents\" }\n\n\
                [event.sold]\n";
    let schema = load(&[Source { name: "shop.toml", text }], &|_| None).schema.unwrap();
    insta::assert_snapshot!(docs(&schema, OWN_PREFIX));
}
