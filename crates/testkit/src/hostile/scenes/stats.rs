//! Stats: one process that flushes, requests that are recorded, and the report.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use http::Method;
use quaymaster::stats::{Record, ReportAsk, Request, Seen, Stats};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "[stats.web]\nkey = \"web:\"\nflush = \"1m\"\nheartbeat = \"2m\"\nsamples = 10\n";

const ROWS: &[Row] = &[
    (Kind::Stats, "web", "connections_current"),
    (Kind::Stats, "web", "connections_max"),
    (Kind::Stats, "web", "requests_accepted"),
    (Kind::Stats, "web", "requests_total"),
    (Kind::Stats, "web", "speed"),
    (Kind::Stats, "web", "max_speed"),
    (Kind::Stats, "web", "requests_endpoint"),
    (Kind::Stats, "web", "requests_instance"),
    (Kind::Stats, "web", "requests_hourly"),
    (Kind::Stats, "web", "errors_total"),
    (Kind::Stats, "web", "errors_endpoint"),
    (Kind::Stats, "web", "errors_status"),
    (Kind::Stats, "web", "response_times"),
    (Kind::Stats, "web", "avg_response"),
    (Kind::Stats, "web", "response_count"),
    (Kind::Stats, "web", "instances"),
    (Kind::Stats, "web", "beats"),
    (Kind::Stats, "web", "connections"),
    (Kind::Stats, "web", "gauge"),
    (Kind::Stats, "web", "flushes"),
    (Kind::Stats, "web", "flushed"),
    (Kind::Stats, "web", "endpoints"),
    (Kind::Stats, "web", "statuses"),
    (Kind::Stats, "web", "micros"),
    (Kind::Stats, "web", "seconds"),
    (Kind::Stats, "web", "sketch"),
    (Kind::Stats, "web", "sketch_hour"),
    (Kind::Stats, "web", "request"),
];

/// The hour's keys have the hour in their names.
pub(crate) fn scenes() -> Vec<Scene> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let hour = (now.as_secs() / 3600 * 3_600_000).to_string();
    let values = vec![
        ("endpoint", "GET /a"),
        ("instance_id", "0"),
        ("status_code", "500"),
        ("request_id", "asked"),
        ("timestamp", &*hour.leak()),
    ];
    vec![Scene { name: "stats", schema: SCHEMA, values: values.leak(), rows: ROWS, play }]
}

async fn record(stage: &Stage, web: &Stats, request_id: Option<&str>) {
    let elapsed = Duration::from_millis(5);
    let one = Request {
        instance: "0",
        method: "get",
        path: "/a",
        status: 500,
        elapsed,
        remote: None,
        accepted: None,
    };
    let record = Record { requests: &[one], connections: &[("0", 2)], request_id };
    stage.call("record", web.record(record)).await;
}

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let web = stage.quaymaster.stats("web").expect("declared");
        let recorder = web.recorder("0");
        let elapsed = Duration::from_millis(5);
        let seen = Seen { method: &Method::GET, route: Some("/a"), status: 500, elapsed, accepted: true };
        recorder.record(&seen);
        stage.call("flush", recorder.flush()).await;
        // From here on it flushes only when it is told to.
        recorder.shutdown().await;
        record(stage, web, Some("asked")).await;
        // One that has been silent since 1970.
        let instances = stage.spelled((Kind::Stats, "web", "instances"), &[]);
        stage.write(&[b"ZADD", &instances, b"1", b"silent"]).await;
        stage.spoil().await;
        record(stage, web, Some("asked")).await;
        record(stage, web, None).await;
        recorder.record(&seen);
        stage.call("flush", recorder.flush()).await;
        stage.call("report", web.report(ReportAsk::default())).await;
        stage.call("report of hours", web.report(ReportAsk { hours: Some(2), endpoints: Some(5) })).await;
        stage.call("sweep", web.sweep()).await;
    })
}
