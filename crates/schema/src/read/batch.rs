//! Reading a batch.

use super::common::{Body, Reading};
use super::fields::Got;
use crate::field::Spec;
use crate::field::batch::{BY, IDLE, ITEMS, ITEMS_AS, KEY, MAX_ITEMS, TO, TTL, WINDOW};
use crate::keys::batch_rows;
use crate::kind::Kind;
use crate::spec::BatchSpec;

pub(crate) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let fields = &reading.fields;
    let by = fields.required(&BY);
    let window = fields.required(&WINDOW);
    let idle = fields.read(&IDLE);
    let max_items = fields.read(&MAX_ITEMS).option();
    let to = fields.required(&TO);
    let items = fields.read(&ITEMS);
    let items_at = items.at();
    let items = items.option().unwrap_or_else(|| ITEMS.presence.0.to_owned());
    let items_as = fields.read(&ITEMS_AS).option().unwrap_or_else(|| items.clone());
    let ttl = reading.lifetime(&TTL, Some(TTL.presence.0));
    let key = by.as_ref().and_then(|(by, _)| reading.key_or(&KEY, &format!("batch:{{{by}}}:current")));
    let ((by, by_at), (window, window_at), (to, to_at), (ttl, _), (key, key_at)) =
        (by?, window?, to?, ttl?, key?);
    reading.refer(Kind::Queue, &to, to_at);

    if let Got::Value(idle, at) = idle
        && idle >= window
    {
        reading.add(at, "idle-over-window", "the window ends before the batch can be idle that long", None);
    }
    let idle = idle.option().unwrap_or(window);
    if ttl <= window {
        let message = "the batch's keys would expire before its window ends";
        reading.add(window_at, "ttl-shorter-than-window", message, Some("make `ttl` longer than `window`"));
    }
    let plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    // The last segment tells the keys of a batch from one another, and from the key of what it is grouped by: a
    // batch and a camera with the same id then share no key.
    let text = key.text();
    let current = text.rsplit(':').next().unwrap_or_default();
    let taken = ["ids", "size", "started_at", "last_activity", current];
    if taken.contains(&by.as_str()) {
        let message = format!("a batch has a key that ends in `{by}` already");
        reading.add(by_at, "bad-value", message, Some("give the placeholder another name"));
        return None;
    }
    if !plain(&items) || taken.contains(&items.as_str()) || items == by {
        let message = "`items` is the last segment of a key: letters, digits, `_` and `-`, and none of the batch's other keys";
        reading.add(items_at.unwrap_or(key_at), "bad-value", message, None);
        return None;
    }
    let spec = BatchSpec { by, window, idle, max_items, to, ttl, items, items_as };
    let names: Vec<&str> = key.names().collect();
    if names != [spec.by.as_str()] {
        let message = format!("the key of a batch has `{{{}}}`, its `by`, and no other placeholder", spec.by);
        let help = format!("leave `key` out, or write one such as `batch:{{{}}}:current`", spec.by);
        reading.add(key_at, "bad-pattern", message, Some(&help));
        return None;
    }
    // The list of open batches lies under the text in front of the placeholder.
    let shaped = key.bucket().is_none() && !key.literal_head().is_empty();
    let rows = if shaped { batch_rows(key, &spec) } else { None };
    let Some(rows) = rows else {
        let message =
            format!("the key of a batch begins and ends with a word, as in `batch:{{{}}}:current`", spec.by);
        reading.add(key_at, "bad-pattern", message, None);
        return None;
    };
    Some(Body::new(Spec::Batch(spec), rows, key_at))
}
