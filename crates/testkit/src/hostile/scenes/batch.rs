//! Batches: one that another program began and Quaymaster took over, so that its id is known.

use futures_util::future::BoxFuture;
use quaymaster::batch::{Add, Batch};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "
[queue.jobs]
max_size = 100
[batch.camera]
by = \"camera_id\"
window = \"10m\"
to = \"jobs\"
";

const FRONT: &[(&str, &str)] = &[("camera_id", "front")];
const VALUES: &[(&str, &str)] = &[("camera_id", "front"), ("batch_id", "one"), ("request_id", "asked")];

const ROWS: &[Row] = &[
    (Kind::Batch, "camera", "current"),
    (Kind::Batch, "camera", "by"),
    (Kind::Batch, "camera", "items"),
    (Kind::Batch, "camera", "started_at"),
    (Kind::Batch, "camera", "last_activity"),
    (Kind::Batch, "camera", "size"),
    (Kind::Batch, "camera", "ids"),
    (Kind::Batch, "camera", "open"),
    (Kind::Batch, "camera", "request"),
];

/// What another program keeps of a batch, and where we note that it is open.
const FOREIGN: &[Row] = &[
    (Kind::Batch, "camera", "current"),
    (Kind::Batch, "camera", "by"),
    (Kind::Batch, "camera", "items"),
    (Kind::Batch, "camera", "started_at"),
    (Kind::Batch, "camera", "last_activity"),
    (Kind::Batch, "camera", "size"),
    (Kind::Batch, "camera", "open"),
];

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "batch", schema: SCHEMA, values: VALUES, rows: ROWS, play },
    Scene { name: "batch of another program", schema: SCHEMA, values: VALUES, rows: FOREIGN, play: adopt },
];

fn batch(stage: &Stage) -> &Batch {
    stage.quaymaster.batch("camera").expect("declared")
}

async fn add(stage: &Stage, number: u32, id: Option<&str>, request_id: Option<&str>) {
    let item = format!("\"item-{number}\"");
    let add = Add { item: item.as_bytes(), id, request_id };
    if stage.call("add", batch(stage).add(FRONT, add)).await.is_some_and(|added| !added.duplicate) {
        stage.taken(item.as_bytes());
    }
}

/// A batch takes no more items before it is read: what cannot be read stays for a sweep, and the call says why.
async fn close(stage: &Stage) {
    stage.call_in_parts("close", batch(stage).close(FRONT, None)).await;
}

fn adopt(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        for (key, value) in [
            ("batch:front:current", "one"),
            ("batch:one:items", "[\"item-1\"]"),
            ("batch:one:started_at", "1794744600.5"),
            ("batch:one:size", "1"),
        ] {
            stage.write(&[b"SET", key.as_bytes(), value.as_bytes()]).await;
        }
        // Whose keys have ended.
        let open = stage.spelled((Kind::Batch, "camera", "open"), &[]);
        stage.write(&[b"ZADD", &open, b"1", b"ended"]).await;
        stage.spoil().await;
        add(stage, 2, None, None).await;
        stage.call("list", batch(stage).list(0, 10)).await;
        close(stage).await;
        stage.call("sweep", batch(stage).sweep()).await;
    })
}

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        stage.write(&[b"SET", b"batch:front:current", b"one"]).await;
        stage.write(&[b"SET", b"batch:one:items", b"[\"item-1\"]"]).await;
        add(stage, 2, Some("known"), None).await;
        add(stage, 3, None, Some("asked")).await;
        stage.spoil().await;
        add(stage, 4, Some("known"), None).await;
        add(stage, 5, Some("other"), None).await;
        // Answered as before, though somebody may have removed the item since.
        let again = Add { item: b"\"item-3\"", id: None, request_id: Some("asked") };
        stage.call("add again", batch(stage).add(FRONT, again)).await;
        stage.call("list", batch(stage).list(0, 10)).await;
        stage.call("sweep", batch(stage).sweep()).await;
        add(stage, 6, None, None).await;
        close(stage).await;
        stage.call("list", batch(stage).list(0, 10)).await;
        add(stage, 7, None, None).await;
        close(stage).await;
        stage.call("sweep", batch(stage).sweep()).await;
    })
}
