//! The handle in axum's handlers, from a state of the program's own.

use axum::Router;
use axum::extract::{FromRef, State};
use axum::routing::get;
use quaymaster::Quaymaster;
use quaymaster::extract::{MaybeReady, Ready};

use crate::client::{ask, listener};
use crate::in_memory;

#[derive(Clone)]
struct Backend {
    greeting: &'static str,
    quaymaster: Quaymaster,
}

impl FromRef<Backend> for Quaymaster {
    fn from_ref(backend: &Backend) -> Self {
        backend.quaymaster.clone()
    }
}

async fn both(State(backend): State<Backend>, Ready(handle): Ready, MaybeReady(maybe): MaybeReady) -> String {
    let names: Vec<_> = handle.limits().map(|limit| limit.name()).collect();
    format!("{} {} {}", backend.greeting, names.join(","), maybe.is_some())
}

#[tokio::test]
async fn the_handle_comes_from_any_state_that_has_one() {
    let quaymaster = in_memory(
        "[limit.one]\nkey = \"one:{id}\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1m\"\n",
    )
    .await;
    let app = Router::new().route("/", get(both)).with_state(Backend { greeting: "hello", quaymaster });
    let (listener, address) = listener().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    assert_eq!(ask(address, "GET /", "").await.body, "hello one true");
}

#[tokio::test]
async fn a_store_that_was_closed_is_not_ready() {
    let quaymaster = in_memory("").await;
    let app = Router::new().route("/", get(async |_: Ready| "")).with_state(quaymaster.clone());
    let (listener, address) = listener().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    assert_eq!(ask(address, "GET /", "").await.status, 200);
    quaymaster.engine().close().await.unwrap();
    assert_eq!(ask(address, "GET /", "").await.status, 503);
}
