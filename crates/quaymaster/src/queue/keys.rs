//! A queue's keys, spelled once for its store.

use std::collections::HashMap;
use std::sync::Arc;

use quaymaster_schema::{DedupeSpec, Order, Overflow, QueueSpec, Resource, Schema, Spec};
use quaymaster_store::Topology;
use tokio::sync::Notify;

use super::Bounds;
use crate::batch::Batch;
use crate::bound::{Bound, KeyBinding, spelling};
use crate::scripts::{ClaimKeys, QueueKeys};
use crate::throttle::Throttle;
use crate::{Code, Error, Result};

/// Roles in the order of [`Role`].
const ROLES: [&str; 9] = ["items", "meta", "stamps", "overflow", "jobs", "held", "delayed", "leases", "dead"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Items,
    Meta,
    Stamps,
    Overflow,
    Jobs,
    Held,
    Delayed,
    Leases,
    Dead,
}

/// A queue on its store: what pushing to it needs, for itself and for others.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) bound: Bound,
    pub(super) spec: QueueSpec,
    keys: [Vec<u8>; 9],
    /// Wakes claims of this process that wait for what no list tells: retries, due jobs, priorities.
    pub(super) nudge: Notify,
    /// Items that were dropped and no log line has told of.
    pub(super) dropped: Throttle,
}

/// What a queue's step may be joined with, by name.
#[derive(Debug, Default)]
pub(crate) struct Around {
    pub(super) queues: HashMap<String, Arc<Place>>,
    pub(super) dedupes: HashMap<String, (Bound, DedupeSpec)>,
    /// Channels by event.
    pub(super) events: HashMap<String, Vec<u8>>,
    pub(super) batches: HashMap<String, Batch>,
}

impl Around {
    pub(crate) fn of(
        schema: &Schema,
        batches: &HashMap<String, Batch>,
        bind: impl Fn(&Arc<Resource>) -> Bound,
    ) -> Self {
        let mut around = Self { batches: batches.clone(), ..Self::default() };
        for resource in schema.resources() {
            let name = resource.name.clone();
            match &resource.spec {
                Spec::Queue(spec) => {
                    let place = Place::new(bind(resource), spec.clone());
                    around.queues.insert(name, Arc::new(place));
                }
                Spec::Dedupe(spec) => drop(around.dedupes.insert(name, (bind(resource), spec.clone()))),
                Spec::Event(spec) => {
                    around.events.insert(name, spec.channel.clone().into_bytes());
                }
                _ => {}
            }
        }
        around
    }
}

impl Place {
    pub(super) fn new(bound: Bound, spec: QueueSpec) -> Self {
        let spelling = spelling(bound.engine.topology());
        let keys = ROLES.map(|role| {
            let mut key = Vec::new();
            if let Some(row) = bound.resource.key(role) {
                // The loader refuses placeholders in a queue's key, so there is nothing that could be missing.
                let _ = row.pattern.render(&[], 0, spelling, &mut key);
            }
            key
        });
        Self { bound, spec, keys, nudge: Notify::new(), dropped: Throttle::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.bound.resource.name
    }

    pub(super) fn is_fifo(&self) -> bool {
        self.spec.order == Order::Fifo
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bound.shared.queues
    }

    pub(super) fn key(&self, role: Role) -> &[u8] {
        &self.keys[role as usize]
    }

    /// The same for a call.
    pub(super) fn spelled(&self, role: Role) -> KeyBinding<'_> {
        KeyBinding::Spelled(self.key(role))
    }

    /// What adding to the queue needs.
    pub(super) fn add_keys(&self) -> QueueKeys<'_> {
        QueueKeys {
            items: self.spelled(Role::Items),
            meta: self.spelled(Role::Meta),
            stamps: self.spelled(Role::Stamps),
            overflow: self.spelled(Role::Overflow),
            jobs: self.spelled(Role::Jobs),
            held: self.spelled(Role::Held),
            delayed: self.spelled(Role::Delayed),
        }
    }

    /// What a claim needs.
    pub(super) fn claim_keys(&self) -> ClaimKeys<'_> {
        ClaimKeys {
            items: self.spelled(Role::Items),
            meta: self.spelled(Role::Meta),
            stamps: self.spelled(Role::Stamps),
            overflow: self.spelled(Role::Overflow),
            jobs: self.spelled(Role::Jobs),
            held: self.spelled(Role::Held),
            delayed: self.spelled(Role::Delayed),
            leases: self.spelled(Role::Leases),
        }
    }

    /// The key that remembers a caller's id.
    pub(super) fn id_key(&self, op: &'static str, id: &str) -> Result<Vec<u8>> {
        let Some(row) = self.bound.resource.key("id") else {
            return Err(Error::new(op, Code::Internal, "a queue without a key for ids"));
        };
        let (spelling, mut key) = (spelling(self.bound.engine.topology()), Vec::new());
        let rendered = row.pattern.render(&[("push_id", id)], 0, spelling, &mut key);
        rendered.map_err(|error| {
            // A caller's id is a part of a key, and refused like one, under the caller's own name for it.
            let error = error.called("id");
            Error::new(op, Code::RequestInvalid, error.detail()).field("id").because(error)
        })?;
        Ok(key)
    }

    /// The key of what is kept for a `request_id`, if there is one.
    pub(super) fn request<'a>(&'a self, id: Option<&'a str>) -> Option<KeyBinding<'a>> {
        id.map(|id| self.bound.request(&[], id))
    }

    /// Refuses a key that a cluster keeps elsewhere than this queue.
    pub(super) fn check_near(
        &self,
        op: &'static str,
        field: &'static str,
        what: &str,
        key: &[u8],
    ) -> Result<()> {
        if self.bound.engine.topology() == Topology::Single || tag(key) == tag(self.key(Role::Items)) {
            return Ok(());
        }
        let detail = format!("{what} and queue {:?} lie in different slots", self.name());
        Err(Error::new(op, Code::QueueApart, detail).field(field))
    }

    pub(super) fn order(&self) -> &'static str {
        self.spec.order.name()
    }

    pub(super) fn policy(&self) -> &'static str {
        match self.spec.max_size {
            Some(_) => self.spec.overflow.name(),
            None => Overflow::Reject.name(),
        }
    }

    pub(super) fn max_size(&self) -> i64 {
        i64::try_from(self.spec.max_size.unwrap_or(0)).unwrap_or(i64::MAX)
    }
}

/// What decides a key's slot: the text in its first braces, or all of it.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    match key[open + 1..].iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => &key[open + 1..open + 1 + length],
        _ => key,
    }
}
