//! A run renders the count of its limit as the calls of the hour: it must be one count, and an hour's.

use std::collections::HashMap;
use std::time::Duration;

use crate::field::Spec;
use crate::kind::Kind;
use crate::read::draft::Draft;
use crate::read::duration_text;
use crate::read::report::Report;

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn runs(drafts: &[Draft], report: &Report<'_>) {
    let limits: HashMap<&str, &Draft> = drafts
        .iter()
        .filter(|draft| draft.kind == Kind::Limit)
        .map(|draft| (draft.name.as_str(), draft))
        .collect();
    for draft in drafts {
        let Spec::Run(run) = &draft.spec else { continue };
        // One that is not declared is told elsewhere.
        let Some(limit) = run.limit.as_ref().and_then(|name| limits.get(name.as_str())) else { continue };
        let placeholder = limit.rows.first().and_then(|row| row.template.names().next());
        let window = match &limit.spec {
            Spec::Limit(spec) => spec.window,
            _ => continue,
        };
        let why = match placeholder {
            Some(name) => format!("has a count for every `{{{name}}}`"),
            None if window != HOUR => format!("counts {}", duration_text(window)),
            None => continue,
        };
        let message =
            format!("[{}] tells the calls of an hour, but [{}] {why}", draft.label(), limit.label());
        let help = "name a limit of 1h without placeholders, or leave `limit` out".to_owned();
        report.add(draft.at, "contradiction", message, Some(help));
    }
}
