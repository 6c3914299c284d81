//! What a service answered, as what follows from the ack.
//!
//! | `result_to` | the response's body |
//! |---|---|
//! | `event.…` | any JSON: published as it is |
//! | `queue.…` | any JSON: one job |
//! | `batch.…` | `{"key": {…}, "item": …, "id"?: …}`, or a list of such: one item each |
//!
//! No body at all, or an empty list for a batch, is "done, and nothing follows".

use std::borrow::Cow;

use bytes::Bytes;
use quaymaster::Code;
use quaymaster::queue::Then;
use quaymaster::schema::Kind;
use serde_json::value::RawValue;

use crate::http::problem::Problem;
use crate::request::{JSON, KEY, KeyValues, Request as _, Spec, read, request};

request! {
    /// One item of a batch.
    struct BatchItem<'a> {
        /// The placeholders of the batch's key, by name.
        key: KeyValues<'a> = KEY,
        /// The item.
        item: Option<&'a RawValue> = JSON,
        /// An id already in the batch is not added again.
        id: Option<Cow<'a, str>> = Spec::text(),
    }
}

/// What follows from `body`; an error says what is wrong with it.
pub(super) fn read(to: &(Kind, String), body: &[u8]) -> Result<Vec<Then>, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let value: &RawValue = serde_json::from_slice(body)
        .map_err(|error| wrong(format!("the response is not JSON: {error}")).because(error))?;
    let text = || Bytes::copy_from_slice(value.get().as_bytes());
    let (kind, name) = to;
    match kind {
        Kind::Batch => items(name, value),
        Kind::Event => Ok(vec![Then::Publish { name: name.clone(), data: text() }]),
        _ => Ok(vec![Then::Push { name: name.clone(), payload: text(), priority: None, delay: None }]),
    }
}

fn wrong(detail: String) -> Problem {
    Problem::new(Code::RequestInvalid, detail)
}

fn items(name: &str, value: &RawValue) -> Result<Vec<Then>, Problem> {
    if !value.get().starts_with('[') {
        return Ok(vec![item(name, value, "the response")?]);
    }
    let list: Vec<&RawValue> =
        serde_json::from_str(value.get()).map_err(|error| wrong(error.to_string()).because(error))?;
    list.iter().enumerate().map(|(at, value)| item(name, value, &format!("the response's [{at}]"))).collect()
}

fn item(name: &str, value: &RawValue, path: &str) -> Result<Then, Problem> {
    let read = read::object(BatchItem::SHAPE, value.get(), path).and_then(BatchItem::of);
    let read = read.map_err(|mut problem| {
        let detail = format!(
            "{}; for batch.{name} it must be {{\"key\", \"item\", \"id\"?}} or a list of such",
            problem.detail
        );
        problem.detail = detail.into();
        problem
    })?;
    let Some(item) = read.item else {
        let detail = format!("{path} has no \"item\" for batch.{name}");
        return Err(wrong(detail).field(format!("{path}.item")));
    };
    Ok(Then::BatchAdd {
        name: name.to_owned(),
        key: read.key.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect(),
        item: Bytes::copy_from_slice(item.get().as_bytes()),
        id: read.id.map(Cow::into_owned),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn batch(body: &str) -> Result<Vec<Then>, Problem> {
        read(&(Kind::Batch, "camera".to_owned()), body.as_bytes())
    }

    #[test]
    fn a_batch_takes_one_item_or_a_list_of_them() {
        let one = batch(r#" {"key": {"camera_id": "door"}, "item": {"id": 1}, "id": "a"} "#).unwrap();
        let [Then::BatchAdd { name, key, item, id }] = &one[..] else { panic!("{one:?}") };
        assert_eq!((name.as_str(), &item[..], id.as_deref()), ("camera", &br#"{"id": 1}"#[..], Some("a")));
        assert_eq!(key[..], [("camera_id".to_owned(), "door".to_owned())]);
        let several = batch(r#"[{"key": {"camera_id": 7}, "item": 1}, {"key": {}, "item": null}]"#).unwrap();
        assert_eq!(several.len(), 2);
        assert_eq!(batch("[]").unwrap().len(), 0);
        assert_eq!(batch(" \n").unwrap().len(), 0);
    }

    #[test]
    fn what_is_no_batch_item_is_told_with_its_place() {
        for (body, part) in [
            ("{", "not JSON"),
            ("7", "the response must be a JSON object, got an integer"),
            (r#"{"key": {}, "items": 1}"#, "\"items\" is unknown"),
            (r#"{"key": {}}"#, "no \"item\""),
            (
                r#"[{"key": {}, "item": 1}, {"item": 1, "key": 5}]"#,
                "the response's [1].key must be an object",
            ),
            (r#"{"key": {"a": [1]}, "item": 1}"#, "key.a must be a string or an integer"),
        ] {
            let told = batch(body).unwrap_err().detail;
            assert!(told.contains(part), "{body}: {told}");
        }
        let error = |body| batch(body).unwrap_err().into_error("worker");
        assert!(error("{").source.is_some());
        let field = error(r#"[{"key": {}, "item": 1}, {"item": 1, "key": 5}]"#).field;
        assert_eq!(field.as_deref(), Some("the response's [1].key"));
    }

    #[test]
    fn queues_and_events_take_any_json_as_it_is() {
        let told = read(&(Kind::Event, "seen".to_owned()), b" {\"b\": 1,  \"a\": 2} ").unwrap();
        let [Then::Publish { name, data }] = &told[..] else { panic!("{told:?}") };
        assert_eq!((name.as_str(), &data[..]), ("seen", &b"{\"b\": 1,  \"a\": 2}"[..]));
        let told = read(&(Kind::Queue, "next".to_owned()), b"[1]").unwrap();
        assert!(matches!(&told[..], [Then::Push { payload, .. }] if &payload[..] == b"[1]"));
        assert!(read(&(Kind::Queue, "next".to_owned()), b"nope").is_err());
    }
}
