//! `health`: whether the store answers, how fast, what it is, and whether `serve` would use it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use quaymaster::respell::{self, Depth};
use quaymaster::schema::Schema;
use quaymaster::store::{Health, StoreOptions};
use quaymaster::{Code, Engine};
use quaymaster_server::config::{Config, Needs, Thresholds};
use quaymaster_server::doctor::{self, Finding, Level, Scope};
use quaymaster_server::threshold_warnings;
use serde_json::json;

use crate::args;
use crate::failure::{self, NothingRan};
use crate::output::{self, table};
use crate::setup::{self, Intent};

/// Round trips measured.
const ROUND_TRIPS: u32 = 10;

pub(crate) async fn run(args: args::Health, global: &args::Global) -> anyhow::Result<ExitCode> {
    let config = setup::config(global, setup::overrides(args.place), Needs::STORE)?;
    let place = config.store.to_string();
    let schema = setup::load_part(&config.schemas)?.schema;
    let mut warnings = warnings(&config, schema.as_ref());
    match examine(&config, schema.as_ref()).await {
        Ok(Examined { mut found, findings, names, beyond }) => {
            let (refused, told): (Vec<_>, Vec<_>) =
                findings.iter().partition(|finding| finding.level == Level::Refuse);
            let refused: Vec<String> = refused.into_iter().map(spoken).chain(names).collect();
            warnings.extend(told.into_iter().map(spoken));
            warnings.extend(beyond);
            if !refused.is_empty() {
                found["status"] = json!("unsafe");
            }
            found["refusals"] = json!(refused);
            found["warnings"] = json!(warnings);
            let text =
                if global.json { serde_json::to_string_pretty(&found)? } else { describe(&place, &found) };
            output::print(&text)?;
            let usable = found["connected"] == true && refused.is_empty();
            Ok(if usable { ExitCode::SUCCESS } else { ExitCode::from(3) })
        }
        Err(error) if global.json => {
            let found =
                json!({"status": "unreachable", "connected": false, "reason": failure::describe(&error)});
            output::print(&serde_json::to_string_pretty(&found)?)?;
            Ok(failure::exit_code(&error))
        }
        Err(error) => Err(error),
    }
}

/// What the schema and the settings together leave unsafe.
fn warnings(config: &Config, schema: Option<&Schema>) -> Vec<String> {
    let Some(schema) = schema else {
        return vec!["the schema has errors; `quaymaster check` lists them".to_owned()];
    };
    let no_schema = config.check_demo().err().map(|error| error.to_string());
    config.unsealed(schema).as_ref().map(spoken).into_iter().chain(no_schema).collect()
}

fn spoken(finding: &Finding) -> String {
    format!("{}; {}", finding.message, finding.fix)
}

/// What was learned of a store.
struct Examined {
    /// What the store is.
    found: serde_json::Value,
    /// What `serve` would find.
    findings: Vec<Finding>,
    /// Why it would refuse the names of the keys, if it would.
    names: Option<String>,
    /// What is beyond its threshold.
    beyond: Vec<String>,
}

async fn examine(config: &Config, schema: Option<&Schema>) -> anyhow::Result<Examined> {
    let store = config.store.clone();
    let store = match schema {
        Some(schema) => store.for_schema(schema),
        None => store,
    };
    let engine = setup::open_store(store, Intent::Look).await?;
    let asked = async {
        let (found, beyond) = ask(&*engine, &config.thresholds).await?;
        let (mut findings, mut names) = (Vec::new(), None);
        if let Some(schema) = schema {
            findings = doctor::examine(schema, &*engine, config.eviction()).await?;
            findings
                .extend(doctor::rights(schema, &*engine, Scope::Server(config.store.own_prefix())).await?);
            // A data folder is converted by whoever uses it, and nobody who looks does.
            if let StoreOptions::Redis(_) = config.store {
                names = old_names(schema, &engine).await?;
            }
        }
        Ok(Examined { found, findings, names, beyond })
    };
    let asked: quaymaster::Result<_> = asked.await;
    let _ = engine.close().await;
    Ok(asked.map_err(NothingRan::from)?)
}

/// What `serve` would say of names of earlier versions.
async fn old_names(schema: &Schema, engine: &Arc<dyn Engine>) -> quaymaster::Result<Option<String>> {
    match respell::prepare(schema, engine, Depth::Scan).await {
        Ok(()) => Ok(None),
        Err(error) if error.code == Code::StoreNames => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

async fn ask(
    engine: &dyn Engine,
    thresholds: &Thresholds,
) -> quaymaster::Result<(serde_json::Value, Vec<String>)> {
    let facts = engine.deployment().await?;
    let mut latencies_us = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let asked = Instant::now();
        engine.time_us().await?;
        latencies_us.push(asked.elapsed().as_micros() as u64);
    }
    latencies_us.sort_unstable();
    let health = engine.health();
    let beyond = threshold_warnings(thresholds, &health, &facts);
    let status = match health {
        Health { connected: false, .. } => "unhealthy",
        Health { consecutive_failures: 0, .. } if beyond.is_empty() => "healthy",
        _ => "degraded",
    };
    let found = json!({
        "status": status,
        "connected": health.connected,
        "product": facts.product,
        "version": facts.version,
        "redis_version": facts.redis_version(),
        "mode": facts.mode,
        "persistence": facts.persistence,
        "eviction_policy": facts.eviction_policy,
        "used_memory_bytes": facts.used_memory_bytes,
        "max_memory_bytes": facts.max_memory_bytes,
        "connected_clients": facts.connected_clients,
        "connect_attempts": health.connect_attempts,
        "connect_failures": health.connect_failures,
        "connect_success_rate": health.connect_success_rate(),
        "operations": health.operations,
        "failures": health.failures,
        "success_rate": health.success_rate(),
        "consecutive_failures": health.consecutive_failures,
        "average_us": health.mean_latency_us(),
        "latency_us": {"median": latencies_us[latencies_us.len() / 2], "max": latencies_us.last()},
        "clock_offset_us": health.clock_offset_us,
        "clock_steps": facts.clock_steps,
        "future_data": facts.future_data,
    });
    Ok((found, beyond))
}

fn describe(place: &str, found: &serde_json::Value) -> String {
    let text = |name: &str| match &found[name] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "unknown".into(),
        other => other.to_string(),
    };
    let latency = &found["latency_us"];
    let percent = |name: &str| format!("{:.1} %", found[name].as_f64().unwrap_or(0.0) * 100.0);
    let mut rows = vec![
        ("status", text("status")),
        ("store", place.to_owned()),
        ("connected", if found["connected"] == true { "yes".into() } else { "no".into() }),
        ("version", format!("{} {} ({})", text("product"), text("version"), text("mode"))),
        ("persistence", text("persistence")),
        (
            "connections",
            format!(
                "{} tried, {} failed, {} succeeded",
                text("connect_attempts"),
                text("connect_failures"),
                percent("connect_success_rate")
            ),
        ),
        ("success rate", percent("success_rate")),
        ("consecutive failures", text("consecutive_failures")),
        (
            "latency",
            format!(
                "{} µs median, {} µs at most, of {ROUND_TRIPS} round trips",
                latency["median"], latency["max"]
            ),
        ),
        ("clock offset", format!("{} µs", text("clock_offset_us"))),
    ];
    for (name, list) in [("refused", "refusals"), ("warning", "warnings")] {
        let told = found[list].as_array().into_iter().flatten().filter_map(|told| told.as_str());
        rows.extend(told.map(|told| (name, told.to_owned())));
    }
    table(&rows)
}
