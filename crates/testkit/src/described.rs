//! Holds JSON answers against the OpenAPI document.
#![expect(clippy::expect_used, reason = "a document that refers to nothing fails the test that asked for it")]

use serde_json::Value;

/// What `$ref` leads to.
pub fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).expect(reference),
        None => schema,
    }
}

/// The same with what stands beside the reference: a form of a union is what it holds and the word that tells it.
fn whole(document: &Value, schema: &Value) -> Value {
    let mut whole = resolve(document, schema).clone();
    if schema.get("$ref").is_some() {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            whole["properties"][name] = property.clone();
        }
        if let (Some(own), Some(beside)) = (whole["required"].as_array_mut(), schema["required"].as_array()) {
            own.extend(beside.iter().cloned());
        }
    }
    whole
}

/// Panics where `value` does not fit `schema`.
pub fn check(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Err(why) = fits(document, schema, value, at) {
        panic!("{why}");
    }
}

/// Why `value` is not what `schema` says: every property there and of its type, none that is not described.
pub fn fits(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let schema = &whole(document, schema);
    if let Some(choices) = schema.get("oneOf").or(schema.get("anyOf")).and_then(Value::as_array) {
        let refusals = choices.iter().map(|choice| fits(document, choice, value, at).err());
        let refusals: Option<Vec<String>> = refusals.collect();
        return refusals.map_or(Ok(()), |whys| Err(format!("{at}: {value} is none of {whys:#?}")));
    }
    let right = |is: bool, why: String| if is { Ok(()) } else { Err(format!("{at}{why}")) };
    if let Some(word) = schema.get("const") {
        right(value == word, format!(": {value} is not {word}"))?;
    }
    if let Some(words) = schema["enum"].as_array() {
        right(words.contains(value), format!(": {value} is none of {words:?}"))?;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    };
    right(types.iter().any(|name| is(name)), format!(": {value} is not {types:?}"))?;
    if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
        for name in object.keys() {
            right(properties.contains_key(name), format!(".{name} is served but not described"))?;
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            right(object.contains_key(name), format!(".{name} is described as always there"))?;
        }
        for (name, inner) in properties {
            if let Some(value) = object.get(name) {
                fits(document, inner, value, &format!("{at}.{name}"))?;
            }
        }
    }
    for item in value.as_array().into_iter().flatten() {
        fits(document, &schema["items"], item, &format!("{at}[]"))?;
    }
    Ok(())
}
