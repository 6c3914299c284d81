//! What the `Idempotency-Key` layer adds to a request beyond its store round trips: a request through the layer,
//! less the handler alone, less begin and finish; in memory, one caller, wall-clock time.

use std::convert::Infallible;
use std::future::Ready;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use quaymaster::Quaymaster;
use quaymaster::idempotency::{Begin, Begun, Finished, Idempotency, IdempotencyLayer, IdempotencyService};
use quaymaster::schema::{Source, load};
use tokio::runtime::Runtime;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::fact::Fact;
use crate::ours::memory_engine;
use crate::{Findings, Settings};

const SCHEMA: &str = "[schema]\nname = \"layer\"\nowner = \"bench\"\n[idempotency.orders]\nkey = \"orders:{key}\"\nttl = \"1h\"\n";
const CALLS: u32 = 20_000;
const REQUEST: &[u8] = br#"{"sku":"A-100","quantity":2,"customer":"C-12345","note":"leave it at the door"}"#;
const RESPONSE: &[u8] = br#"{"order":"O-98765","status":"accepted","total":"41.90","currency":"EUR"}"#;

/// A handler that only reads and answers.
#[derive(Clone)]
struct Handler;

impl Service<Request<Full<Bytes>>> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        let mut response = Response::new(Full::from(Bytes::from_static(RESPONSE)));
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
        std::future::ready(Ok(response))
    }
}

fn request(lap: usize, number: u32) -> Result<Request<Full<Bytes>>> {
    let request = Request::post("/orders").header("idempotency-key", format!("{lap}-{number}"));
    Ok(request.header("content-type", "application/json").body(Full::from(Bytes::from_static(REQUEST)))?)
}

/// Microseconds of one request and its answer.
async fn requests<S, R>(mut service: S, lap: usize) -> Result<f64>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>, Error = Infallible>,
    R: http_body::Body<Data = Bytes>,
    R::Error: std::fmt::Debug,
{
    let began = Instant::now();
    for number in 0..CALLS {
        let Ok(response) = service.call(request(lap, number)?).await;
        ensure!(response.status() == StatusCode::CREATED, "answered {}", response.status());
        let Ok(body) = response.into_body().collect().await else { bail!("the body broke off") };
        ensure!(body.to_bytes() == RESPONSE, "another body");
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS))
}

/// Microseconds of begin and finish with what the layer hands them.
async fn round_trips(orders: &Idempotency, lap: usize) -> Result<f64> {
    let print = [b"POST /orders\n", REQUEST].concat();
    let kept = [b"HTTP 201\ncontent-type: application/json\n\n", RESPONSE].concat();
    let began = Instant::now();
    for number in 0..CALLS {
        let id = format!("{lap}-{number}");
        let key: &[(&str, &str)] = &[("key", &id)];
        let begin = Begin { fingerprint: Some(&print), ..Begin::default() };
        let Begun::Started(claim) = orders.begin(key, begin).await? else { bail!("not started") };
        let finished = orders.finish(key, &claim.token, Some(&kept)).await?;
        ensure!(finished == Finished::Finished { kept: true, outage: None }, "{finished:?}");
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS))
}

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let engine = memory_engine(runtime)?;
    let schema =
        load(&[Source { name: "layer.toml", text: SCHEMA }], &|_| None).schema.context("a schema")?;
    let orders = Quaymaster::new(Arc::new(schema), engine.clone()).idempotency("orders")?.clone();
    let layered: IdempotencyService<Handler> = IdempotencyLayer::new(orders.clone())?.layer(Handler);
    let lap = |lap: usize| {
        // On the workers, where a service runs: the layer's own task is a hop from there.
        let (layered, orders) = (layered.clone(), orders.clone());
        let measured = runtime.spawn(async move {
            let through = requests(layered, lap * 2).await?;
            let alone = requests(Handler, lap).await?;
            let store = round_trips(&orders, lap * 2 + 1).await?;
            anyhow::Ok((through, alone, store))
        });
        let (through, alone, store) = runtime.block_on(measured)??;
        anyhow::Ok((through, through - alone - store))
    };
    lap(0)?;
    let laps = (1..=settings.pairs.max(3)).map(lap).collect::<Result<Vec<_>>>()?;
    let what = "one request through the layer, its two store round trips included";
    findings.facts.push(Fact::new("layer", what, "µs", laps.iter().map(|(through, _)| *through)));
    let what = "what the layer adds beyond handler, begin and finish";
    let added = laps.iter().map(|(_, added)| *added);
    findings.facts.push(Fact::new("layer", what, "µs", added).at_most(50.0));
    runtime.block_on(engine.close())?;
    Ok(())
}
