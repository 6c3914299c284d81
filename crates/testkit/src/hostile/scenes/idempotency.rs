//! Idempotencies: a claim in progress, a finished one, and none.

use futures_util::future::BoxFuture;
use quaymaster::idempotency::{Begin, Begun};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "[idempotency.pay]\nkey = \"idem:{id}\"\nttl = \"1h\"\nin_progress_ttl = \"1m\"\n";
const KEY: &[(&str, &str)] = &[("id", "1")];
const VALUES: &[(&str, &str)] = &[("id", "1"), ("abandon_id", "asked")];
const ROWS: &[Row] = &[(Kind::Idempotency, "pay", "record"), (Kind::Idempotency, "pay", "request")];

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "idempotency, in progress", schema: SCHEMA, values: VALUES, rows: ROWS, play: in_progress },
    Scene { name: "idempotency, finished", schema: SCHEMA, values: VALUES, rows: ROWS, play: finished },
];

async fn begin(stage: &Stage) -> Option<quaymaster::Token> {
    let idempotency = stage.quaymaster.idempotency("pay").expect("declared");
    match stage.call("begin", idempotency.begin(KEY, Begin::default())).await? {
        Begun::Started(claim) => Some(claim.token),
        _ => None,
    }
}

fn in_progress(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let idempotency = stage.quaymaster.idempotency("pay").expect("declared");
        let token = begin(stage).await.expect("nobody has begun");
        stage.spoil().await;
        begin(stage).await;
        stage.call("abandon", idempotency.abandon(KEY, &token, Some("asked"))).await;
        stage.call("finish", idempotency.finish(KEY, &token, Some(b"{}"))).await;
        if let Some(token) = begin(stage).await {
            stage.call("finish", idempotency.finish(KEY, &token, Some(b"{}"))).await;
        }
    })
}

fn finished(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let idempotency = stage.quaymaster.idempotency("pay").expect("declared");
        let token = begin(stage).await.expect("nobody has begun");
        stage.call("finish", idempotency.finish(KEY, &token, Some(b"{}"))).await;
        stage.spoil().await;
        begin(stage).await;
        stage.call("finish", idempotency.finish(KEY, &token, Some(b"{}"))).await;
        stage.call("abandon", idempotency.abandon(KEY, &token, Some("asked"))).await;
    })
}
