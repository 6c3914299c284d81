//! `describe`: every kind and verb with what it is given and what it answers, from the table the server runs.

use std::fmt::Write as _;
use std::process::ExitCode;

use quaymaster::schema::Kind;
use quaymaster_server::command::{self, Command};

use crate::args::Global;
use crate::output;

pub(crate) fn run(global: &Global) -> anyhow::Result<ExitCode> {
    if global.json {
        return output::print(&serde_json::to_string_pretty(&quaymaster_server::describe())?);
    }
    let mut text = String::new();
    for kind in Kind::ALL {
        let calls: Vec<Command> = command::commands().filter(|call| call.kind() == *kind).collect();
        if !calls.is_empty() {
            let _ = writeln!(text, "{kind}: {}", kind.about());
        }
        for call in calls {
            let fields: Vec<String> =
                call.request()
                    .fields
                    .iter()
                    .map(|field| {
                        if field.spec.required { field.name.to_owned() } else { format!("[{}]", field.name) }
                    })
                    .collect();
            let _ = writeln!(text, "  {} {}: {}", call.verb(), fields.join(" "), call.about());
        }
    }
    text.push_str("--json has types, bounds, defaults, answers and roles.\n");
    output::print(&text)
}
