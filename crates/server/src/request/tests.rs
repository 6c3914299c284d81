//! Every declaration says something that its own reader takes, and every refusal names its field.

use std::borrow::Cow;

use quaymaster::Code;
use serde_json::value::RawValue;

use super::read::Nested;
use super::*;
use crate::call::CALLS;
use crate::http::problem::Problem;

request! {
    /// All there is.
    struct Everything<'a> {
        /// The key.
        key: KeyValues<'a> = KEY,
        /// Needed.
        token: Cow<'a, str> = Spec::text().required("begin answered it"),
        /// A number with a default.
        cost: u64 = Spec::integer(1, u64::MAX).default("1").code(Code::LimitCost),
        /// Within bounds.
        count: u64 = Spec::integer(0, 10).default("5").strict(),
        /// A number that the resource looks at.
        wait_ms: Option<u64> = MILLIS,
        /// Whole or not.
        ratio: Option<f64> = Spec::of(Holds::Number),
        /// A truth.
        dead: Option<bool> = Spec::of(Holds::Truth),
        /// Anything.
        value: Option<&'a RawValue> = JSON,
        /// Texts.
        items: Option<Vec<Cow<'a, str>>> = Spec::of(Holds::Texts { min: 0, max: 10 }),
        /// Objects.
        then: Option<Vec<Nested<Inner<'a>>>> = Spec::of(Holds::Objects(Inner::SHAPE, 10)),
        /// An object.
        claim: Option<Nested<Inner<'a>>> = Spec::of(Holds::Object(Inner::SHAPE)),
    }
}

request! {
    /// A part.
    struct Inner<'a> {
        /// Its name.
        name: Cow<'a, str> = Spec::text().required(""),
        /// A number.
        count: Option<u64> = Spec::integer(1, 10),
        /// Its key.
        key: KeyValues<'a> = KEY,
    }
}

fn read(json: &str) -> Result<Everything<'_>, Problem> {
    Everything::of(read::body(Everything::SHAPE, json.as_bytes(), 16)?)
}

fn refusal(json: &str) -> (Code, String, String) {
    let problem = read(json).expect_err(json);
    (problem.code, problem.field.unwrap_or_default(), problem.detail.into_owned())
}

#[test]
fn what_is_given_is_read() {
    let json = r#"{"key": {"id": "a\u00fc", "n": -3}, "token": "t", "cost": 7.0, "wait_ms": 1e3, "ratio": 1, "dead": true,
        "value": {"b":1, "a":[2]}, "items": ["x", "y\n"], "then": [{"name": "n", "count": 2.0}], "claim": {"name": "c"}}"#;
    let read = read(json).expect("all of it is right");
    assert_eq!(read.key.as_slice(), [("id".into(), "aü".into()), ("n".into(), "-3".into())]);
    assert_eq!((&*read.token, read.cost, read.count, read.wait_ms), ("t", 7, 5, Some(1000)));
    assert_eq!((read.ratio, read.dead), (Some(1.0), Some(true)));
    assert_eq!(read.value.map(RawValue::get), Some(r#"{"b":1, "a":[2]}"#), "as it was written");
    assert_eq!(read.items.expect("items"), ["x", "y\n"]);
    let then = read.then.expect("then");
    assert_eq!((&*then[0].0.name, then[0].0.count, then[0].0.key.len()), ("n", Some(2), 0));
    assert_eq!(read.claim.expect("claim").0.name, "c");
}

#[test]
fn null_is_not_given_except_where_it_is_a_value() {
    let json = r#"{"token": "t", "wait_ms": null, "ratio": null, "dead": null, "then": null, "claim": null, "value": null}"#;
    let read = read(json).expect("as if they were not there");
    assert_eq!((read.wait_ms, read.ratio, read.dead, read.cost), (None, None, None, 1));
    assert!(read.then.is_none() && read.claim.is_none());
    assert_eq!(read.value.map(RawValue::get), Some("null"));
}

#[test]
fn a_whole_number_is_read_by_its_digits() {
    for (json, number) in [
        ("0", 0),
        ("-0.0", 0),
        ("0e-400", 0),
        ("1.0", 1),
        ("1e3", 1_000),
        ("1.50E+1", 15),
        ("-120e-1", -12),
        ("9007199254740993.0", 9_007_199_254_740_993),
        ("18446744073709551615", i128::from(u64::MAX)),
        ("-9223372036854775808", i128::from(i64::MIN)),
    ] {
        assert_eq!(read::integer(json), Some(number), "{json}");
    }
    for json in [
        "0.5",
        "1.5e0",
        "9007199254740992.5",
        "0.99999999999999999",
        "1.00000000000000000001",
        "1e-400",
        "1e20",
        "1e400",
        "1e99999999999999999999",
        "18446744073709551616",
        "-9223372036854775809",
        "true",
        "\"1\"",
        "",
        "-",
        "--1.0",
        "1.",
        ".5e1",
        "1e",
        "1_0.0",
    ] {
        assert_eq!(read::integer(json), None, "{json}");
    }
}

#[test]
fn a_refusal_names_its_field_and_what_was_wrong() {
    let wrong = Code::RequestInvalid;
    for (json, code, field, detail) in [
        ("", wrong, "body", "the body is empty; it must be a JSON object"),
        ("[", wrong, "body", "the body must be a JSON object, got a list"),
        ("7", wrong, "body", "the body must be a JSON object, got an integer"),
        ("null", wrong, "body", "the body must be a JSON object, got null"),
        ("{}", wrong, "token", "token is missing; begin answered it"),
        (r#"{"token": null}"#, wrong, "token", "token is missing; begin answered it"),
        (r#"{"token": 1}"#, wrong, "token", "token must be a string, got an integer"),
        (r#"{"token": "a", "token": "b"}"#, wrong, "token", "token is given twice"),
        (r#"{"tokn": 1}"#, Code::RequestField, "tokn", r#"field "tokn" is unknown; did you mean "token"?"#),
        (r#"{"cost": null}"#, Code::LimitCost, "cost", "cost must be an integer of at least 1, got null"),
        (r#"{"cost": 0}"#, Code::LimitCost, "cost", "cost must be an integer of at least 1, got 0"),
        (r#"{"cost": "1"}"#, Code::LimitCost, "cost", "cost must be an integer of at least 1, got a string"),
        (r#"{"count": 11}"#, wrong, "count", "count must be an integer from 0 to 10, got 11"),
        (r#"{"wait_ms": -1}"#, wrong, "wait_ms", "wait_ms must be an integer of at least 0, got -1"),
        (
            r#"{"wait_ms": 1.5}"#,
            wrong,
            "wait_ms",
            "wait_ms must be an integer of at least 0, got a number that is no 64-bit integer",
        ),
        (r#"{"ratio": "x"}"#, wrong, "ratio", "ratio must be a number, got a string"),
        (r#"{"dead": 1}"#, wrong, "dead", "dead must be true or false, got an integer"),
        (r#"{"items": "x"}"#, wrong, "items", "items must be a list of strings, got a string"),
        (r#"{"items": [1]}"#, wrong, "items", "items must be a list of strings, got an integer"),
        (r#"{"key": []}"#, wrong, "key", "key must be an object of strings and integers, got a list"),
        (r#"{"key": {"a": true}}"#, wrong, "key.a", "key.a must be a string or an integer, got a boolean"),
        (r#"{"key": {"a": 1, "a": 2}}"#, wrong, "key.a", "key.a is given twice"),
        (r#"{"token": "t", "then": [{"name": "a"}, {}]}"#, wrong, "then[1].name", "then[1].name is missing"),
        (r#"{"token": "t", "then": [7]}"#, wrong, "then[0]", "then[0] must be a JSON object, got an integer"),
        (
            r#"{"token": "t", "claim": {"cont": 1}}"#,
            Code::RequestField,
            "claim.cont",
            r#"claim: field "cont" is unknown; did you mean "count"?"#,
        ),
        (
            r#"{"token": "t", "claim": {"name": "a", "name": "b"}}"#,
            wrong,
            "claim.name",
            "claim.name is given twice",
        ),
        (
            r#"{"token": "t", "claim": {"key": {"a": null}}}"#,
            wrong,
            "claim.key.a",
            "claim.key.a must be a string or an integer, got null",
        ),
    ] {
        assert_eq!(refusal(json), (code, field.to_owned(), detail.to_owned()), "{json}");
    }
    let (_, field, detail) = refusal("{\"token\": \"t\"");
    assert!(field == "body" && detail.starts_with("the body is not JSON: "), "{detail}");
    let deep = format!("{{\"value\": {}1{}}}", "[".repeat(40), "]".repeat(40));
    assert_eq!(refusal(&deep).2, "the body is nested deeper than 16 levels");
}

#[test]
fn a_query_is_read_by_the_same_declaration() {
    let many: Vec<String> = (0..33).map(|at| format!("key.p{at}=v")).collect();
    let many = many.join("&");
    let read = |text| Everything::of(query::query(Everything::SHAPE, text)?);
    let asked = read("key.a=1&key[b]=x%20y&token=t&count=3&dead=true").expect("right");
    assert_eq!(asked.key.as_slice(), [("a".into(), "1".into()), ("b".into(), "x y".into())]);
    assert_eq!((asked.count, asked.dead), (3, Some(true)));
    assert_eq!(read("token=t&count=5.0").expect("a whole number").count, 5);
    assert_eq!(read(&many).expect_err("too many").detail, "key has more than 32 values");
    for (text, field, detail) in [
        ("count=%2B5&token=t", "count", "count must be an integer from 0 to 10, got \"+5\""),
        ("count=11&token=t", "count", "count must be an integer from 0 to 10, got \"11\""),
        ("wait_ms=x&token=t", "wait_ms", "wait_ms must be an integer of at least 0, got \"x\""),
        ("key.a=1&key[a]=2", "key[a]", "parameter \"key[a]\" is given twice"),
        ("count=1&count=2", "count", "parameter \"count\" is given twice"),
        ("key=1", "key", "key takes its placeholders one by one: key.<placeholder>=value"),
        ("cont=1", "cont", "parameter \"cont\" is unknown; did you mean \"count\"?"),
        ("count=1", "token", "token is missing; begin answered it"),
    ] {
        let problem = read(text).expect_err(text);
        assert_eq!((problem.field.as_deref(), &*problem.detail), (Some(field), detail), "{text}");
    }
}

/// Every shape there is, those within others too.
fn shapes() -> Vec<&'static Shape> {
    let mut found: Vec<&'static Shape> = Vec::new();
    let mut todo: Vec<&'static Shape> = CALLS.iter().map(|call| call.row.request).collect();
    while let Some(shape) = todo.pop() {
        if found.iter().any(|known| std::ptr::eq(*known, shape)) {
            continue;
        }
        found.push(shape);
        todo.extend(shape.fields.iter().filter_map(|field| match field.spec.holds {
            Holds::Object(shape) | Holds::Objects(shape, _) => Some(shape),
            _ => None,
        }));
    }
    found
}

#[test]
fn every_declaration_is_whole() {
    let mut names = std::collections::BTreeMap::new();
    for shape in shapes() {
        let other = names.insert(shape.name, shape);
        assert!(other.is_none_or(|other| other == shape), "{} is declared twice", shape.name);
        // The reader counts the fields it has seen in 64 bits.
        assert!(shape.fields.len() <= 64, "{}", shape.name);
        assert!(shape.about.trim().ends_with('.'), "{}: {:?}", shape.name, shape.about);
        for (at, field) in shape.fields.iter().enumerate() {
            let place = format!("{}.{}", shape.name, field.name);
            assert!(field.about().trim().ends_with('.'), "{place}: {:?} is no sentence", field.about());
            assert!(shape.fields[..at].iter().all(|known| known.name != field.name), "{place} twice");
            let said = field.about().contains("unless given");
            assert!(field.spec.default.is_none() || !said, "{place} tells its default twice");
            for given in field.spec.default.into_iter().chain(field.spec.example) {
                let json: &RawValue = serde_json::from_str(given).expect(&place);
                assert!(read::fits(json, field), "{place}: {given} is refused");
            }
        }
        for name in shape.one_of {
            assert!(shape.fields.iter().any(|field| field.name == *name), "{}: {name}", shape.name);
        }
    }
}

#[test]
fn every_rule_for_documents_is_a_json_object() {
    for shape in shapes() {
        let rules = shape.fields.iter().map(|field| (field.name, field.spec.also));
        for (name, also) in rules.chain([("", shape.also)]).filter(|(_, also)| !also.is_empty()) {
            let read = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(also);
            assert!(read.is_ok(), "{} {name}: {also}", shape.name);
        }
    }
}
