//! `docs/calls.md`: every operation with its fields and answers, from the table that the server runs.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::describe::describe;

/// The page.
fn reference() -> String {
    let described = describe();
    let schemas = described["components"]["schemas"].as_object().cloned().unwrap_or_default();
    let mut page = String::from(
        "# Every call\n\n\
         Made from the table that the server runs; a test compares. `quaymaster describe --json` says the same to \
         programs, `/openapi.json` to generators of clients. A call is `POST /v1/<kind>/<name>/<verb>` with a JSON body, \
         or `GET` with a query where it says so; on the command line it is `quaymaster <kind> <verb> <name>` with a flag \
         for each field. What has another path or method says so; a field in its path or in a header does, too, and the \
         others are in the query. A `?` marks what need not be there. *No* is what the command line ends with exit code 1 \
         for.\n",
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
    let (method, path) = (text(&verb["method"]), text(&verb["path"]));
    if path != format!("/v1/{kind}/{{name}}/{}", text(&verb["verb"])) {
        let _ = write!(page, " `{method} {path}`.");
    } else if method == "GET" {
        page.push_str(" `GET`.");
    }
    if verb["body"] == "bytes" {
        page.push_str(" The body is bytes.");
    }
    let repeat = match text(&verb["repeat"]) {
        "safe" => "safe to repeat",
        _ => "repeat it with its `request_id`",
    };
    let sensitive = match text(&verb["sensitive_role"]) {
        "" => String::new(),
        role => format!(", `{role}` where the resource is `sensitive`"),
    };
    let _ = writeln!(page, " Role `{}`{sensitive}; {repeat}.{}", text(&verb["role"]), no(&verb["no"]));
    let fields: Vec<&Value> = verb["fields"].as_array().into_iter().flatten().collect();
    if !fields.is_empty() {
        page.push_str("\n| field | holds | |\n|---|---|---|\n");
    }
    for field in fields {
        let mark = if field["required"] == true { "" } else { "?" };
        let holds = holds(&field["schema"], schemas);
        let about = text(&field["about"]);
        let default = field.get("default").map(|default| format!("; {default} unless given"));
        let default = default.unwrap_or_default();
        let place = match text(&field["in"]) {
            "path" => "; in the path",
            "header" => "; a header",
            _ => "",
        };
        let _ = writeln!(page, "| `{}`{mark} | {holds}{default}{place} | {about} |", text(&field["name"]));
    }
    let one_of: Vec<&str> = verb["one_of"].as_array().into_iter().flatten().map(text).collect();
    if !one_of.is_empty() {
        let names: Vec<String> = one_of.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "\nEither {} is given, and only one of them.", names.join(" or "));
    }
    let _ = writeln!(page, "\n{}", answers(verb, schemas));
}

/// A sentence about what is answered.
fn answers(verb: &Value, schemas: &Map<String, Value>) -> String {
    let events = || text(&verb["events"]);
    let one = |kind: &Value| match text(kind) {
        "json" => format!("Answers {}.", answer(&verb["answer"], schemas)),
        "events" if verb["answer"].is_null() => format!("Answers server-sent events. {}", events()),
        "events" => format!("With `accept: text/event-stream`, server-sent events. {}", events()),
        "websocket" => format!("Answers with a WebSocket: {}", events()),
        _ => "Answers the object's bytes.".to_owned(),
    };
    let all: Vec<String> = verb["answers"].as_array().into_iter().flatten().map(one).collect();
    all.join(" ")
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
        return format!("an object: {}", parts(schema, schemas));
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
            let count = bounds("minItems", "maxItems", " items");
            match parts(&schema["items"], schemas) {
                parts if parts.is_empty() => format!("list{count}"),
                parts => format!("list{count}, of objects: {parts}"),
            }
        }
        "object" => "object".to_owned(),
        _ => "any JSON".to_owned(),
    }
}

/// The fields of an object; of one with several forms those of every form.
fn parts(schema: &Value, schemas: &Map<String, Value>) -> String {
    let schema = resolved(schema, schemas);
    let Some(forms) = schema["oneOf"].as_array() else { return fields(schema).join(", ") };
    let by = text(&schema["discriminator"]["propertyName"]);
    let form = |form: &Value| {
        let form = resolved(form, schemas);
        let own = fields(form).into_iter().filter(|field| field.trim_matches('`') != by);
        format!(
            "`{by}` `{}` with {}",
            text(&form["properties"][by]["const"]),
            own.collect::<Vec<_>>().join(", ")
        )
    };
    forms.iter().map(form).collect::<Vec<_>>().join("; ")
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
        for kind in Kind::ALL {
            assert!(made.contains(&format!("\n## {kind}\n")), "{kind} has no calls");
        }
    }

    /// The table row of a field.
    fn row<'p>(page: &'p str, call: &str, field: &str) -> &'p str {
        let own = page.split(&format!("\n### {call}\n")).nth(1).and_then(|rest| rest.split("\n### ").next());
        let mut rows = own.unwrap_or_default().lines();
        rows.find(|line| line.starts_with(&format!("| `{field}`"))).unwrap_or_default()
    }

    #[test]
    fn defaults_are_told_once_and_forms_with_their_fields() {
        let page = reference();
        for line in page.lines() {
            assert!(line.matches("unless given").count() <= 1, "{line}");
        }
        assert!(row(&page, "limit take", "cost").contains("; 1 unless given |"));
        let then = row(&page, "queue ack", "then");
        for form in [
            "`call` `batch.add` with `id`?, `item`, `key`?, `name`",
            "`call` `event.publish` with `data`, `name`",
            "`call` `queue.push` with `delay_ms`?, `name`, `payload`, `priority`?",
        ] {
            assert!(then.contains(form), "{then}");
        }
        assert!(page.contains("\nEither `payload` or `payloads` is given, and only one of them.\n"));
        assert!(page.contains("`PUT /v1/upload/{name}/{upload_id}/chunk/{n}`. The body is bytes."));
        assert!(row(&page, "upload chunk", "n").contains("; in the path |"));
        assert!(row(&page, "upload events", "last-event-id").contains("; a header |"));
        assert!(page.contains("Answers with a WebSocket: a text message"));
    }
}
