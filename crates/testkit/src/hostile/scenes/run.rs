//! Runs: items, failures, tasks, and the indexes of all runs.

use std::time::Duration;

use futures_util::future::BoxFuture;
use quaymaster::run::{FailuresAsk, Fields, Items, RetryAsk, Run};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "
[limit.calls]
key = \"calls:{hour}\"
algorithm = \"fixed_window\"
limit = 100
window = \"1h\"
[run.pipe]
key = \"pipe:{run_id}\"
state_ttl = \"1h\"
hour_ttl = \"2h\"
limit = \"calls\"
";

const VALUES: &[(&str, &str)] = &[("run_id", "one"), ("task_id", "sort"), ("request_id", "asked")];

const ROWS: &[Row] = &[
    (Kind::Run, "pipe", "state"),
    (Kind::Run, "pipe", "task"),
    (Kind::Run, "pipe", "failed"),
    (Kind::Run, "pipe", "processed"),
    (Kind::Run, "pipe", "list"),
    (Kind::Run, "pipe", "meta"),
    (Kind::Run, "pipe", "failures"),
    (Kind::Run, "pipe", "failed_at"),
    (Kind::Run, "pipe", "retry_at"),
    (Kind::Run, "pipe", "tasks"),
    (Kind::Run, "pipe", "tasks_at"),
    (Kind::Run, "pipe", "request"),
    (Kind::Run, "pipe", "runs"),
    (Kind::Run, "pipe", "live"),
    (Kind::Run, "pipe", "kept"),
    (Kind::Run, "pipe", "known"),
    (Kind::Run, "pipe", "started"),
    // What the hour's calls are rendered from.
    (Kind::Limit, "calls", "limit"),
];

/// What another program keeps of a run and of failures, and what we note beside it.
const FOREIGN: &[Row] = &[
    (Kind::Run, "pipe", "state"),
    (Kind::Run, "pipe", "failed"),
    (Kind::Run, "pipe", "known"),
    (Kind::Run, "pipe", "meta"),
    (Kind::Run, "pipe", "processed"),
    (Kind::Run, "pipe", "failures"),
];

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "run", schema: SCHEMA, values: VALUES, rows: ROWS, play },
    Scene { name: "run of another program", schema: SCHEMA, values: VALUES, rows: FOREIGN, play: adopt },
];

fn run(stage: &Stage) -> &Run {
    stage.quaymaster.run("pipe").expect("declared")
}

async fn processed(stage: &Stage, item: &str, request_id: Option<&str>) {
    if stage.call("processed", run(stage).processed("one", &[item], request_id)).await.is_some() {
        stage.taken(item.as_bytes());
    }
}

async fn failed(stage: &Stage, item: &str) {
    if stage.call("failed", run(stage).failed("one", item, Some("no"), None)).await.is_some() {
        stage.taken(item.as_bytes());
    }
}

fn adopt(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let run = run(stage);
        let one = [("run_id", "one")];
        let key = |role| stage.spelled((Kind::Run, "pipe", role), &one);
        let state: &[&[u8]] = &[
            b"HSET",
            &key("state"),
            b"status",
            b"running",
            b"dockets_processed",
            b"[\"item-1\", \"item-2\"]",
        ];
        stage.write(state).await;
        stage.write(&[b"LPUSH", &key("failed"), b"item-3"]).await;
        stage.spoil().await;
        stage.call_in_parts("start", run.start(Some("one"), None)).await;
        stage.call_in_parts("processed", run.processed("one", &["item-4"], None)).await;
        stage.call("failures", run.failures(FailuresAsk::default())).await;
        let ask = RetryAsk { run_id: Some("one"), lease: Duration::from_secs(60), ..RetryAsk::default() };
        stage.call_in_parts("retry", run.retry(ask)).await;
        // It has given no sign of life since 1970.
        stage.write(&[b"ZADD", &key("live"), b"1", b"one"]).await;
        stage.call("sweep", run.sweep()).await;
        stage.call("show", run.show("one", Items::With)).await;
    })
}

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let run = run(stage);
        let named: [(&str, &str); 1] = [("note", "here")];
        let fields = Fields { own: &named, ..Fields::default() };
        stage.call("start", run.start(Some("one"), Some("asked"))).await;
        stage.call("start unnamed", run.start(None, Some("asked"))).await;
        processed(stage, "item-1", None).await;
        failed(stage, "item-2").await;
        stage.call("task_start", run.task_start("one", "sort", None)).await;
        stage.call("update", run.update("one", &fields, None)).await;
        stage.spoil().await;
        stage.call("start", run.start(Some("one"), Some("asked"))).await;
        stage.call("start unnamed", run.start(None, Some("asked"))).await;
        processed(stage, "item-3", None).await;
        failed(stage, "item-2").await;
        failed(stage, "item-4").await;
        stage.call("failures", run.failures(FailuresAsk::default())).await;
        let ask = RetryAsk { run_id: Some("one"), lease: Duration::from_secs(60), ..RetryAsk::default() };
        stage.call("retry", run.retry(ask)).await;
        stage.call("retry all", run.retry(RetryAsk::default())).await;
        stage.call("remaining", run.remaining("one", &["item-1", "item-9"])).await;
        stage.call("task_start", run.task_start("one", "sort", None)).await;
        stage.call("task_finish", run.task_finish("one", "sort", None)).await;
        stage.call("update", run.update("one", &fields, None)).await;
        stage.call("show", run.show("one", Items::With)).await;
        stage.call("list", run.list(10, None)).await;
        stage.call("sweep", run.sweep()).await;
        stage.call("finish", run.finish("one", "completed", None)).await;
        stage.call("show", run.show("one", Items::Without)).await;
    })
}
