//! `docs/calls.md`: every call with its fields and answers, from the table that the server runs.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::operations;

/// The page.
fn reference() -> String {
    let described = operations::describe();
    let schemas = described["components"]["schemas"].as_object().cloned().unwrap_or_default();
    let mut page = String::from(
        "# Every call\n\n\
         Made from the table that the server runs; a test compares. `quaymaster describe --json` says the same to \
         programs, `/openapi.json` to generators of clients. A call is `POST /v1/<kind>/<name>/<verb>` with a JSON body, \
         or `GET` with a query where it says so; on the command line it is `quaymaster <kind> <verb> <name>` with a flag \
         for each field. *No* is what the command line ends with exit code 1 for.\n",
    );
    for kind in described["kinds"].as_array().into_iter().flatten() {
        let _ = write!(page, "\n## {}\n\n{}.\n", text(&kind["kind"]), text(&kind["about"]));
        for verb in kind["verbs"].as_array().into_iter().flatten() {
            one(&mut page, text(&kind["kind"]), verb, &schemas);
        }
    }
    page
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn one(page: &mut String, kind: &str, verb: &Value, schemas: &Map<String, Value>) {
    let _ = write!(page, "\n### {kind} {}\n\n{}.", text(&verb["verb"]), text(&verb["about"]));
    if text(&verb["method"]) == "GET" {
        page.push_str(" `GET`.");
    }
    let repeat = match text(&verb["repeat"]) {
        "safe" => "safe to repeat",
        _ => "repeat it with its `request_id`",
    };
    let _ = writeln!(page, " Role `{}`; {repeat}.{}", text(&verb["role"]), no(&verb["no"]));
    let fields: Vec<&Value> = verb["fields"].as_array().into_iter().flatten().collect();
    if !fields.is_empty() {
        page.push_str("\n| field | holds | |\n|---|---|---|\n");
    }
    for field in fields {
        let mark = if field["required"] == true { "" } else { "?" };
        let holds = holds(&field["schema"], schemas);
        let default =
            field.get("default").map(|default| format!("; {default} unless given")).unwrap_or_default();
        let _ = writeln!(
            page,
            "| `{}`{mark} | {holds}{default} | {} |",
            text(&field["name"]),
            text(&field["about"])
        );
    }
    let _ = writeln!(page, "\nAnswers {}.", answer(&verb["answer"], schemas));
}

fn no(no: &Value) -> String {
    let field = text(&no["field"]);
    if let Some(values) = no["is"].as_array() {
        let values: Vec<String> = values.iter().map(|value| format!("`{}`", plain(value))).collect();
        return format!(" No: `{field}` is {}.", values.join(" or "));
    }
    match (no.get("more_than"), no.get("is_empty")) {
        (Some(_), _) => format!(" No: `{field}` is more than 0."),
        (_, Some(_)) => format!(" No: `{field}` is empty."),
        _ => String::new(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What `$ref` leads to.
fn resolved<'a>(schema: &'a Value, schemas: &'a Map<String, Value>) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    name.and_then(|name| schemas.get(name)).unwrap_or(schema)
}

/// A schema in a few words.
fn holds(schema: &Value, schemas: &Map<String, Value>) -> String {
    if let Some(any) = schema["anyOf"].as_array() {
        let one = any.iter().find(|one| one["type"] != "null");
        return one.map_or_else(String::new, |one| holds(one, schemas));
    }
    if schema.get("$ref").is_some() {
        let fields = resolved(schema, schemas)["properties"].as_object().cloned().unwrap_or_default();
        return format!("an object: {}", names(fields.keys()));
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").map(plain).unwrap_or_default(),
        kind => plain(kind),
    };
    if let Some(words) = schema["enum"].as_array() {
        return names(words.iter().filter_map(Value::as_str));
    }
    let bounds = |least: &str, most: &str, what: &str| match (schema[least].as_u64(), schema[most].as_u64()) {
        (None, None) => String::new(),
        (Some(least), None) => format!(" of at least {least}{what}"),
        (None, Some(most)) => format!(" of at most {most}{what}"),
        (Some(least), Some(most)) => format!(", {least} to {most}{what}"),
    };
    match kind.as_str() {
        "integer" => format!("integer{}", bounds("minimum", "maximum", "")),
        "string" => format!("text{}", bounds("minLength", "maxLength", " characters")),
        "number" => "number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => {
            let items = resolved(&schema["items"], schemas)["properties"].as_object();
            let of = items.map(|fields| format!(" of objects: {}", names(fields.keys()))).unwrap_or_default();
            format!("list{of}{}", bounds("minItems", "maxItems", " items"))
        }
        "object" => "object".to_owned(),
        _ => "any JSON".to_owned(),
    }
}

fn names(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{}`", name.as_ref())).collect();
    names.join(", ")
}

/// The fields of an answer; of a union those of every outcome.
fn answer(schema: &Value, schemas: &Map<String, Value>) -> String {
    let schema = resolved(schema, schemas);
    if let Some(union) = schema["oneOf"].as_array() {
        let outcomes = union.iter().map(|one| {
            let one = resolved(one, schemas);
            let outcome = plain(&one["properties"]["outcome"]["const"]);
            let more = fields(one);
            let more: Vec<&String> = more.iter().filter(|field| !field.starts_with("`outcome`")).collect();
            if more.is_empty() {
                return format!("`{outcome}`");
            }
            format!("`{outcome}` with {}", more.into_iter().cloned().collect::<Vec<_>>().join(", "))
        });
        return format!("with `outcome`: {}", outcomes.collect::<Vec<_>>().join("; "));
    }
    fields(schema).join(", ")
}

fn fields(schema: &Value) -> Vec<String> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    let names = properties.into_iter().flat_map(|fields| fields.keys());
    names
        .map(|name| format!("`{name}`{}", if required.contains(&name.as_str()) { "" } else { "?" }))
        .collect()
}

#[cfg(test)]
mod tests {
    use quaymaster::schema::Kind;

    use super::*;

    /// Where the page is.
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/calls.md");

    #[test]
    #[expect(clippy::expect_used, reason = "a page that cannot be written is a failed test")]
    fn the_page_says_what_the_table_says() {
        let made = reference();
        if std::env::var_os("QUAYMASTER_WRITE_DOCS").is_some() {
            std::fs::write(PATH, &made).expect("the page is written");
        }
        let there = std::fs::read_to_string(PATH).unwrap_or_default();
        assert!(
            there == made,
            "docs/calls.md is not what the table says; QUAYMASTER_WRITE_DOCS=1 with this test writes it"
        );
        for kind in Kind::ALL.iter().filter(|kind| **kind != Kind::Key) {
            assert!(made.contains(&format!("\n## {kind}\n")), "{kind} has no calls");
        }
    }
}
