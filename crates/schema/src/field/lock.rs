//! Locks: their fields, and what is made of them.

use std::time::Duration;

use super::{Expiry, Field, Form, Required, Spec, Table, Text, field, fields};
use crate::keys::{RowDraft, request, row, side};
use crate::kind::{Kind, RedisType};
use crate::pattern::Template;
use crate::read::common::{Body, Reading};
use crate::read::draft::ChannelDraft;
use crate::read::duration_text;
use crate::schema::Ttl;

pub(crate) static TABLE: Table = Table {
    path: "lock",
    kind: Some(Kind::Lock),
    fields: FIELDS,
    meaning: "A lease on a name, with fencing numbers and a queue of waiters.",
    page: Some("locks.md"),
    example: r#"[lock.stock]
key = "lock:stock:{sku}"
ttl = "30s"
"#,
};

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> = field("key", Text(Form::Pattern), Required, "The lock's key, without a time bucket.");
    TTL: Field<Expiry, Required> =
        field("ttl", Expiry { never: false }, Required, "The lease unless a caller asks for less.");
}

/// A lease on a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockSpec {
    /// The lease when the caller asks for none, and the longest it may ask for.
    pub ttl: Duration,
}

impl LockSpec {
    pub(super) fn in_words(&self) -> String {
        format!("leases up to {}", duration_text(self.ttl))
    }

    /// How long the last fence is remembered: longer than any lease, and long enough after it to notice a
    /// clock that was set back.
    pub fn fence_ttl(&self) -> Duration {
        (self.ttl * 2).max(Duration::from_secs(600))
    }
}

pub(super) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let key = reading.key(&KEY);
    let ttl = reading.lifetime(&TTL, None);
    let ((key, key_at), (ttl, _)) = (key?, ttl?);
    if key.bucket().is_some() {
        let message = "a lock has no time bucket: its holder could not be found again in the next one";
        reading.add(key_at, "bad-pattern", message, Some("drop the bucket; `ttl` ends the lease"));
        return None;
    }
    let spec = LockSpec { ttl };
    let wake = ChannelDraft::hint(&key, "wake", "Whose turn it is, for those who wait");
    let rows = rows(key, &spec);
    let mut body = Body::new(Spec::Lock(spec), rows, key_at);
    body.channels.push(wake);
    Some(body)
}

fn rows(key: Template, spec: &LockSpec) -> Vec<RowDraft> {
    let tag = key.without_bucket();
    // Waiters ask again every second; a queue nobody asks in is swept after a minute.
    let queue_ttl = Ttl::For(Duration::from_secs(60));
    vec![
        row("lock", key, RedisType::String, Ttl::For(spec.ttl), "The holder's token; its TTL is the lease")
            .format("the holder's token"),
        side(
            "fence",
            &tag,
            "fence",
            None,
            RedisType::String,
            Ttl::For(spec.fence_ttl()),
            "The last fencing number handed out",
        )
        .format("a decimal integer, max(last + 1, store time in microseconds)"),
        side("queue", &tag, "queue", None, RedisType::Zset, queue_ttl.clone(), "Who waits for the lock")
            .format("waiters' tokens; the score is the arrival in microseconds"),
        side("alive", &tag, "alive", None, RedisType::Hash, queue_ttl, "Which waiters are still there")
            .format("a waiter's token, and the millisecond by which it must ask again"),
        request(&tag),
    ]
}
