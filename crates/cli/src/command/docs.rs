//! `docs [FILE…]`: the schema as Markdown.

use std::process::ExitCode;

use quaymaster::schema::OWN_PREFIX;
use quaymaster_server::config::{Needs, Overrides};
use serde_json::json;

use crate::args::{Docs, Global};
use crate::{output, setup};

pub(crate) fn run(args: &Docs, global: &Global) -> anyhow::Result<ExitCode> {
    let schema = setup::usable(setup::load(&setup::schema_files(global, &args.files)?)?)?;
    // Settings that cannot be read here, such as a password of another machine's environment, have the default.
    let config = setup::config(global, Overrides::default(), Needs::STORE).ok();
    let own_prefix = config.as_ref().map_or(OWN_PREFIX, |config| config.store.own_prefix());
    let markdown = quaymaster::schema::docs(&schema, own_prefix);
    output::print(&if global.json { json!({ "markdown": markdown }).to_string() } else { markdown })
}
