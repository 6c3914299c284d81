//! Dedupes.

use futures_util::future::BoxFuture;
use quaymaster::dedupe::First;
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "[dedupe.seen]\nkey = \"seen:{id}\"\nttl = \"1h\"\n";
const KEY: &[(&str, &str)] = &[("id", "1")];
const VALUES: &[(&str, &str)] = &[("id", "1"), ("request_id", "asked")];
const ROWS: &[Row] = &[(Kind::Dedupe, "seen", "first"), (Kind::Dedupe, "seen", "request")];

pub(super) const SCENES: &[Scene] =
    &[Scene { name: "dedupe", schema: SCHEMA, values: VALUES, rows: ROWS, play }];

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let dedupe = stage.quaymaster.dedupe("seen").expect("declared");
        stage.call("first", dedupe.first(KEY, First::default())).await;
        stage.spoil().await;
        stage.call("first", dedupe.first(KEY, First::default())).await;
        let asked = First { request_id: Some("asked"), ..First::default() };
        stage.call("first with a request", dedupe.first(KEY, asked)).await;
    })
}
