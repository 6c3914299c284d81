//! The JSON Schema of schema files, for editors.

use serde_json::{Map, Value, json};

use super::document::{self, env};
use super::{AnyField, Form, Holds, Otherwise, Row, Table, common, table_of};
use crate::kind::Kind;

/// A name of a resource.
const NAME: &str = "^[A-Za-z0-9_-]{1,64}$";
const PLACEHOLDER: &str = "^[A-Za-z_][A-Za-z0-9_]{0,63}$";
const PATTERN: &str = r"^([^{}*?\[\]\\\x00-\x1f]|\{[A-Za-z_][A-Za-z0-9_]{0,63}\})*$";
const PREFIX: &str = r"^[^{}*?\[\]\\\x00-\x1f]*$";
/// Larger units first, each once.
const DURATION: &str =
    "^([0-9]+(_[0-9]+)*d)?([0-9]+(_[0-9]+)*h)?([0-9]+(_[0-9]+)*m)?([0-9]+(_[0-9]+)*s)?([0-9]+(_[0-9]+)*ms)?$";
const SIZE: &str = "^[0-9]+(_[0-9]+)*(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)$";

/// The JSON Schema (draft 7) of schema files, as text.
///
/// It refuses what the reader refuses by the declaration of a single field: unknown and missing fields, wrong types,
/// words, units and bounds of numbers. What several fields or several resources contradict, only the reader finds.
pub fn json_schema() -> String {
    let mut properties = Map::new();
    let mut definitions = Map::new();
    for row in [env::ENV.row(), env::UNIT.row()] {
        let mut part = scalar(&row.holds);
        part["description"] = json!(row.meaning);
        definitions.insert(row.name.into(), part);
    }
    for row in common::FIELDS.iter().map(|field| field.row()) {
        let shared = property(&mut definitions, &row);
        definitions.insert(shared_name(row.name), shared);
    }
    properties.insert("schema".into(), reference(document::TABLE.path));
    define(&mut definitions, &document::TABLE);
    for kind in Kind::ALL {
        let table = table_of(*kind);
        define(&mut definitions, table);
        properties.insert(
            kind.name().into(),
            json!({
                "type": "object",
                "description": table.meaning,
                "propertyNames": { "pattern": NAME },
                "additionalProperties": reference(table.path),
            }),
        );
    }
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Quaymaster schema",
        "description": "A schema file of Quaymaster. `quaymaster check` finds more.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": false,
        "properties": properties,
        "definitions": definitions,
    });
    format!("{schema:#}\n")
}

fn reference(definition: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{definition}") })
}

/// The definition of a field that every resource has.
fn shared_name(field: &str) -> String {
    format!("resource.{field}")
}

/// Adds a table and the tables inside it.
fn define(definitions: &mut Map<String, Value>, table: &'static Table) {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for row in table.fields().map(AnyField::row) {
        if row.otherwise == Otherwise::Missing {
            required.push(row.name);
        }
        if let Holds::Nested(inner) = row.holds {
            define(definitions, inner);
        }
        let shared = table.kind.is_some() && common::FIELDS.iter().any(|field| field.name() == row.name);
        let property = if shared { reference(&shared_name(row.name)) } else { property(definitions, &row) };
        properties.insert(row.name.into(), property);
    }
    let mut object = json!({
        "type": "object",
        "description": table.meaning,
        "additionalProperties": false,
        "properties": properties,
    });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    definitions.insert(table.path.into(), object);
}

fn property(definitions: &mut Map<String, Value>, row: &Row) -> Value {
    // A reference takes no company in draft 7.
    let mut property = match (&row.holds, type_name(&row.holds)) {
        (Holds::Nested(table), _) => json!({ "allOf": [reference(table.path)] }),
        (holds, Some(name)) => {
            definitions.insert(name.into(), json!({ "anyOf": [scalar(holds), from_env(holds)] }));
            json!({ "allOf": [reference(name)] })
        }
        (holds, None) if is_scalar(holds) => json!({ "anyOf": [scalar(holds), from_env(holds)] }),
        (Holds::Secret, None) => from_env(&row.holds),
        (holds, None) => list(holds),
    };
    let meaning = match &row.otherwise {
        Otherwise::Derived(text) => format!("{} Default: {text}.", row.meaning),
        _ => row.meaning.to_owned(),
    };
    property["description"] = json!(meaning);
    if let Otherwise::Value(default) = &row.otherwise {
        property["default"] = default.clone();
    }
    property
}

/// The name of a type that is the same for every field.
fn type_name(holds: &Holds) -> Option<&'static str> {
    match holds {
        Holds::Text(Form::Free) => Some("type.string"),
        Holds::Text(Form::Pattern) => Some("type.pattern"),
        Holds::Text(Form::Resource(_)) => Some("type.name"),
        Holds::Boolean => Some("type.boolean"),
        Holds::Ratio => Some("type.ratio"),
        Holds::Period { .. } | Holds::Expiry { never: false } => Some("type.duration"),
        _ => None,
    }
}

/// Whether a field may come from the environment.
pub(super) fn is_scalar(holds: &Holds) -> bool {
    !matches!(
        holds,
        Holds::Names { .. } | Holds::Strings | Holds::Meanings | Holds::Secret | Holds::Nested(_)
    )
}

fn scalar(holds: &Holds) -> Value {
    match holds {
        Holds::Text(form) => text(form),
        Holds::Boolean => json!({ "type": "boolean" }),
        Holds::Count { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Holds::Ratio => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Holds::Bytes { least, most } => {
            json!({ "type": ["string", "integer"], "pattern": SIZE, "minimum": least, "maximum": most })
        }
        Holds::Expiry { never: true } => {
            json!({ "type": "string", "anyOf": [{ "enum": ["never"] }, { "pattern": DURATION, "minLength": 2 }] })
        }
        Holds::Period { .. } | Holds::Expiry { never: false } => {
            json!({ "type": "string", "pattern": DURATION, "minLength": 2 })
        }
        Holds::Choice(words) => json!({ "type": "string", "enum": words }),
        Holds::Names { .. } | Holds::Strings | Holds::Meanings | Holds::Secret | Holds::Nested(_) => {
            json!({})
        }
    }
}

fn text(form: &Form) -> Value {
    match form {
        Form::Free | Form::AsField => json!({ "type": "string" }),
        Form::Filled => json!({ "type": "string", "minLength": 1 }),
        Form::Pattern => json!({ "type": "string", "pattern": PATTERN }),
        Form::Prefix => json!({ "type": "string", "pattern": PREFIX }),
        Form::Placeholder => json!({ "type": "string", "pattern": PLACEHOLDER }),
        Form::Resource(_) => json!({ "type": "string", "pattern": NAME }),
        Form::Target(kinds) => {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            json!({ "type": "string", "pattern": format!(r"^({})\.[A-Za-z0-9_-]{{1,64}}$", kinds.join("|")) })
        }
        Form::Url(schemes) => {
            json!({ "type": "string", "pattern": format!("^({})", schemes.join("|").replace('+', r"\+")) })
        }
        Form::Label(most) => json!({
            "type": "string",
            "pattern": format!("^[A-Za-z0-9._-]{{1,{most}}}$"),
            "not": { "enum": [".", ".."] },
        }),
        Form::Words(words) => json!({ "type": "string", "enum": words }),
    }
}

/// `{ env = "NAME", default = …, unit = "h" }`; a secret has no default.
fn from_env(holds: &Holds) -> Value {
    let is_duration = matches!(holds, Holds::Period { .. } | Holds::Expiry { .. });
    let mut properties = Map::new();
    properties.insert(env::ENV.name.into(), reference(env::ENV.name));
    properties.insert(env::UNIT.name.into(), reference(env::UNIT.name));
    if *holds != Holds::Secret {
        // A bare number has the declared unit.
        let bare = json!({ "type": "integer", "minimum": 0 });
        let default = if is_duration { json!({ "anyOf": [scalar(holds), bare] }) } else { scalar(holds) };
        properties.insert(env::DEFAULT.name.into(), default);
    }
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [env::ENV.name],
        "properties": properties,
    })
}

fn list(holds: &Holds) -> Value {
    match holds {
        Holds::Names { most, .. } => {
            let mut list = json!({ "type": "array", "items": { "type": "string", "pattern": NAME }, "uniqueItems": true });
            if let Some(most) = most {
                list["maxItems"] = json!(most);
            }
            list
        }
        Holds::Strings => json!({ "type": "array", "items": { "type": "string" } }),
        _ => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
    }
}
