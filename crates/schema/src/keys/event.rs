//! Events: messages are kept nowhere; what lies beside a channel makes publishing safe to repeat.

use std::time::Duration;

use super::{REQUEST_TTL, RowDraft, side};
use crate::kind::RedisType;
use crate::pattern::{Class, Template};
use crate::schema::Ttl;
use crate::spec::EventSpec;

/// The placeholder of a publish's record; a channel cannot have one of this name.
pub(crate) const PUBLISH_ID: &str = "publish_id";

/// A day: what nobody has reported since is not told any more, whatever its own time to live.
const REPORTED_TTL: Duration = Duration::from_secs(86_400);

pub(crate) fn event_rows(channel: &Template, spec: &EventSpec) -> Vec<RowDraft> {
    let mut rows = vec![side(
        // Not `req`: a queue may well have the channel's name.
        "request",
        channel,
        "pub",
        Some((PUBLISH_ID, Class::Wide)),
        RedisType::String,
        Ttl::For(REQUEST_TTL),
        "The answer a publish under a request id got, given again when it comes again",
    )];
    if let Some(status) = &spec.status {
        rows.push(side(
            "turn",
            channel,
            "turn",
            None,
            RedisType::String,
            Ttl::For(status.every),
            "There while the status of this interval is published",
        ));
        rows.push(
            side(
                "reported",
                channel,
                "reported",
                None,
                RedisType::Hash,
                Ttl::For(REPORTED_TTL),
                "What programs report for the status",
            )
            .format("field: the value's name; value: until when it counts, in milliseconds, and its JSON"),
        );
    }
    rows
}
