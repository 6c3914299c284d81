//! From TOML text to drafts of resources.

pub(crate) mod batch;
pub(crate) mod common;
mod document;
pub(crate) mod draft;
pub(crate) mod event;
pub(crate) mod fields;
pub(crate) mod kinds;
pub(crate) mod limit;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod run;
mod scalar;
pub(crate) mod upload;
mod value;

pub(crate) use document::read;
pub(crate) use scalar::{duration_text, size_text};
