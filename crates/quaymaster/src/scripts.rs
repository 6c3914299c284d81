//! The scripts, made from `lua/` at build time.

use quaymaster_store::{Effect, Script};

/// A script with the facts of its header.
#[derive(Debug)]
pub struct Operation {
    /// What runs.
    pub script: Script,
    /// What it does, in one line.
    pub about: &'static str,
    /// Names of its keys; one that ends in `?` is optional.
    pub keys: &'static [&'static str],
    /// Names of its arguments.
    pub args: &'static [&'static str],
    /// What it answers, a line each.
    pub replies: &'static [&'static str],
    /// What it costs.
    pub cost: &'static str,
    /// The commands it uses: what an ACL user must be allowed.
    pub commands: &'static [&'static str],
}

include!(concat!(env!("OUT_DIR"), "/scripts.rs"));

/// Every operation of every primitive.
pub fn operations() -> &'static [&'static Operation] {
    ALL
}
