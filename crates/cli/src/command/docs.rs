//! `docs FILE…`: the schema as Markdown.

use std::process::ExitCode;

use crate::args::Docs;
use crate::{output, setup};

pub(crate) fn run(args: &Docs) -> anyhow::Result<ExitCode> {
    let schema = setup::usable(setup::load(&args.files)?)?;
    output::print(&quaymaster::schema::docs(&schema))
}
