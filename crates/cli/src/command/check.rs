//! `check [FILE…]`: every problem with its place, code and help.

use std::process::ExitCode;

use quaymaster::schema::Severity;
use serde_json::json;

use crate::args::{Check, Global};
use crate::failure::flaw;
use crate::{output, setup};

pub(crate) fn run(args: &Check, global: &Global) -> anyhow::Result<ExitCode> {
    let loaded = setup::load(&setup::schema_files(global, &args.files)?)?;
    let errors = loaded.diagnostics.iter().filter(|problem| problem.severity == Severity::Error).count();
    let warnings = loaded.diagnostics.len() - errors;
    if global.json {
        let problems: Vec<_> = loaded.diagnostics.iter().map(flaw).collect();
        let resources = loaded.schema.as_ref().map(|schema| schema.resources().count());
        let report = json!({
            "ok": errors == 0, "errors": errors, "warnings": warnings, "resources": resources, "problems": problems,
        });
        output::print(&serde_json::to_string_pretty(&report)?)?;
    } else {
        let found = match &loaded.schema {
            Some(schema) => counted(schema.resources().count(), "resource"),
            None => "not usable".into(),
        };
        let mut lines: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
        lines.push(format!("{found}, {}, {}", counted(errors, "error"), counted(warnings, "warning")));
        let text = lines.join("\n");
        output::print(&text)?;
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// `1 error`, `2 errors`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
