//! `explain KEY`: which resource a key belongs to, and what is there. A running server is asked, or the schema and the
//! store; without a store it says only the first.

use std::process::ExitCode;

use quaymaster_server::KeyExplained;
use quaymaster_server::config::Needs;

use crate::args::{Explain, Global};
use crate::failure::NothingRan;
use crate::output::{self, millis, table};
use crate::setup;

pub(crate) async fn run(args: Explain, global: &Global) -> anyhow::Result<ExitCode> {
    let (told, asked) = match args.remote.client()? {
        Some(client) => (client.explain(&args.key).await.map_err(NothingRan::from)?, true),
        None => look_up(&args, global).await?,
    };
    let text = if global.json { as_json(&told, asked)? } else { describe(&told, asked) };
    output::print(&text)?;
    Ok(if told.pattern.is_some() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What the schema and the store say, and whether there was a store to ask.
async fn look_up(args: &Explain, global: &Global) -> anyhow::Result<(KeyExplained, bool)> {
    let config = setup::config(global, setup::overrides(args.place.clone()), Needs::STORE)?;
    let schema = setup::usable(setup::load_part(&config.schemas)?)?;
    let key = args.key.as_bytes();
    let (told, asked) = if setup::has_no_store(&config) {
        (KeyExplained::without_store(&schema, key), false)
    } else {
        let quaymaster = setup::open_to_explain(config, schema.clone()).await?;
        let engine = quaymaster.engine();
        let told = KeyExplained::look_up(&schema, &**engine, key).await;
        let _ = engine.close().await;
        (told.map_err(NothingRan::from)?, true)
    };
    if told.pattern.is_none() {
        for (label, variable) in schema.all_left_out() {
            output::note(&format!(
                "{label} is not looked at: the environment variable {variable} is not set"
            ));
        }
    }
    Ok((told, asked))
}

/// As the HTTP API answers; `actual` is null where no store was asked.
fn as_json(told: &KeyExplained, asked: bool) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(told)?;
    if !asked {
        value["actual"] = serde_json::Value::Null;
    }
    serde_json::to_string_pretty(&value)
}

fn describe(told: &KeyExplained, asked: bool) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    match (&told.pattern, &told.kind, &told.name) {
        (Some(pattern), Some(kind), Some(name)) => {
            let role = told.role.as_ref().map_or(String::new(), |role| format!(" ({role})"));
            rows.push(("pattern", pattern.clone()));
            rows.push(("resource", format!("{kind}.{name}{role}")));
            let values: Vec<String> =
                told.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
            rows.push(("values", if values.is_empty() { "none".into() } else { values.join("  ") }));
            rows.push(("owner", told.owner.clone().unwrap_or_else(|| "nobody is named".into())));
            if let Some(description) = &told.description {
                rows.push(("about", description.clone()));
            }
            rows.push(("type", told.r#type.clone().unwrap_or_else(|| "?".into())));
            rows.push(("expected ttl", told.expected_ttl.clone().unwrap_or_default()));
        }
        _ => rows.push(("pattern", "no pattern of the schema makes this key".into())),
    }
    let actual = &told.actual;
    let found = match &actual.r#type {
        None if !asked => "no store was asked: there is none here, and --store names none".into(),
        None => "the store has nothing under it".into(),
        Some(kind) => {
            let ttl = actual.ttl_ms.map_or("never expires".into(), |ms| format!("expires in {}", millis(ms)));
            let bytes = actual.bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
            format!("{kind}, {ttl}{bytes}")
        }
    };
    rows.push(("actual", found));
    table(&rows)
}
