//! A resource on its store: what every primitive is made of, and how its keys are bound.

use std::borrow::Cow;
use std::sync::Arc;

use quaymaster_schema::{Bucket, Explained, KeyError, Kind, Pattern, Resource, Schema, Spelling, is_longer};
use quaymaster_store::{Effect, Engine, Invocation, Reply, Topology, Words, Workload};

use crate::outage::Outages;
use crate::scripts::At;
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
    Err(Error::new(op, Code::RequestInvalid, detail).field("offset"))
}

/// A key that could not be spelled, as the error of `op`.
pub(crate) fn unspellable(op: &'static str, error: KeyError) -> Error {
    let field = error.placeholder.as_deref().map_or(Cow::Borrowed("key"), key_field);
    Error::new(op, error.code, error.detail()).field(field).because(error)
}

/// The field of a placeholder's value, `key.<placeholder>`. A caller's name that a message has to shorten or escape
/// names nothing that could be looked up: then it is `key`.
pub(crate) fn key_field(placeholder: &str) -> Cow<'static, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if placeholder.is_empty() || !placeholder.bytes().all(plain) {
        return Cow::Borrowed("key");
    }
    Cow::Owned(format!("key.{placeholder}"))
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

/// A key of a call that is not spelled yet: a row of the schema's key table and the values in it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyBinding<'a> {
    /// A pattern with its values; a time bucket in it is that of `now_us`.
    Row { pattern: &'a Pattern, values: Key<'a>, now_us: i64 },
    /// A key beside it, `prefix{tag}:suffix`.
    Side { pattern: &'a Pattern, values: Key<'a>, suffix: &'a str },
    /// The key beside it under which the answer to a `request_id` is kept.
    Request { pattern: &'a Pattern, values: Key<'a>, id: &'a str },
    /// A key as it is.
    Spelled(&'a [u8]),
}

impl KeyBinding<'_> {
    /// Appends the key.
    pub(crate) fn spell(self, op: &'static str, topology: Topology, keys: &mut Words) -> Result<()> {
        match self {
            Self::Row { pattern, values, now_us } => {
                bind(op, pattern, values, now_us, topology, keys).map(drop)
            }
            Self::Side { pattern, values, suffix } => bind_side(op, pattern, values, suffix, topology, keys),
            Self::Request { pattern, values, id } => bind_request(op, pattern, values, id, topology, keys),
            Self::Spelled(key) => {
                keys.push(key);
                Ok(())
            }
        }
    }
}

/// What to do where another program counts in a limit's key, in its own way.
fn counted_by_another(found: &Explained<'_>) -> Option<String> {
    let is_count = found.resource.kind == Kind::Limit && found.row.role == found.resource.primary()?.role;
    let name = &found.resource.name;
    let anew = match found.row.pattern.bucket() {
        Some(unit) => format!("the next {unit} counts anew, this one after `quaymaster limit reset {name}`"),
        None => format!("it counts anew after `quaymaster limit reset {name}`"),
    };
    is_count
        .then(|| format!(": another program counts there, too; stop it or give it other keys, and {anew}"))
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
                let Some(explained) = self.shared.schema.explain(key) else { continue };
                let expected = explained.row.kind;
                if let Ok(Some(facts)) = self.engine.key_facts(key).await
                    && facts.kind != expected.name()
                {
                    let key = String::from_utf8_lossy(key);
                    let help = counted_by_another(&explained).unwrap_or_default();
                    return Some(format!("{key} holds a {}, not a {expected}{help}", facts.kind));
                }
            }
            None
        };
        if let Ok(Some(detail)) = tokio::time::timeout(self.engine.deadline(), looked).await {
            error.detail = detail;
        }
        error
    }

    /// A call of `op` that goes to this resource's store.
    pub(crate) fn at(&self, op: &'static str, workload: Workload) -> At {
        At { op, topology: self.engine.topology(), workload }
    }

    /// The documented key.
    pub(crate) fn key<'a>(&'a self, values: Key<'a>, now_us: i64) -> KeyBinding<'a> {
        KeyBinding::Row { pattern: self.pattern(), values, now_us }
    }

    /// The first millisecond of the time bucket in the documented key, and the first behind it; 0 without one.
    pub(crate) fn bucket_ms(&self, now_us: i64) -> (i64, i64) {
        self.pattern().bucket_at(now_us).map_or((0, 0), |bucket| (bucket.start_ms, bucket.end_ms))
    }

    /// A side key, `{tag}:suffix`.
    pub(crate) fn side<'a>(&'a self, values: Key<'a>, suffix: &'a str) -> KeyBinding<'a> {
        KeyBinding::Side { pattern: self.pattern(), values, suffix }
    }

    /// The key under which the answer to `id` is kept.
    pub(crate) fn request<'a>(&'a self, values: Key<'a>, id: &'a str) -> KeyBinding<'a> {
        KeyBinding::Request { pattern: self.pattern(), values, id }
    }

    /// The key that plays `role`.
    pub(crate) fn role<'a>(
        &'a self,
        op: &'static str,
        role: &str,
        values: Key<'a>,
    ) -> Result<KeyBinding<'a>> {
        role_of(op, &self.resource, role, values)
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

/// The key that plays `role` for a resource.
pub(crate) fn role_of<'a>(
    op: &'static str,
    resource: &'a Resource,
    role: &str,
    values: Key<'a>,
) -> Result<KeyBinding<'a>> {
    let row = resource.key(role).ok_or_else(|| {
        Error::new(op, Code::Internal, format!("{}.{} has no key {role:?}", resource.kind, resource.name))
    })?;
    Ok(KeyBinding::Row { pattern: &row.pattern, values, now_us: 0 })
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
    .map_err(|error| unspellable(op, error))?;
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
        .map_err(|error| unspellable(op, error))
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
    if id.is_empty() || is_longer(id, REQUEST_ID_MAX) || !id.chars().all(usable) {
        let detail = format!(
            "request_id: 1 to {REQUEST_ID_MAX} characters without control characters and {{ }} * ? [ ], got {}",
            id.chars().count()
        );
        return Err(Error::new(op, Code::RequestInvalid, detail).field("request_id"));
    }
    Ok(())
}
