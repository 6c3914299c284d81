//! Caches: strings and hashes, and the lease of whoever loads.

use std::time::Duration;

use futures_util::future::BoxFuture;
use quaymaster::Error;
use quaymaster::cache::{Load, LoadError, Put, Value};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const STRINGS: &str = "[cache.page]\nkey = \"page:{id}\"\nttl = \"1h\"\n";
const HASHES: &str = "[cache.page]\nkey = \"page:{id}\"\nttl = \"1h\"\ntype = \"hash\"\n";
const KEY: &[(&str, &str)] = &[("id", "1")];
const VALUES: &[(&str, &str)] = &[("id", "1"), ("request_id", "asked")];
const ROWS: &[Row] =
    &[(Kind::Cache, "page", "entry"), (Kind::Cache, "page", "load"), (Kind::Cache, "page", "request")];

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "cache of strings", schema: STRINGS, values: VALUES, rows: ROWS, play: strings },
    Scene { name: "cache that is loaded", schema: STRINGS, values: VALUES, rows: ROWS, play: loaded },
    Scene { name: "cache of hashes", schema: HASHES, values: VALUES, rows: ROWS, play: hashes },
];

fn strings(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(play(stage, Value::from("1")))
}

fn hashes(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(play(stage, Value::fields([("a", "1")])))
}

/// A loader that fails gives its lease back, and one that takes longer than its lease renews it.
fn loaded(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let cache = stage.quaymaster.cache("page").expect("declared");
        let lease = Duration::from_millis(30);
        let load = Load { lease, patience: Duration::from_secs(1), ..Load::default() };
        stage.spoil().await;
        for fails in [true, false] {
            let loader = move || async move {
                tokio::time::sleep(lease).await;
                if fails { Err(std::io::Error::other("no")) } else { Ok(Value::from("1")) }
            };
            let loading = async {
                match cache.get_or_load(KEY, load, loader).await {
                    Err(LoadError::Store(error)) => {
                        Err(Error::new(error.op, error.code, error.detail.clone()))
                    }
                    _ => Ok(()),
                }
            };
            stage.call("load", loading).await;
        }
    })
}

async fn play(stage: &Stage, value: Value) {
    let cache = stage.quaymaster.cache("page").expect("declared");
    // Somebody who died loads it for a moment longer.
    stage.write(&[b"SET", b"{page:1}:load", b"token 1"]).await;
    stage.spoil().await;
    stage.call("get", cache.get(KEY)).await;
    stage.call("exists", cache.exists(KEY)).await;
    let load = Load { patience: Duration::from_millis(50), ..Load::default() };
    let loaded = value.clone();
    let loading = async {
        match cache.get_or_load(KEY, load, move || async { Ok::<_, std::io::Error>(loaded) }).await {
            Err(LoadError::Store(error)) => Err(Error::new(error.op, error.code, error.detail.clone())),
            _ => Ok(()),
        }
    };
    stage.call("load", loading).await;
    let asked = Put { request_id: Some("asked"), ..Put::default() };
    stage.call("put", cache.put(KEY, &value, Put::default())).await;
    stage.call("put with a request", cache.put(KEY, &value, asked)).await;
    stage.call("get", cache.get(KEY)).await;
    stage.call("delete", cache.delete(KEY, None)).await;
    stage.call("get", cache.get(KEY)).await;
}
