//! Everything that can be wrong with a verb's request.

use quaymaster_testkit::verbs::{Nested, Verb};

use super::{Maker, bare, json};

/// A value of every JSON type and of every size.
const VALUES: &[(&str, &str)] = &[
    ("null", "null"),
    ("a boolean", "true"),
    ("a string", r#""x""#),
    ("an empty string", r#""""#),
    ("zero", "0"),
    ("negative", "-1"),
    ("one", "1"),
    ("a whole float", "1.0"),
    ("an exponent", "1e3"),
    ("over 2^53", "9007199254740993"),
    ("over 64 bits", "18446744073709551616"),
    ("no finite number", "1e400"),
    ("an empty list", "[]"),
    ("a list", "[1]"),
    ("an empty object", "{}"),
    ("an object", r#"{"a":1}"#),
    ("a control character", r#""a\u0000b""#),
    ("characters of patterns", r#""*{}[]?:""#),
    ("beyond ASCII", r#""\ud83d\ude00 ü""#),
    ("half a surrogate", r#""\ud800""#),
];

/// What is tried of an id that every verb has.
const ID_VALUES: &[(&str, &str)] = &[
    ("null", "null"),
    ("a boolean", "true"),
    ("an empty string", r#""""#),
    ("zero", "0"),
    ("a list", "[1]"),
    ("an object", r#"{"a":1}"#),
    ("a control character", r#""a\u0000b""#),
    ("beyond ASCII", r#""ü""#),
];

/// What is tried of placeholders.
const KEYS: &[(&str, &str)] = &[
    ("null", "null"),
    ("a string", r#""x""#),
    ("an integer", "1"),
    ("a list", "[]"),
    ("an empty object", "{}"),
    ("a value of null", r#"{"id":null}"#),
    ("a boolean value", r#"{"id":true}"#),
    ("a float", r#"{"id":1.5}"#),
    ("a list as value", r#"{"id":["a"]}"#),
    ("an object as value", r#"{"id":{"a":1}}"#),
    ("an integer value", r#"{"id":12}"#),
    ("a negative value", r#"{"id":-5}"#),
    ("a value over 2^53", r#"{"id":9007199254740993}"#),
    ("a value over 64 bits", r#"{"id":18446744073709551616}"#),
    ("an empty value", r#"{"id":""}"#),
    ("a control character", r#"{"id":"a\nb"}"#),
    ("characters of patterns", r#"{"id":"a*"}"#),
    ("braces", r#"{"id":"{a}"}"#),
    ("beyond ASCII", r#"{"id":"\ud83d\ude00"}"#),
    ("a misspelt placeholder", r#"{"idd":"a"}"#),
    ("one placeholder more", r#"{"id":"a","other":"b"}"#),
    ("a placeholder twice", r#"{"id":"a","id":"b"}"#),
    ("a hostile placeholder", r#"{"id":"a","`\"\n<":"b"}"#),
];

/// What is tried of a parameter.
const PARAMETERS: &[(&str, &str)] = &[
    ("empty", ""),
    ("no number", "abc"),
    ("zero", "0"),
    ("negative", "-1"),
    ("with a sign", "%2B1"),
    ("a space before", "+1"),
    ("a whole float", "1.0"),
    ("an exponent", "1e3"),
    ("over the bound", "1000000"),
    ("over 64 bits", "18446744073709551616"),
    ("an encoded digit", "%31"),
    ("a bad escape", "%zz"),
    ("half an escape", "%3"),
    ("not UTF-8", "%ff"),
    ("a control character", "a%00b"),
    ("characters of patterns", "*{}"),
    ("beyond ASCII", "%F0%9F%98%80"),
    ("true", "true"),
    ("another equals sign", "a=b"),
];

/// A timeout of one millisecond, which a store keeps or does not.
const ONE: &[&str] = &["a whole float", "an encoded digit"];

/// Ways to write the placeholders of a query.
const QUERY_KEYS: &[(&str, &str)] = &[
    ("no query", ""),
    ("in brackets", "?key[id]=a"),
    ("in encoded brackets", "?key%5Bid%5D=a"),
    ("as one", "?key=a"),
    ("no name", "?key.=a"),
    ("no value", "?key.id="),
    ("no equals sign", "?key.id"),
    ("twice", "?key.id=a&key.id=b"),
    ("another placeholder", "?key.other=a"),
    ("one more", "?key.id=a&key.other=b"),
    ("an encoded point", "?key%2Eid=a"),
    ("an encoded name", "?%6Bey.id=a"),
    ("ampersands", "?&&key.id=a&"),
    ("a misspelt prefix", "?kye.id=a"),
    ("a bad escape in the name", "?key.%zz=a"),
    ("alone", "?id=a"),
];

pub(super) fn of(maker: &mut Maker, verb: &Verb) {
    let path = format!("/v1/{}/{}/{}", verb.kind, verb.name, verb.word);
    let call = format!("{}.{}", verb.kind, verb.word);
    addressed(maker, verb, &path, &call);
    if verb.reads {
        return queries(maker, verb, &path, &call);
    }
    bodies(maker, verb, &path, &call);
    for (at, (field, _)) in verb.fields.iter().enumerate() {
        let values = match *field {
            "key" => KEYS,
            "request_id" => ID_VALUES,
            _ => VALUES,
        };
        for (what, value) in values {
            let body = object(verb.fields, Some((at, value)));
            maker.one(&format!("{call}: {field}: {what}"), json(&path, &body));
        }
        let long = format!("\"{}\"", "y".repeat(if *field == "request_id" { 129 } else { 600 }));
        let long = if *field == "key" { format!("{{\"id\":{long}}}") } else { long };
        maker
            .one(&format!("{call}: {field}: too long"), json(&path, &object(verb.fields, Some((at, &long)))));
        shapes(maker, verb.fields, at, &call, |fields| json(&path, fields));
    }
    for nested in verb.nested {
        inside(maker, verb, nested, &path, &call);
    }
    let many = (0..33).map(|at| format!("\"p{at}\":1")).collect::<Vec<_>>().join(",");
    if verb.fields.iter().any(|(field, _)| *field == "key") {
        maker.one(&format!("{call}: key: too many"), json(&path, &format!("{{\"key\":{{{many}}}}}")));
    }
}

/// A field left out, given twice, and misspelt.
fn shapes(
    maker: &mut Maker,
    fields: &[(&str, &str)],
    at: usize,
    call: &str,
    request: impl Fn(&str) -> super::Ask,
) {
    let (field, good) = fields[at];
    let mut without = fields.to_vec();
    without.remove(at);
    maker.one(&format!("{call}: {field}: missing"), request(&object(&without, None)));
    let mut twice = fields.to_vec();
    twice.insert(at, (field, good));
    maker.one(&format!("{call}: {field}: twice"), request(&object(&twice, None)));
    let slip = format!("{}{}", &field[..field.len() - 2], &field[field.len() - 1..]);
    let mut misspelt = fields.to_vec();
    misspelt[at] = (&slip, good);
    maker.one(&format!("{call}: {field}: misspelt"), request(&object(&misspelt, None)));
}

/// An object inside a field.
fn inside(maker: &mut Maker, verb: &Verb, nested: &Nested, path: &str, call: &str) {
    let Nested { field, around, fields } = nested;
    let request = |inner: &str| {
        let value = around.replace('@', inner);
        let outer = [verb.fields, &[(*field, value.as_str())]].concat();
        json(path, &object(&outer, None))
    };
    maker.one(&format!("{call}: {field}: good"), request(&object(fields, None)));
    for (what, value) in VALUES {
        maker.one(&format!("{call}: {field}: its object: {what}"), request(value));
        let outer = [verb.fields, &[(*field, *value)]].concat();
        maker.one(&format!("{call}: {field}: {what}"), json(path, &object(&outer, None)));
    }
    maker.one(&format!("{call}: {field}: an unknown field"), request(r#"{"zzz":1}"#));
    for (at, (inner, _)) in fields.iter().enumerate() {
        let values = if *inner == "key" { KEYS } else { VALUES };
        for (what, value) in values {
            maker.one(
                &format!("{call}: {field}.{inner}: {what}"),
                request(&object(fields, Some((at, value)))),
            );
        }
        shapes(maker, fields, at, &format!("{call}: {field}"), request);
    }
}

/// Where a request goes, and how.
fn addressed(maker: &mut Maker, verb: &Verb, path: &str, call: &str) {
    let Verb { kind, word, name, .. } = verb;
    let good = object(verb.fields, None);
    let right = |path: &str| if verb.reads { bare("GET", path) } else { json(path, &good) };
    let missing = format!("/v1/{kind}/nosuch/{word}");
    let misspelt = format!("/v1/{kind}/{}/{word}", &name[..name.len() - 1]);
    let encoded = format!("/v1/{kind}/%{:02x}{}/{word}", name.as_bytes()[0], &name[1..]);
    let broken = format!("/v1/{kind}/%zz/{word}");
    for (what, path) in [
        ("no such resource", missing),
        ("a misspelt resource", misspelt),
        ("an encoded resource", encoded),
        ("a bad escape in the resource", broken),
        ("a misspelt verb", path[..path.len() - 1].to_owned()),
        ("a misspelt kind", path.replacen(kind, &kind[..kind.len() - 1], 1)),
    ] {
        maker.one(&format!("{call}: {what}"), right(&path));
    }
    let methods: &[&str] = if verb.reads { &["POST", "PUT", "DELETE"] } else { &["GET", "PUT", "HEAD"] };
    for method in methods {
        maker.one(&format!("{call}: by {method}"), bare(method, path));
    }
}

/// What is wrong with a body as a whole.
fn bodies(maker: &mut Maker, verb: &Verb, path: &str, call: &str) {
    let good = object(verb.fields, None);
    let deep = format!("{{\"{}\":{}{}}}", verb.fields[0].0, "[".repeat(40), "]".repeat(40));
    let large = format!("{{\"{}\":\"{}\"}}", verb.fields[0].0, "x".repeat(70_000));
    let unfinished = good[..good.len() - 1].to_owned();
    for (what, body) in [
        ("good", good.as_str()),
        ("empty", ""),
        ("blank", "  "),
        ("no JSON", "nope"),
        ("unfinished", &unfinished),
        ("a list", "[]"),
        ("a string", "\"x\""),
        ("null", "null"),
        ("a number", "1"),
        ("no fields", "{}"),
        ("nested too deep", &deep),
        ("more than one value", &format!("{good} {{}}")),
        ("an unknown field", "{\"zzz\":1}"),
        ("a hostile field", "{\"a\\n\\\"b`<\":1}"),
        ("a comma too many", "{\"a\":1,}"),
        ("too large", &large),
    ] {
        maker.one(&format!("{call}: body: {what}"), json(path, body));
    }
    maker.one(&format!("{call}: body: not UTF-8"), json(path, "").carrying(*b"{\"\xff\":1}"));
    let typed = |kind: &str| bare("POST", path).with("content-type", kind).carrying(good.clone());
    maker.one(&format!("{call}: no body"), bare("POST", path).with("content-length", "0"));
    maker.one(&format!("{call}: text/plain"), typed("text/plain"));
    maker.one(&format!("{call}: no content-type"), bare("POST", path).carrying(good.clone()));
    maker.one(&format!("{call}: packed"), json(path, &good).with("content-encoding", "gzip"));
    maker.one(&format!("{call}: a query"), json(&format!("{path}?x=1"), &good));
}

/// What is wrong with a query.
fn queries(maker: &mut Maker, verb: &Verb, path: &str, call: &str) {
    let good = |skip: Option<usize>| {
        let fields =
            verb.fields.iter().enumerate().filter(|(at, (_, value))| skip != Some(*at) && !value.is_empty());
        fields.map(|(_, (name, value))| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let joined = |parts: &[String]| {
        if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) }
    };
    let with = |extra: &str| joined(&[good(None), vec![extra.to_owned()]].concat());
    for (what, method, address) in [
        ("good", "GET", joined(&good(None))),
        ("a question mark alone", "GET", format!("{path}?")),
        ("by HEAD", "HEAD", joined(&good(None))),
        ("an unknown parameter", "GET", with("zzz=1")),
        ("a hostile parameter", "GET", with("%22%0a%3c=1")),
        ("a bad escape in a name", "GET", with("%zz=1")),
    ] {
        maker.one(&format!("{call}: {what}"), bare(method, &address));
    }
    maker.one(&format!("{call}: a body"), super::bare("GET", path).json("{}"));
    for (at, (field, _)) in verb.fields.iter().enumerate() {
        let given = |text: String| joined(&[good(Some(at)), vec![text]].concat());
        let is_race = |what: &str| *field == "timeout_ms" && ONE.contains(&what);
        for (what, value) in PARAMETERS.iter().filter(|(what, _)| !is_race(what)) {
            maker.one(&format!("{call}: {field}: {what}"), bare("GET", &given(format!("{field}={value}"))));
        }
        let slip = format!("{}{}", &field[..field.len() - 2], &field[field.len() - 1..]);
        for (what, text) in [
            ("twice", format!("{field}=1&{field}=1")),
            ("misspelt", format!("{slip}=1")),
            ("too long", format!("{field}={}", "y".repeat(600))),
        ] {
            maker.one(&format!("{call}: {field}: {what}"), bare("GET", &given(text)));
        }
        maker.one(&format!("{call}: {field}: missing"), bare("GET", &joined(&good(Some(at)))));
        if *field == "key.id" {
            for (what, query) in QUERY_KEYS {
                maker.one(&format!("{call}: key: {what}"), bare("GET", &format!("{path}{query}")));
            }
        }
    }
}

/// An object of these fields, one of them with another value.
fn object(fields: &[(&str, &str)], other: Option<(usize, &str)>) -> String {
    let fields = fields.iter().enumerate().map(|(at, (name, good))| {
        let value = other.filter(|(changed, _)| *changed == at).map_or(*good, |(_, value)| value);
        format!("\"{name}\":{value}")
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

impl Maker {
    /// One request, whose `$N` are new.
    fn one(&mut self, title: &str, mut ask: super::Ask) {
        if let Some(text) = ask.body.as_ref().and_then(|body| std::str::from_utf8(body).ok()) {
            ask.body = Some(self.numbered(text).into_bytes());
        }
        self.add(title.to_owned(), "", super::Act::Ask(ask));
    }
}
