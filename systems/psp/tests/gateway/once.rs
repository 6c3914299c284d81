//! Two hundred callers submit one payment: it is made once and all are told the same, whoever dies on the way.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Gateway, PATIENCE, Scene, Store, Told, ask, created, execution, payment};

const CALLERS: usize = 200;

/// A caller that, like any payment client, submits again elsewhere when its connection breaks or it is told to come
/// back. Anything else is its answer.
async fn submit(addresses: Vec<String>, first: usize, path: &'static str, body: String) -> Told {
    let until = Instant::now() + PATIENCE;
    for at in first.. {
        let address = &addresses[at % addresses.len()];
        match ask(address, "POST", path, &body, "").await {
            Ok(told) if told.status != 409 || told.retry_after().is_none() => return told,
            told => assert!(Instant::now() < until, "a caller has no answer: {told:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    unreachable!("it asks on until its patience ends")
}

fn crowd(
    gateways: &[Gateway],
    callers: usize,
    path: &'static str,
    body: &Value,
) -> Vec<tokio::task::JoinHandle<Told>> {
    let addresses: Vec<String> = gateways.iter().map(|gateway| gateway.address.clone()).collect();
    (0..callers).map(|n| tokio::spawn(submit(addresses.clone(), n, path, body.to_string()))).collect()
}

async fn answers(crowd: Vec<tokio::task::JoinHandle<Told>>) -> Vec<Told> {
    let mut told = Vec::new();
    for caller in crowd {
        told.push(caller.await.unwrap());
    }
    told
}

fn all_the_same(told: &[Told]) {
    let different: HashSet<(u16, &str)> = told.iter().map(|told| (told.status, told.text.as_str())).collect();
    assert_eq!(different.len(), 1, "{different:?}");
}

async fn nobody_dies(store: Store) {
    let scene = Scene::new(store);
    let gateways = scene.gateways(4).await;
    let told = answers(crowd(&gateways, CALLERS, "/create", &payment("PSP-TX-1"))).await;
    all_the_same(&told);
    assert_eq!(told[0].status, 201, "{:?}", told[0]);
    assert_eq!(told.iter().filter(|told| !told.is_replayed()).count(), 1, "one caller ran it");
    assert_eq!((scene.payments().await, scene.effects("create").await, scene.found().await), (1, 1, 0));
    // Replays took no quota: the payment's own limit is ten in five minutes.
    let id = told[0].json()["transaction_id"].as_str().unwrap().to_owned();
    let told = answers(crowd(&gateways, 50, "/execute", &execution(&id))).await;
    all_the_same(&told);
    assert_eq!(told[0].status, 200, "{:?}", told[0]);
    assert_eq!(scene.effects("execute").await, 1);
    for gateway in gateways {
        assert_eq!(gateway.stop().await, 0);
    }
}

/// Holds gateway `winner` at `point` of the create it won, lets everybody else come, and kills it there.
async fn the_winner_is_killed(store: Store, point: &str, winner: usize) {
    let scene = Scene::new(store);
    let mut gateways = scene.gateways(4).await;
    let point = format!("create.{point}");
    scene.arm(&point);
    let first = tokio::spawn(submit(
        gateways.iter().map(|gateway| gateway.address.clone()).collect(),
        winner,
        "/create",
        payment("PSP-TX-1").to_string(),
    ));
    assert_eq!(scene.held(&point).await, gateways[winner].process.pid());
    let mut callers = crowd(&gateways, CALLERS - 1, "/create", &payment("PSP-TX-1"));
    callers.push(first);
    gateways[winner].process.kill9();
    let told = answers(callers).await;
    all_the_same(&told);
    assert_eq!(told[0].status, 201, "{:?}", told[0]);
    assert_eq!((scene.payments().await, scene.effects("create").await), (1, 1));
    // Killed after its commit, the winner left an effect that its successor found; killed before, it left nothing.
    assert_eq!(scene.found().await, i64::from(point.ends_with("committed")));
    let mut again = gateways.swap_remove(usize::from(winner == 0));
    let replay = again.post("/create", &payment("PSP-TX-1")).await;
    assert!(replay.is_replayed());
    assert_eq!(replay.text, told[0].text);
    assert!(again.process.ended().is_none());
}

macro_rules! on_every_store {
    ($($store:ident: $make:expr;)*) => {
        $(mod $store {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn two_hundred_submissions_are_one_payment() {
                nobody_dies($make).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn killed_before_it_wrote_the_winner_leaves_nothing() {
                the_winner_is_killed($make, "entered", 1).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn killed_inside_its_transaction_the_winner_leaves_nothing() {
                the_winner_is_killed($make, "writing", 1).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn killed_after_its_commit_the_winner_leaves_one_payment() {
                the_winner_is_killed($make, "committed", 1).await;
            }
        })*
    };
}

on_every_store! {
    redis: Store::redis();
    valkey: Store::valkey();
    cluster: Store::cluster();
    embedded: Store::Embedded;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_with_the_store_it_owned_the_winner_leaves_one_payment() {
    the_winner_is_killed(Store::Embedded, "committed", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_with_the_store_it_owned_before_it_wrote_the_winner_leaves_nothing() {
    the_winner_is_killed(Store::Embedded, "entered", 0).await;
}

/// The executing gateway dies after the money has moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_whose_gateway_died_after_its_commit_is_found_and_not_repeated() {
    let scene = Scene::new(Store::redis());
    let gateways = scene.gateways(3).await;
    let id = created(&gateways[0], "PSP-TX-1").await;
    scene.arm("execute.committed");
    let callers = crowd(&gateways, CALLERS, "/execute", &execution(&id));
    let winner = scene.held("execute.committed").await;
    let winner = gateways.iter().position(|gateway| gateway.process.pid() == winner).unwrap();
    gateways[winner].process.signal(Signal::KILL);
    let told = answers(callers).await;
    all_the_same(&told);
    assert_eq!(told[0].status, 200, "{:?}", told[0]);
    assert_eq!((scene.effects("execute").await, scene.found().await), (1, 1));
}
