//! Answers with several outcomes: a schema of its own for each, and a discriminator, so that generators of clients make
//! a type for each outcome and know which one came.

use serde_json::{Map, Value, json};

/// The field that tells one outcome from another.
const BY: &str = "outcome";

/// Gives every union of outcomes among `schemas` its discriminator. `LockAcquired` with `ours` becomes a union of
/// `LockAcquiredOurs` and others.
pub(super) fn discriminate(schemas: &mut Map<String, Value>) {
    let unions: Vec<String> =
        schemas.iter().filter(|(_, one)| is_union(one)).map(|(name, _)| name.clone()).collect();
    for union in unions {
        let Some(Value::Array(branches)) =
            schemas.get_mut(&union).and_then(|one| one.get_mut("oneOf")).map(Value::take)
        else {
            continue;
        };
        let (mut one_of, mut mapping) = (Vec::new(), Map::new());
        for branch in branches {
            let word = word(&branch).unwrap_or_default().to_owned();
            let name = format!("{union}{}", camel(&word));
            let reference = format!("#/components/schemas/{name}");
            one_of.push(json!({ "$ref": reference }));
            mapping.insert(word, json!(reference));
            schemas.insert(name, branch);
        }
        schemas[&union]["oneOf"] = json!(one_of);
        schemas[&union]["discriminator"] = json!({ "propertyName": BY, "mapping": mapping });
    }
}

fn is_union(schema: &Value) -> bool {
    schema["oneOf"].as_array().is_some_and(|branches| branches.iter().all(|branch| word(branch).is_some()))
}

fn word(branch: &Value) -> Option<&str> {
    branch["properties"][BY]["const"].as_str()
}

/// `in_progress` as `InProgress`.
fn camel(word: &str) -> String {
    let parts = word.split('_').filter_map(|part| part.split_at_checked(1));
    parts.map(|(first, rest)| first.to_ascii_uppercase() + rest).collect()
}
