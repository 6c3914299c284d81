//! A resource on its store: what every primitive is made of, and how its keys are bound.

use std::sync::Arc;

use quaymaster_schema::{Bucket, KeyError, Pattern, Resource, Schema, Spelling};
use quaymaster_store::{Effect, Engine, Invocation, Reply, Topology, Words};

use crate::outage::Outages;
use crate::seal::Seal;
use crate::wrote;
use crate::{Code, Error, Result};

/// Values of a pattern's placeholders, by name.
pub type Key<'a> = &'a [(&'a str, &'a str)];

/// The longest `request_id`.
const REQUEST_ID_MAX: usize = 128;

/// How many of a call's keys are looked at to name the one of another type.
const KEYS_LOOKED_AT: usize = 64;

/// Where Lua's numbers end to be exact: no offset of a page lies beyond.
const OFFSET_MAX: u64 = 1 << 53;

/// Refuses an offset that no script could count with.
pub(crate) fn check_offset(op: &'static str, offset: u64) -> Result<()> {
    if offset <= OFFSET_MAX {
        return Ok(());
    }
    let detail = format!("offset: 0 to {OFFSET_MAX}, got {offset}");
    Err(Error::new(op, Code::RequestInvalid, detail))
}

/// What all resources of one process share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Knows which type every key has.
    pub(crate) schema: Arc<Schema>,
    /// Encrypts values marked `sensitive`.
    pub(crate) seal: Seal,
    /// Answers while the store is away.
    pub(crate) outages: Arc<Outages>,
    /// How large what queues carry may be.
    pub(crate) queues: crate::queue::Bounds,
}

/// A resource on its store. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) resource: Arc<Resource>,
    pub(crate) shared: Arc<Shared>,
}

impl Bound {
    /// The documented key's pattern.
    pub(crate) fn pattern(&self) -> &Pattern {
        &self.resource.keys[0].pattern
    }

    /// Whether only sealed values of this resource are believed.
    pub(crate) fn sealed_only(&self) -> bool {
        self.resource.sensitive && self.shared.seal.is_required()
    }

    /// Runs a call under the operation's name.
    pub(crate) async fn run(&self, op: &'static str, call: Invocation) -> Result<Reply> {
        let (keys, writes) = (call.keys.clone(), call.script.effect == Effect::Writes);
        wrote::asked();
        match self.engine.run(call).await {
            Ok(reply) => {
                if writes {
                    wrote::answered();
                }
                Ok(reply)
            }
            Err(error) if error.code == Code::KeyWrongType => {
                Err(Box::pin(self.naming(error, keys)).await.during(op))
            }
            Err(error) => Err(error.during(op)),
        }
    }

    /// The same error, with the key whose type is not what the schema says. The store does not tell which it was.
    async fn naming(&self, mut error: Error, keys: Words) -> Error {
        let looked = async {
            for key in keys.iter().take(KEYS_LOOKED_AT) {
                let Some(expected) = self.shared.schema.explain(key).map(|explained| explained.row.kind)
                else {
                    continue;
                };
                if let Ok(Some(facts)) = self.engine.key_facts(key).await
                    && facts.kind != expected.name()
                {
                    let key = String::from_utf8_lossy(key);
                    return Some(format!("{key} holds a {}, not a {expected}", facts.kind));
                }
            }
            None
        };
        if let Ok(Some(detail)) = tokio::time::timeout(self.engine.deadline(), looked).await {
            error.detail = detail;
        }
        error
    }

    /// Appends the documented key; answers the bucket in it.
    pub(crate) fn bind(
        &self,
        op: &'static str,
        key: Key<'_>,
        now_us: i64,
        keys: &mut Words,
    ) -> Result<Option<Bucket>> {
        bind(op, self.pattern(), key, now_us, self.engine.topology(), keys)
    }

    /// The documented key as it is spelled now, to name it in a message.
    pub(crate) fn spelled(&self, key: Key<'_>) -> String {
        let mut keys = Words::default();
        // A key that was used can be spelled; one that cannot is named by its pattern.
        match self.bind("", key, self.engine.now_us(), &mut keys) {
            Ok(_) => String::from_utf8_lossy(keys.word(0).unwrap_or_default()).into_owned(),
            Err(_) => self.pattern().text().to_owned(),
        }
    }

    /// Appends a side key, `{tag}:suffix`.
    pub(crate) fn bind_side(
        &self,
        op: &'static str,
        key: Key<'_>,
        suffix: &str,
        keys: &mut Words,
    ) -> Result<()> {
        bind_side(op, self.pattern(), key, suffix, self.engine.topology(), keys)
    }

    /// Appends the key under which the answer to `id` is kept.
    pub(crate) fn bind_request(
        &self,
        op: &'static str,
        key: Key<'_>,
        id: &str,
        keys: &mut Words,
    ) -> Result<()> {
        bind_request(op, self.pattern(), key, id, self.engine.topology(), keys)
    }

    /// The name of a channel beside the key: `prefix{tag}:suffix`, spelled alike on every topology.
    pub(crate) fn channel(&self, op: &'static str, key: Key<'_>, suffix: &str) -> Result<Vec<u8>> {
        let mut words = Words::default();
        bind_side(op, self.pattern(), key, suffix, Topology::Single, &mut words)?;
        Ok(words.word(0).unwrap_or_default().to_vec())
    }
}

pub(crate) fn spelling(topology: Topology) -> Spelling {
    match topology {
        Topology::Single => Spelling::Single,
        Topology::Cluster => Spelling::Cluster,
    }
}

pub(crate) fn bind(
    op: &'static str,
    pattern: &Pattern,
    key: Key<'_>,
    now_us: i64,
    topology: Topology,
    keys: &mut Words,
) -> Result<Option<Bucket>> {
    let mut bucket = None;
    keys.push_with(|out| {
        bucket = pattern.render(key, now_us, spelling(topology), out)?;
        Ok(())
    })
    .map_err(|error: KeyError| Error::new(op, error.code, error.detail))?;
    Ok(bucket)
}

pub(crate) fn bind_side(
    op: &'static str,
    pattern: &Pattern,
    key: Key<'_>,
    suffix: &str,
    topology: Topology,
    keys: &mut Words,
) -> Result<()> {
    keys.push_with(|out| pattern.render_side(key, suffix, spelling(topology), out))
        .map_err(|error| Error::new(op, error.code, error.detail))
}

pub(crate) fn bind_request(
    op: &'static str,
    pattern: &Pattern,
    key: Key<'_>,
    id: &str,
    topology: Topology,
    keys: &mut Words,
) -> Result<()> {
    check_request_id(op, id)?;
    bind_side(op, pattern, key, &format!("req:{id}"), topology, keys)
}

/// Refuses a `request_id` that could not be part of a key.
pub(crate) fn check_request_id(op: &'static str, id: &str) -> Result<()> {
    let usable = |c: char| !c.is_control() && !matches!(c, '{' | '}' | '*' | '?' | '[' | ']');
    if id.is_empty() || id.len() > REQUEST_ID_MAX || !id.chars().all(usable) {
        let detail = format!(
            "request_id: 1 to {REQUEST_ID_MAX} bytes without control characters and {{ }} * ? [ ], got {} bytes",
            id.len()
        );
        return Err(Error::new(op, Code::RequestInvalid, detail));
    }
    Ok(())
}
