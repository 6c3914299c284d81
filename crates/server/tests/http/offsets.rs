//! Numbers in queries that are larger than any store counts: refused, never a server's error.

use std::sync::Arc;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};

use crate::fixture::{Fixture, settings};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[queue.jobs]
max_size = 10

[batch.camera]
by = "camera_id"
window = "90s"
to = "jobs"

[run.brief]
key = "brief:{run_id}"
failed_key = "brief_failed:{hour}"
state_ttl = "1h"
hour_ttl = "2h"

[stats.web]
key = "web:"
"#;

/// Every GET with a number, and whether 2^53 is one that it takes.
const CALLS: [(&str, &str, bool); 10] = [
    ("/v1/batch/camera/list", "offset", true),
    ("/v1/batch/camera/list", "count", false),
    ("/v1/queue/jobs/dead", "offset", true),
    ("/v1/queue/jobs/dead", "count", false),
    ("/v1/queue/jobs/peek", "count", false),
    ("/v1/run/brief/list", "count", false),
    ("/v1/run/brief/failures", "count", false),
    ("/v1/run/brief/failures", "hour", false),
    ("/v1/stats/web/report", "hours", false),
    ("/v1/stats/web/report", "endpoints", false),
];

#[tokio::test]
async fn an_offset_beyond_2_53_is_refused_by_every_call() {
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let server = Fixture::serving(SCHEMA, settings("", &|_| None).server, engine).await;
    for (path, name, taken) in CALLS {
        let last = server.get(&format!("{path}?{name}=9007199254740992")).await;
        assert_eq!(last.status, if taken { 200 } else { 400 }, "{path} {name}: {}", last.text());
        for number in [
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "1e16",
            "nan",
            "inf",
            "-1",
            "",
        ] {
            let answer = server.get(&format!("{path}?{name}={number}")).await;
            assert_eq!(answer.status, 400, "{path}?{name}={number}: {}", answer.text());
            assert!(answer.text().contains(name), "{path}?{name}={number}: {}", answer.text());
        }
    }
    for cursor in ["9223372036854775808-0", "1-18446744073709551616", "nan-0", "inf-inf", "-1", ""] {
        let answer = server.get(&format!("/v1/run/brief/list?cursor={cursor}")).await;
        assert_eq!(answer.status, 404, "{cursor}: {}", answer.text());
    }
}
