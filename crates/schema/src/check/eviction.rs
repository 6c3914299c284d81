//! What an eviction policy would destroy.

use crate::kind::Kind;
use crate::read::report::{At, Report};
use crate::schema::{Resource, Schema, Ttl};

/// One key pattern whose data a policy would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionLoss {
    /// The resource's kind.
    pub kind: Kind,
    /// The resource's name.
    pub name: String,
    /// Which of its keys.
    pub role: &'static str,
    /// The key's pattern.
    pub pattern: String,
    /// What its loss means.
    pub loss: &'static str,
}

impl Schema {
    /// What `maxmemory-policy` would destroy when memory is full; empty for `noeviction`.
    ///
    /// `allkeys-*` takes anything, `volatile-*` what has a TTL. Cache entries may go; nothing else may. A policy
    /// nobody has heard of is taken for the worst.
    pub fn eviction_losses(&self, policy: &str) -> Vec<EvictionLoss> {
        self.resources.iter().flat_map(|resource| losses(resource, policy)).collect()
    }
}

fn losses(resource: &Resource, policy: &str) -> Vec<EvictionLoss> {
    let volatile = policy.starts_with("volatile-");
    if policy == "noeviction" || resource.kind == Kind::Cache {
        return Vec::new();
    }
    let loss = |row: &crate::schema::KeyRow| EvictionLoss {
        kind: resource.kind,
        name: resource.name.clone(),
        role: row.role,
        pattern: row.pattern.text().to_owned(),
        loss: resource.kind.loss(),
    };
    resource.keys.iter().filter(|row| !volatile || matches!(row.ttl, Ttl::For(_))).map(loss).collect()
}

/// The most resources one warning names.
const MOST_NAMED: usize = 20;

/// The lint: a document that declares such a policy.
pub(crate) fn eviction(schema: &Schema, heads: &[At], report: &Report<'_>) {
    for (document, at) in schema.documents.iter().zip(heads) {
        let Some(policy) = &document.eviction else { continue };
        let mut names: Vec<String> = Vec::new();
        let mut more = 0;
        for resource in schema.resources.iter().filter(|resource| resource.document == document.name) {
            if losses(resource, policy).is_empty() {
                continue;
            }
            if names.len() == MOST_NAMED {
                more += 1;
            } else {
                names.push(format!("[{}.{}] ({})", resource.kind, resource.name, resource.kind.loss()));
            }
        }
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        if !names.is_empty() {
            let message =
                format!("under `{policy}` these lose data when memory is full: {}", names.join(", "));
            let help = "run this schema under `noeviction`".to_owned();
            report.add(*at, "eviction", message, Some(help));
        }
    }
}
