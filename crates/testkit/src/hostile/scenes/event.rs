//! Events: the record of a publish, the turn of a status, and what programs report for it.

use futures_util::future::BoxFuture;
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "[event.status]\nstatus = { every = \"1h\", queues = [\"jobs\"] }\n\
                      [queue.jobs]\nmax_size = 100\n";
const VALUES: &[(&str, &str)] = &[("publish_id", "asked")];
const ROWS: &[Row] = &[
    (Kind::Event, "status", "request"),
    (Kind::Event, "status", "turn"),
    (Kind::Event, "status", "reported"),
    (Kind::Queue, "jobs", "items"),
];

pub(crate) const SCENES: &[Scene] =
    &[Scene { name: "event", schema: SCHEMA, values: VALUES, rows: ROWS, play }];

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let event = stage.quaymaster.event("status").expect("declared");
        stage.call("report", event.report(&[("a", "1"), ("b", "2")], None)).await;
        stage.spoil().await;
        stage.call("tell", event.tell_status()).await;
        stage.call("report", event.report(&[("c", "3")], None)).await;
        stage.call("publish", event.publish(&[], b"1")).await;
        stage.call("publish with a request", event.publish_as(&[], b"1", Some("asked"))).await;
        stage.call("tell", event.tell_status()).await;
    })
}
