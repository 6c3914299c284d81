//! What is answered while the store cannot be asked: the policy each resource declares.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use quaymaster_schema::{Outage, Resource, Schema};

use crate::{Code, Error, Retry};

/// Whether an error means that the store could not be asked, rather than that it was asked wrongly.
pub(crate) fn is_outage(code: Code) -> bool {
    code.name().starts_with("store.") && code.retry() != Retry::Useless
}

/// Answers given by policy, by resource; and when each was last warned about.
#[derive(Debug, Default)]
pub struct Outages {
    answers: HashMap<String, Tally>,
}

#[derive(Debug)]
struct Tally {
    policy: Outage,
    answers: AtomicU64,
    warned: Mutex<Option<std::time::Instant>>,
}

/// How often a resource that answers by policy is warned about.
const WARN_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

impl Outages {
    pub(crate) fn new(schema: &Schema) -> Self {
        let tally = |resource: &Resource| Tally {
            policy: resource.on_outage,
            answers: AtomicU64::new(0),
            warned: Mutex::new(None),
        };
        Self { answers: schema.resources().map(|resource| (label(resource), tally(resource))).collect() }
    }

    /// The policy under which `resource` answers although the store said `error`; `None` when it must be told.
    ///
    /// Counts the answer and warns, at most once a second for a resource.
    pub(crate) fn excuse(&self, resource: &Resource, error: &Error) -> Option<Outage> {
        if !is_outage(error.code) || matches!(resource.on_outage, Outage::Deny | Outage::Error) {
            return None;
        }
        let policy = resource.on_outage;
        if let Some(tally) = self.answers.get(&label(resource)) {
            let answers = tally.answers.fetch_add(1, Relaxed) + 1;
            let mut warned = tally.warned.lock();
            if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
                *warned = Some(std::time::Instant::now());
                tracing::warn!(
                    resource = label(resource), policy = policy.name(), code = error.code.name(), answers,
                    "the store cannot be asked; answering by policy: {}", error.detail
                );
            }
        }
        Some(policy)
    }

    /// Answers given by policy: `kind.name`, the policy and how many.
    pub fn counts(&self) -> impl Iterator<Item = (&str, Outage, u64)> {
        self.answers.iter().map(|(name, tally)| (name.as_str(), tally.policy, tally.answers.load(Relaxed)))
    }
}

fn label(resource: &Resource) -> String {
    format!("{}.{}", resource.kind.name(), resource.name)
}
