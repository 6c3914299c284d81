//! `schema --json-schema`: what editors complete and check schema files by.

use std::process::ExitCode;

use quaymaster::schema::json_schema;

use crate::output;

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    output::print(&json_schema())
}
