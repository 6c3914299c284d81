//! Limits: every algorithm, with and without a bucket in the key, alone and together.

use futures_util::future::BoxFuture;
use quaymaster::limit::{Charge, Part, take_all};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const FIXED: &str =
    "[limit.calls]\nkey = \"calls:{id}\"\nalgorithm = \"fixed_window\"\nlimit = 5\nwindow = \"1h\"\n";
const LOG: &str =
    "[limit.calls]\nkey = \"calls:{id}\"\nalgorithm = \"sliding_log\"\nlimit = 5\nwindow = \"1h\"\n";
const WINDOW: &str =
    "[limit.calls]\nkey = \"calls:{id}\"\nalgorithm = \"sliding_window\"\nlimit = 5\nwindow = \"1h\"\n";
const BUCKET: &str =
    "[limit.calls]\nkey = \"calls:{id}\"\nalgorithm = \"token_bucket\"\nlimit = 5\nwindow = \"1h\"\n";

const KEY: &[(&str, &str)] = &[("id", "1")];
const VALUES: &[(&str, &str)] = &[("id", "1"), ("request_id", "asked")];
const ROWS: &[Row] = &[(Kind::Limit, "calls", "limit"), (Kind::Limit, "calls", "request")];

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "fixed window", schema: FIXED, values: VALUES, rows: ROWS, play },
    Scene { name: "sliding log", schema: LOG, values: VALUES, rows: ROWS, play },
    Scene { name: "sliding window", schema: WINDOW, values: VALUES, rows: ROWS, play },
    Scene { name: "token bucket", schema: BUCKET, values: VALUES, rows: ROWS, play },
];

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let limit = stage.quaymaster.limit("calls").expect("declared");
        let asked = Charge::one().request_id("asked");
        stage.call("take", limit.take(KEY, Charge::of(2))).await;
        stage.spoil().await;
        stage.call("peek", limit.peek(KEY)).await;
        stage.call("take", limit.take(KEY, Charge::one())).await;
        stage.call("take with a request", limit.take(KEY, asked)).await;
        stage.call("take too much", limit.take(KEY, Charge::of(5))).await;
        let parts = [Part { limit, key: KEY, cost: 1 }];
        stage.call("take_all", take_all(&parts, None)).await;
        stage.call("refund", limit.refund(KEY, Charge::one())).await;
        stage.call("peek", limit.peek(KEY)).await;
        stage.call("reset", limit.reset(KEY, None)).await;
        stage.call("take", limit.take(KEY, Charge::one())).await;
    })
}
