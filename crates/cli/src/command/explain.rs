//! `explain KEY`: which resource a key belongs to, and what is there.

use std::process::ExitCode;

use quaymaster_server::KeyExplained;

use crate::args::{Explain, Global};
use crate::failure::NothingRan;
use crate::output::{self, millis, table};
use crate::setup::{self, Intent};

pub(crate) async fn run(args: Explain, global: &Global) -> anyhow::Result<ExitCode> {
    let quaymaster = setup::open(global, args.place, Intent::Look).await?;
    let engine = quaymaster.engine();
    let told = KeyExplained::look_up(quaymaster.schema(), &**engine, args.key.as_bytes()).await;
    let _ = engine.close().await;
    let told = told.map_err(NothingRan::from)?;
    let text = if args.json { serde_json::to_string_pretty(&told)? } else { describe(&told) };
    output::print(&text)?;
    Ok(if told.pattern.is_some() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn describe(told: &KeyExplained) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    match (&told.pattern, told.kind, &told.name) {
        (Some(pattern), Some(kind), Some(name)) => {
            rows.push(("pattern", pattern.clone()));
            rows.push((
                "resource",
                format!("{kind}.{name}{}", told.role.map_or(String::new(), |role| format!(" ({role})"))),
            ));
            let values: Vec<String> =
                told.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
            rows.push(("values", if values.is_empty() { "none".into() } else { values.join("  ") }));
            rows.push(("owner", told.owner.clone().unwrap_or_else(|| "nobody is named".into())));
            if let Some(description) = &told.description {
                rows.push(("about", description.clone()));
            }
            rows.push(("type", told.r#type.unwrap_or("?").into()));
            rows.push(("expected ttl", told.expected_ttl.clone().unwrap_or_default()));
        }
        _ => rows.push(("pattern", "no pattern of the schema makes this key".into())),
    }
    let actual = &told.actual;
    let found = match &actual.r#type {
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
