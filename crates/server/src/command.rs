//! The calls without HTTP: the same table, the same requests, the same answers.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::OnceLock;

use quaymaster::schema::Kind;
use quaymaster::{Code, Error, Result};
use schemars::generate::SchemaSettings;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::{CALLS, Call, Effect, Given, Input, No};
use crate::http::presence::Presence;
use crate::http::problem::excerpt;
use crate::http::rights::Rights;
use crate::page::explain;
use crate::request::field::{Field, Holds, Shape};
use crate::services::Services;

/// A call's fields besides `key`, each as it is written in JSON: a payload reaches the store byte for byte.
pub type Fields = std::collections::BTreeMap<String, Box<RawValue>>;

/// Told how many are done so far by a call that takes its time.
pub type Progress<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// A call as a command line offers it.
#[derive(Debug, Clone, Copy)]
pub struct Command(&'static Call);

/// A call as a server is asked.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    /// From `/v1/` on, with the query.
    pub path: String,
    /// JSON, for a POST; none for a call that only looks, which is a GET.
    pub body: Option<Vec<u8>>,
}

/// Every call there is.
pub fn commands() -> impl Iterator<Item = Command> {
    CALLS.iter().map(Command)
}

/// `event stream` as a server is asked.
pub fn stream(name: &str, key: &[(String, String)]) -> Result<Sent> {
    let path = format!("{}/stream?{}", resource_path(Kind::Event, name)?, as_query(key, &Fields::new()));
    Ok(Sent { path, body: None })
}

/// `key explain` as a server is asked.
pub fn explain(key: &str) -> Sent {
    let mut path = format!("{}?key=", explain::PATH);
    encode(&mut path, key);
    Sent { path, body: None }
}

/// The path of a resource: `/v1/lock/payment`. Names that a URL would take for a step up or for nothing are refused,
/// encoded or not: they would lead to another call.
pub fn resource_path(kind: Kind, name: &str) -> Result<String> {
    if matches!(name, "" | "." | "..") {
        let detail = format!("{kind} {} is no name of a resource", excerpt(name));
        return Err(Error::new("resource", Code::ResourceUnknown, detail));
    }
    let mut path = format!("/v1/{}/", kind.name());
    encode(&mut path, name);
    Ok(path)
}

impl Command {
    /// `limit.take`, as errors and OpenAPI name it.
    pub fn id(self) -> &'static str {
        self.0.id
    }

    /// The kind of resource it is for.
    pub fn kind(self) -> Kind {
        self.0.kind
    }

    /// Its verb.
    pub fn verb(self) -> &'static str {
        self.0.verb
    }

    /// What it does, in one line.
    pub fn about(self) -> &'static str {
        self.0.about
    }

    /// What it is given.
    pub fn request(self) -> &'static Shape {
        self.0.row.request
    }

    /// Its fields besides `key`.
    pub fn fields(self) -> impl Iterator<Item = &'static Field> {
        self.0.row.request.fields.iter().filter(|field| field.spec.holds != Holds::Key)
    }

    /// Whether it changes nothing.
    pub fn only_reads(self) -> bool {
        self.0.effect == Effect::Reads
    }

    /// Whether an answer of it is a "no"; `answer` gives a field as it is written in JSON.
    pub fn said_no<'a>(self, answer: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.row.no.is_said(answer)
    }

    /// Why this cannot be an answer of it, if it cannot; `answer` gives a field as it is written in JSON.
    ///
    /// A server of another version may answer with more fields or fewer. What decides between yes and no must be there
    /// and be understood; of a call without a "no", one of the fields that all its answers have.
    pub fn misfit<'a>(self, answer: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        let shapes = self.answers();
        let required = |field: &str| shapes.iter().all(|shape| requires(shape, field));
        if let Some(field) = decides(self.0.row.no).filter(|field| required(field)) {
            let Some(value) = answer(field) else { return Some(format!("it has no `{field}`")) };
            let known = match self.0.row.no {
                No::Truth(..) => matches!(value, "true" | "false"),
                No::Words(..) => shapes.iter().any(|shape| takes(shape, field, value)),
                No::Some(_) => value.parse::<u64>().is_ok(),
                No::Empty(_) => value.starts_with('['),
                No::Never => true,
            };
            return (!known).then(|| format!("its `{field}` is {}", excerpt(value)));
        }
        let names = shapes.iter().flat_map(|shape| shape["required"].as_array().into_iter().flatten());
        let names: Vec<&str> = names.filter_map(Value::as_str).filter(|name| required(name)).collect();
        let has_one = names.iter().any(|name| answer(name).is_some());
        (!has_one).then(|| format!("it has no `{}`", names.first().copied().unwrap_or_default()))
    }

    /// The JSON Schemas of its answers.
    fn answers(self) -> Vec<Value> {
        let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let answer = (self.0.row.answer)(&mut generator).to_value();
        let known = generator.take_definitions(false);
        let mut shapes = Vec::new();
        let mut left = vec![answer];
        while let Some(schema) = left.pop() {
            let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
            let several = ["oneOf", "anyOf"].iter().find_map(|word| schema[word].as_array());
            match (name.and_then(|name| known.get(name)), several) {
                (Some(schema), _) => left.push(schema.clone()),
                (None, Some(several)) => left.extend(several.iter().cloned()),
                (None, None) => shapes.push(schema),
            }
        }
        shapes
    }

    /// Runs it on the resource `name`; the answer is the JSON that HTTP would answer.
    pub async fn run(
        self,
        services: &Services,
        name: &str,
        key: &[(String, String)],
        fields: &Fields,
        progress: Progress<'_>,
    ) -> Result<String> {
        let (outage, caller) = (OnceLock::new(), Presence::default());
        let input = Input {
            name,
            given: Given::Named(key, fields),
            rights: Rights::owner(),
            schema: services.quaymaster.schema(),
            outage: &outage,
            caller: &caller,
            progress: Some(progress),
            note: None,
        };
        let answer = self.0.answer(services, input).await.map_err(|problem| problem.into_error(self.0.id))?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// The call as a server is asked.
    pub fn sent(self, name: &str, key: &[(String, String)], fields: &Fields) -> Result<Sent> {
        let mut path = format!("{}/{}", resource_path(self.0.kind, name)?, self.0.verb);
        if self.only_reads() {
            let query = as_query(key, fields);
            if !query.is_empty() {
                let _ = write!(path, "?{query}");
            }
            return Ok(Sent { path, body: None });
        }
        Ok(Sent { path, body: Some(as_body(key, fields)) })
    }
}

/// The field that says whether an answer is a "no".
fn decides(no: No) -> Option<&'static str> {
    match no {
        No::Never => None,
        No::Truth(field, _) | No::Words(field, _) | No::Some(field) | No::Empty(field) => Some(field),
    }
}

/// Whether a JSON Schema requires this field.
fn requires(shape: &Value, field: &str) -> bool {
    shape["required"].as_array().is_some_and(|names| names.iter().any(|name| name == field))
}

/// Whether a JSON Schema takes this word, as it is written in JSON, in this field.
fn takes(shape: &Value, field: &str, written: &str) -> bool {
    let Ok(word) = serde_json::from_str::<Value>(written) else { return false };
    let field = &shape["properties"][field];
    match (&field["const"], field["enum"].as_array()) {
        (Value::Null, Some(words)) => words.contains(&word),
        (Value::Null, None) => word.is_string(),
        (only, _) => *only == word,
    }
}

fn as_body(key: &[(String, String)], fields: &Fields) -> Vec<u8> {
    let mut all: std::collections::BTreeMap<&str, Cow<'_, RawValue>> =
        fields.iter().map(|(name, value)| (name.as_str(), Cow::Borrowed(&**value))).collect();
    // Not every call has a key: one that was not given is not sent.
    if !key.is_empty() {
        let key: Map<String, Value> =
            key.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        if let Ok(raw) = serde_json::value::to_raw_value(&key) {
            all.insert("key", Cow::Owned(raw));
        }
    }
    serde_json::to_vec(&all).unwrap_or_default()
}

fn as_query(key: &[(String, String)], fields: &Fields) -> String {
    let mut query = String::new();
    let mut add = |name: &str, value: &str| {
        encode(&mut query, name);
        query.push('=');
        encode(&mut query, value);
        query.push('&');
    };
    for (name, value) in key {
        add(&format!("key.{name}"), value);
    }
    for (name, value) in fields {
        match serde_json::from_str::<String>(value.get()) {
            Ok(text) => add(name, &text),
            Err(_) => add(name, value.get()),
        }
    }
    query
}

/// Percent-encodes all that is not plainly a letter, a digit or one of `-._~`.
fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::query;

    #[test]
    fn a_query_made_here_reads_back_the_same() {
        let key = [("a".to_owned(), "1 +&=%ü/".to_owned()), ("b".to_owned(), "::1".to_owned())];
        let text = as_query(&key, &Fields::new());
        let take = commands().find(|command| command.id() == "limit.peek").map(Command::request);
        let read = query::query(take.unwrap_or(&crate::request::NOTHING), &text).map(|slots| {
            let own = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| (name.to_string(), value.to_string());
            slots.key().iter().map(own).collect::<Vec<_>>()
        });
        let read = read.unwrap_or_default();
        assert_eq!(read, key);
    }

    #[test]
    fn an_answer_that_decides_nothing_fits_no_call() {
        for command in commands() {
            assert!(command.misfit(|_| None).is_some(), "{}", command.id());
            let mut unions = command.answers().into_iter().filter(|shape| requires(shape, "outcome"));
            if decides(command.0.row.no) == Some("outcome") {
                let fits = |word: &str| command.misfit(|name| (name == "outcome").then_some(word)).is_none();
                let words = |shape: Value| shape["properties"]["outcome"]["const"].to_string();
                assert!(unions.all(|shape| fits(&words(shape))), "{}", command.id());
                assert!(!fits("\"maybe\"") && !fits("1") && !fits("null"), "{}", command.id());
            }
        }
        let of = |id: &str| commands().find(|command| command.id() == id);
        let push = of("queue.push");
        let fits = |name: &str| {
            push.is_some_and(|push| push.misfit(|field| (field == name).then_some("1")).is_none())
        };
        assert!(fits("accepted") && !fits("duplicate") && !fits("error"), "a call whose no may be left out");
    }

    #[test]
    fn an_id_is_kind_and_verb_and_the_operation_of_errors() {
        for command in commands() {
            assert_eq!(command.id(), format!("{}.{}", command.kind(), command.verb()));
        }
    }

    #[test]
    fn a_name_that_steps_up_in_a_url_is_refused() {
        for name in ["", ".", ".."] {
            let refused = resource_path(Kind::Lock, name).map_err(|error| error.code);
            assert_eq!(refused, Err(Code::ResourceUnknown), "{name:?}");
            assert!(stream(name, &[]).is_err());
            assert!(commands().all(|command| command.sent(name, &[], &Fields::new()).is_err()));
        }
        let path = resource_path(Kind::Upload, "docu/../x y").unwrap_or_default();
        assert_eq!(path, "/v1/upload/docu%2F..%2Fx%20y");
    }

    #[test]
    fn no_two_calls_of_a_kind_share_a_verb_and_every_field_is_named_once() {
        let mut seen = std::collections::HashSet::new();
        for command in commands() {
            assert!(seen.insert((command.kind(), command.verb())), "{} {}", command.kind(), command.verb());
            let mut names = std::collections::HashSet::new();
            assert!(command.fields().all(|field| names.insert(field.name)), "{}", command.id());
        }
    }
}
