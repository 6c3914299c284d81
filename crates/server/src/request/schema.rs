//! What a request holds, as JSON Schema: for OpenAPI and `describe`.

use serde_json::{Map, Value, json};

use super::field::{Field, Form, Holds, KEY_PART, Shape};

/// Where the schemas of a document are.
const COMPONENTS: &str = "#/components/schemas/";

/// What a value of a placeholder may be.
pub(crate) fn key_value() -> Value {
    json!({
        "description": "A value of a placeholder; an integer is written in decimal.",
        "oneOf": [
            { "$ref": format!("{COMPONENTS}KeyText") },
            { "type": "integer", "minimum": i64::MIN, "maximum": u64::MAX },
        ],
    })
}

/// A value of a placeholder as text, which is all that a query has.
fn key_text() -> Value {
    let text = json!({
        "type": "string", "minLength": 1, "maxLength": 512, "description": "A value of a placeholder, as text.",
    });
    merged(text, KEY_PART)
}

/// The schema with more rules, which are JSON or nothing.
pub(crate) fn merged(mut schema: Value, also: &str) -> Value {
    if let (Some(fields), Ok(Value::Object(more))) = (schema.as_object_mut(), serde_json::from_str(also)) {
        fields.extend(more);
    }
    schema
}

/// Puts the schema of `shape`, and of what it contains, among `schemas`; answers a reference to it.
pub(crate) fn shape(shape: &'static Shape, schemas: &mut Map<String, Value>) -> Value {
    if !schemas.contains_key(shape.name) {
        schemas.insert(shape.name.to_owned(), Value::Null);
        let described = if shape.forms.is_empty() { object(shape, schemas) } else { union(shape, schemas) };
        schemas.insert(shape.name.to_owned(), described);
    }
    reference(shape.name)
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{COMPONENTS}{name}") })
}

/// One schema for each form; the first field tells them apart.
fn union(shape: &'static Shape, schemas: &mut Map<String, Value>) -> Value {
    for one in shape.forms {
        let described = form(shape, one, schemas);
        schemas.insert(one.name.to_owned(), described);
    }
    let all: Vec<Value> = shape.forms.iter().map(|form| reference(form.name)).collect();
    let mapping: Map<String, Value> = shape
        .forms
        .iter()
        .map(|form| (form.word.to_owned(), json!(format!("{COMPONENTS}{}", form.name))))
        .collect();
    json!({
        "description": shape.about.trim(),
        "oneOf": all,
        "discriminator": { "propertyName": shape.fields[0].name, "mapping": mapping },
    })
}

fn form(shape: &'static Shape, form: &Form, schemas: &mut Map<String, Value>) -> Value {
    let common = shape.fields.iter().filter(|field| shape.is_common(field));
    let fields: Vec<&Field> = common.chain(shape.only_of(form)).collect();
    let mut properties: Map<String, Value> =
        fields.iter().map(|one| (one.name.to_owned(), field(one, schemas))).collect();
    let by = &shape.fields[0];
    properties.insert(
        by.name.to_owned(),
        json!({ "type": "string", "const": form.word, "description": by.about().trim() }),
    );
    let required: Vec<&str> =
        fields.iter().filter(|field| form.needs(field)).map(|field| field.name).collect();
    json!({
        "type": "object",
        "description": format!("`{}`: {}", form.word, shape.about.trim()),
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn object(shape: &'static Shape, schemas: &mut Map<String, Value>) -> Value {
    let properties: Map<String, Value> =
        shape.fields.iter().map(|one| (one.name.to_owned(), field(one, schemas))).collect();
    let required: Vec<&str> =
        shape.fields.iter().filter(|field| field.spec.required).map(|field| field.name).collect();
    let mut schema = json!({
        "type": "object",
        "description": shape.about.trim(),
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if let [one, many] = shape.one_of {
        // `null` is what typed clients send for a field they do not use. Not `anyOf`, which means the same: generators of
        // clients make a type for each branch of it, and lose the fields.
        schema["if"] = json!({ "required": [one], "properties": { *one: {}, *many: { "type": "null" } } });
        schema["else"] = json!({
            "required": [many],
            "properties": { *one: { "type": "null" }, *many: { "type": "array", "items": {} } },
        });
    }
    merged(schema, shape.also)
}

/// The schema of one field.
pub(crate) fn field(field: &'static Field, schemas: &mut Map<String, Value>) -> Value {
    let spec = &field.spec;
    let mut schema = merged(holds(spec.holds, schemas), spec.also);
    if spec.nullable {
        match schema.get("type").cloned() {
            Some(Value::String(name)) => schema["type"] = json!([name, "null"]),
            _ => schema = json!({ "anyOf": [schema, { "type": "null" }] }),
        }
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.push(Value::Null);
        }
    }
    schema["description"] = json!(field.about().trim());
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    if let Some(default) = spec.default {
        schema["default"] = parsed(default);
    }
    if let Some(example) = spec.example {
        schema["examples"] = json!([parsed(example)]);
    }
    schema
}

fn holds(holds: Holds, schemas: &mut Map<String, Value>) -> Value {
    match holds {
        Holds::Key => {
            schemas.entry("KeyText").or_insert_with(key_text);
            schemas.entry("KeyValue").or_insert_with(key_value);
            json!({
                "type": "object", "maxProperties": 32,
                "additionalProperties": { "$ref": format!("{COMPONENTS}KeyValue") },
            })
        }
        Holds::Text { min, max } => bounded(json!({ "type": "string" }), "Length", min as u64, max as u64),
        Holds::Word(words) => json!({ "type": "string", "enum": words }),
        Holds::Integer { min, max } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        Holds::Number => json!({ "type": "number" }),
        Holds::Truth => json!({ "type": "boolean" }),
        Holds::Id => id(),
        Holds::Json => json!({}),
        Holds::Map => json!({ "type": "object" }),
        Holds::Counts => {
            json!({ "type": "object", "additionalProperties": { "type": "integer", "minimum": 0, "maximum": u64::MAX } })
        }
        Holds::Texts { min, max } => list(json!({ "type": "string" }), min, max),
        Holds::Ids { min, max } => list(id(), min, max),
        Holds::Items { min, max } => list(json!({}), min, max),
        Holds::Object(of) => shape(of, schemas),
        Holds::Objects(of, max) => list(shape(of, schemas), 0, max),
    }
}

fn id() -> Value {
    json!({
        "type": ["string", "integer"], "minLength": 1, "maxLength": 512, "minimum": i64::MIN, "maximum": u64::MAX,
    })
}

fn list(items: Value, min: usize, max: usize) -> Value {
    bounded(json!({ "type": "array", "items": items }), "Items", min as u64, max as u64)
}

fn bounded(mut schema: Value, of: &str, min: u64, max: u64) -> Value {
    if min > 0 {
        schema[format!("min{of}")] = json!(min);
    }
    if max < usize::MAX as u64 {
        schema[format!("max{of}")] = json!(max);
    }
    schema
}

/// The schema of a field in a query, where everything is text and nothing is `null`; its description is beside it.
pub(crate) fn parameter(field: &'static Field, schemas: &mut Map<String, Value>) -> Value {
    let mut schema = merged(holds(field.spec.holds, schemas), field.spec.also);
    if field.spec.holds == Holds::Key {
        schemas.entry("KeyText").or_insert_with(key_text);
        schema["additionalProperties"] = json!({ "$ref": format!("{COMPONENTS}KeyText") });
    }
    if let Some(default) = field.spec.default {
        schema["default"] = serde_json::from_str(default).unwrap_or(Value::Null);
    }
    schema
}
