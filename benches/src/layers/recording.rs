//! What recording adds to a request: the same requests with the layer and without, taking turns.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Method, Request, Response};
use quaymaster::layer::StatsLayer;
use quaymaster::schema::{Source, load};
use quaymaster::stats::{Recorder, ReportAsk, Seen};
use quaymaster::{Engine, Quaymaster};
use tokio::runtime::Runtime;
use tower_layer::Layer as _;
use tower_service::Service;

use super::handler::{Handler, request};
use crate::fact::Fact;
use crate::ours::memory_engine;
use crate::{Findings, Settings};

const REQUESTS: u64 = 200_000;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    /// The handler alone.
    Plain,
    /// The handler behind the layer, its route named by a function.
    Recorded,
    /// A router of axum's.
    Router,
    /// The same with the layer, which takes the matched route.
    RouterRecorded,
    /// `Recorder::record` alone.
    Record,
}

pub(super) fn bind(engine: Arc<dyn Engine>, flush: &str) -> Result<Quaymaster> {
    let text = format!(
        "[schema]\nname = \"layers\"\nowner = \"bench\"\n[stats.web]\nkey = \"web:\"\nflush = \"{flush}\"\n"
    );
    let loaded = load(&[Source { name: "layers.toml", text: &text }], &|_| None);
    let schema = loaded.schema.with_context(|| format!("{:?}", loaded.diagnostics))?;
    Ok(Quaymaster::new(Arc::new(schema), engine))
}

/// Asks so often; how long that took.
pub(super) async fn ask(subject: Subject, recorder: &Recorder, requests: u64) -> Result<Duration> {
    let layer = StatsLayer::new(recorder.clone());
    let router = || Router::new().route("/users/{id}", get(async || ()));
    match subject {
        Subject::Plain => through(Handler, requests).await,
        Subject::Recorded => {
            let layer = layer.route(|_| Some(Cow::Borrowed("/users/{id}")));
            through(layer.layer(Handler), requests).await
        }
        Subject::Router => through(router().with_state::<()>(()), requests).await,
        Subject::RouterRecorded => through(router().layer(layer).with_state::<()>(()), requests).await,
        Subject::Record => {
            let began = Instant::now();
            for number in 0..requests {
                let elapsed = Duration::from_nanos(200_000 + (number % 4096) * 1000);
                let route = Some("/users/{id}");
                recorder.record(&Seen { method: &Method::GET, route, status: 200, elapsed, accepted: true });
            }
            Ok(began.elapsed())
        }
    }
}

async fn through<S>(mut service: S, requests: u64) -> Result<Duration>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let began = Instant::now();
    for number in 0..requests {
        let Ok(response) = service.call(request(number)?).await;
        ensure!(response.status() == 200, "answered {}", response.status());
    }
    Ok(began.elapsed())
}

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let engine = memory_engine(runtime)?;
    let quaymaster = bind(engine.clone(), "1s")?;
    let recorder = {
        let _inside = runtime.enter();
        quaymaster.stats("web")?.recorder("bench")
    };
    let lap = |subject: Subject| {
        let recorder = recorder.clone();
        let asked = runtime.spawn(async move { ask(subject, &recorder, REQUESTS).await });
        anyhow::Ok(runtime.block_on(asked)??.as_secs_f64() * 1e9 / REQUESTS as f64)
    };
    let pairs = settings.pairs.max(5);
    for (what, plain, recorded) in [
        ("what the recording layer adds to a request, tower service", Subject::Plain, Subject::Recorded),
        ("the same, axum router with its matched route", Subject::Router, Subject::RouterRecorded),
    ] {
        lap(plain)?;
        lap(recorded)?;
        let mut added = Vec::new();
        for pair in 0..pairs {
            let (without, with) = if pair % 2 == 0 {
                let without = lap(plain)?;
                (without, lap(recorded)?)
            } else {
                let with = lap(recorded)?;
                (lap(plain)?, with)
            };
            added.push(with - without);
        }
        findings.facts.push(Fact::new("layers", what, "ns", added).at_most(1000.0));
    }
    lap(Subject::Record)?;
    let alone = (0..pairs).map(|_| lap(Subject::Record)).collect::<Result<Vec<_>>>()?;
    let what = "Recorder::record alone";
    findings.facts.push(Fact::new("layers", what, "ns", alone).at_most(1000.0));
    // Nothing that was timed went past the recorder.
    let expected = (2 * (pairs as u64 + 1) + pairs as u64 + 1) * REQUESTS;
    let report = runtime.block_on(async {
        recorder.flush().await?;
        quaymaster.stats("web")?.report(ReportAsk::default()).await
    })?;
    ensure!(report.total == expected, "{} of {expected} requests were recorded", report.total);
    runtime.block_on(recorder.shutdown());
    runtime.block_on(engine.close())?;
    Ok(())
}
