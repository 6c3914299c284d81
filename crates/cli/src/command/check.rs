//! `check FILE…`: every problem with its place, code and help.

use std::process::ExitCode;

use quaymaster::schema::Severity;
use serde_json::json;

use crate::args::Check;
use crate::{output, setup};

pub(crate) fn run(args: &Check) -> anyhow::Result<ExitCode> {
    let loaded = setup::load(&args.files)?;
    let errors = loaded.diagnostics.iter().filter(|problem| problem.severity == Severity::Error).count();
    let warnings = loaded.diagnostics.len() - errors;
    if args.json {
        let problems: Vec<_> = loaded
            .diagnostics
            .iter()
            .map(|problem| {
                json!({
                    "severity": problem.severity.to_string(),
                    "code": problem.code,
                    "file": problem.source,
                    "line": problem.line,
                    "column": problem.column,
                    "message": problem.message,
                    "help": problem.help,
                })
            })
            .collect();
        let resources = loaded.schema.as_ref().map(|schema| schema.resources().count());
        let report = json!({
            "ok": errors == 0, "errors": errors, "warnings": warnings, "resources": resources, "problems": problems,
        });
        output::print(&serde_json::to_string_pretty(&report)?)?;
    } else {
        let found = match &loaded.schema {
            Some(schema) => format!("{} resources", schema.resources().count()),
            None => "not usable".into(),
        };
        let mut lines: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
        lines.push(format!("{found}, {errors} errors, {warnings} warnings"));
        let text = lines.join("\n");
        output::print(&text)?;
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
