//! From TOML text to drafts of resources.

mod batch;
mod common;
mod document;
pub(crate) mod draft;
mod event;
mod fields;
mod kinds;
mod limit;
mod queue;
pub(crate) mod report;
mod run;
mod scalar;
mod upload;
mod value;

pub(crate) use document::read;
pub(crate) use scalar::{duration_text, size_text};
