//! The table of verbs and the recorded answers, beside the OpenAPI document that the program serves.

use std::collections::{BTreeMap, BTreeSet};

use quaymaster_testkit::described::{fits, resolve};
use quaymaster_testkit::stage::Ask;
use serde_json::Value;

use crate::make::{KINDS, VERBS, Verb};
use crate::step::{Act, Said};
use crate::{play, subject};

/// Operations that are no verbs with a body or a query of their own; the scenes ask for them.
const BESIDE: [&str; 8] = [
    "event.stream",
    "event.ws",
    "key.explain",
    "upload.chunk",
    "upload.content",
    "upload.delete",
    "upload.progress",
    "upload.show",
];
/// Its answer is no HTTP; the server's tests open it.
const UNRECORDED: &str = "event.ws";

struct Document(Value);

impl Document {
    fn served() -> Self {
        Self(subject::start().get("/openapi.json").expect(200))
    }

    fn paths(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0["paths"].as_object().unwrap().iter()
    }

    /// Every operation on a resource or a key, by its id. Pages have ids without a point.
    fn operations(&self) -> BTreeMap<&str, &Value> {
        let operations = self.paths().flat_map(|(_, methods)| methods.as_object().unwrap().values());
        operations.map(|one| (id_of(one), one)).filter(|(id, _)| id.contains('.')).collect()
    }

    /// The operation on a resource or a key that this request asks for, if it asks for one.
    fn operation(&self, ask: &Ask) -> Option<&Value> {
        let path = ask.path.split('?').next().unwrap_or_default();
        let places = || path.split('/');
        let is_at = |template: &str| {
            template.split('/').count() == places().count()
                && template
                    .split('/')
                    .zip(places())
                    .all(|(place, given)| place.starts_with('{') || place == given)
        };
        let at = self.paths().filter(|(template, _)| is_at(template));
        let (_, methods) = at.min_by_key(|(template, _)| template.matches('{').count())?;
        methods.get(ask.method.to_lowercase()).filter(|one| id_of(one).contains('.'))
    }

    /// Refuses an answer that the operation does not describe.
    fn check(&self, operation: &Value, said: &Said) -> Result<(), String> {
        let (status, kind) = said.status.split_once(' ').unwrap();
        let described = operation["responses"].get(status).ok_or("no such status is described")?;
        let Some(contents) = described.get("content") else {
            return if said.body.is_empty() { Ok(()) } else { Err("no body is described".to_owned()) };
        };
        let content = contents.get(kind).or(contents.get("*/*")).ok_or("no such content is described")?;
        if !kind.ends_with("json") || contents.get(kind).is_none() {
            return Ok(());
        }
        let schema = content.get("schema").ok_or("it has no schema")?;
        let body = serde_json::from_slice(&said.body).map_err(|error| error.to_string())?;
        fits(&self.0, schema, &body, "answer")
    }

    /// The fields of an operation's body, or of its query; those of objects in it as `dedupe.name`.
    fn fields(&self, operation: &Value) -> BTreeSet<String> {
        let mut fields = BTreeSet::new();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
            fields.insert(parameter["name"].as_str().unwrap().to_owned());
        }
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        self.inside(body, "", &mut fields);
        fields
    }

    /// Collects the fields of what this schema holds, whichever of its forms that is. An object that takes any field has
    /// none of its own.
    fn inside(&self, schema: &Value, before: &str, fields: &mut BTreeSet<String>) {
        let schema = resolve(&self.0, schema);
        let own = schema["properties"].as_object().filter(|_| schema["additionalProperties"] == false);
        for (name, field) in own.into_iter().flatten() {
            fields.insert(format!("{before}{name}"));
            self.inside(field, &format!("{before}{name}."), fields);
        }
        let forms = ["anyOf", "oneOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
        for form in forms.chain(schema.get("items")) {
            self.inside(form, before, fields);
        }
    }
}

fn id_of(operation: &Value) -> &str {
    operation["operationId"].as_str().unwrap()
}

fn id(verb: &Verb) -> String {
    format!("{}.{}", verb.kind, verb.word)
}

#[test]
fn every_operation_of_the_document_is_asked() {
    let document = Document::served();
    let asked: BTreeSet<String> = VERBS.iter().map(id).collect();
    let named = document.operations().into_keys().filter(|id| !BESIDE.contains(id)).map(str::to_owned);
    assert_eq!(named.collect::<BTreeSet<_>>(), asked, "the OpenAPI document and the table of verbs differ");
}

#[test]
fn every_field_of_a_verb_has_a_good_value() {
    let document = Document::served();
    let mut given: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for verb in VERBS {
        let fields = given.entry(id(verb)).or_default();
        // `key.id` of a query is the field `key`.
        fields.extend(verb.fields.iter().filter_map(|(name, _)| name.split('.').next()).map(str::to_owned));
        for nested in verb.nested {
            fields.insert(nested.field.to_owned());
            fields.extend(nested.fields.iter().map(|(name, _)| format!("{}.{name}", nested.field)));
        }
    }
    for (id, given) in &given {
        assert_eq!(document.fields(document.operations()[id.as_str()]), *given, "{id}");
    }
}

#[test]
fn every_recorded_answer_is_as_the_document_describes_it() {
    if play::is_recording() {
        return;
    }
    let document = Document::served();
    let (mut answered, mut wrong) = (BTreeSet::from([UNRECORDED]), Vec::new());
    for (step, written) in KINDS.iter().copied().flat_map(play::recorded) {
        let (Act::Ask(ask) | Act::Until(ask, _) | Act::Open(ask)) = &step.act else { continue };
        let Some(operation) = document.operation(ask) else { continue };
        let said = Said::read(&written);
        if let Err(why) = document.check(operation, &said) {
            wrong.push(format!("{}{written}{why}", step.written()));
        }
        if said.status.starts_with("200 ") {
            answered.insert(id_of(operation));
        }
    }
    assert!(wrong.is_empty(), "{} answers are not as described:\n\n{}", wrong.len(), wrong.join("\n\n"));
    let described: BTreeSet<&str> = document.operations().into_keys().collect();
    assert_eq!(described, answered, "described, but no record has an answer of 200");
}
