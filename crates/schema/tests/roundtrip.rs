//! Every key reads back to one resource and one set of values, whatever the schema and the values.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::LazyLock;

use common::bundled;
use proptest::prelude::*;
use quaymaster_schema::{KeyRow, Pattern, Schema, Source, Spelling, load};

static BUNDLED: LazyLock<Schema> = LazyLock::new(bundled);
const NOW_US: i64 = 1_705_329_059_000_000;
const SPELLINGS: [Spelling; 2] = [Spelling::Single, Spelling::Cluster];

fn render(pattern: &Pattern, values: &[(String, String)], spelling: Spelling) -> Option<Vec<u8>> {
    let values: Vec<(&str, &str)> =
        values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut out = Vec::new();
    pattern.render(&values, NOW_US, spelling, &mut out).ok().map(|_| out)
}

/// Values the pattern takes: each as drawn, or without `:`, or as a number, whichever is the first it does not refuse.
fn fitted(pattern: &Pattern, drawn: &[String], number: u32) -> Option<Vec<(String, String)>> {
    let forms: [&dyn Fn(&String) -> String; 3] =
        [&|drawn| drawn.clone(), &|drawn| drawn.replace(':', "-"), &|_| number.to_string()];
    let names: Vec<String> = pattern.placeholders().map(str::to_owned).collect();
    let mut values: Vec<(String, String)> =
        names.iter().map(|name| (name.clone(), number.to_string())).collect();
    for (index, drawn) in drawn.iter().enumerate().take(names.len()) {
        values[index].1 = forms.iter().map(|form| form(drawn)).find(|candidate| {
            let mut attempt = values.clone();
            attempt[index].1.clone_from(candidate);
            render(pattern, &attempt, Spelling::Single).is_some()
        })?;
    }
    Some(values)
}

/// Renders the row in both spellings and asks the schema what it is.
fn comes_back(
    schema: &Schema,
    resource: &str,
    row: &KeyRow,
    values: &[(String, String)],
) -> Result<(), TestCaseError> {
    for spelling in SPELLINGS {
        let Some(key) = render(&row.pattern, values, spelling) else { continue };
        let shown = String::from_utf8_lossy(&key).into_owned();
        let Some(explained) = schema.explain(&key) else {
            return Err(TestCaseError::fail(format!("nobody knows {shown}")));
        };
        let found = format!("{}.{}", explained.resource.kind, explained.resource.name);
        prop_assert_eq!((found.as_str(), explained.row.role), (resource, row.role), "{}", shown);
        prop_assert_eq!(&explained.values, values, "{}", shown);
        prop_assert_eq!(explained.bucket.is_some(), row.pattern.bucket().is_some());
        let documented = render(&row.pattern, values, Spelling::Single);
        // A tag around a part of the documented key has always stood behind the prefix.
        let in_place = documented.is_some_and(|documented| documented == without_tag(&key));
        lies_under_its_prefix(schema, &explained.resource.document, &key, in_place)?;
    }
    Ok(())
}

/// A key without the braces of its first tag; values have none.
fn without_tag(key: &[u8]) -> Vec<u8> {
    let brace = |wanted: u8| key.iter().position(|byte| *byte == wanted);
    let (open, close) = (brace(b'{'), brace(b'}'));
    let places = key.iter().enumerate().filter(|(at, _)| Some(*at) != open && Some(*at) != close);
    places.map(|(_, byte)| *byte).collect()
}

/// The prefix finds the key, and its slot is the one it had before the prefix stood in front of the tag.
fn lies_under_its_prefix(
    schema: &Schema,
    document: &str,
    key: &[u8],
    in_place: bool,
) -> Result<(), TestCaseError> {
    let shown = String::from_utf8_lossy(key).into_owned();
    let document = schema.documents().iter().find(|known| known.name == document).unwrap();
    let Some(old) = key.strip_prefix(document.prefix.as_bytes()) else {
        return Err(TestCaseError::fail(format!("{shown} does not begin with {}", document.prefix)));
    };
    if old.starts_with(b"{") && !document.prefix.is_empty() {
        prop_assert_eq!(slot_tag(key), slot_tag(old), "{}", shown);
        if in_place {
            prop_assert_ne!(schema.respelled(old), Some(key.to_vec()), "{}", shown);
        } else if schema.explain(old).is_none() {
            let known = |prefix: &str| schema.explain(&[prefix.as_bytes(), old].concat()).is_some();
            let claims = schema.documents().iter().filter(|document| known(&document.prefix)).count();
            let wanted = (claims == 1).then(|| key.to_vec());
            let found = schema.respelled(old);
            prop_assert!(
                found == wanted || (claims > 1 && found == Some(key.to_vec())),
                "{}: {:?}",
                shown,
                found
            );
        }
    }
    prop_assert_eq!(schema.respelled(key), None, "{}", shown);
    Ok(())
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9_.+@/ -]{1,24}",
        "[a-z0-9:]{1,24}",
        Just("manual_2024-09-17T14:30:00+00:00".to_owned()),
        Just("2001:db8::1".to_owned()),
        Just("GET /users/:id".to_owned()),
        Just("2024-01-15-14-30".to_owned()),
        Just("tx".to_owned()),
        Just("tx:2024-01-15-14-30".to_owned()),
        "\\PC{1,12}"
            .prop_filter("no special characters", |text| !text.contains(['{', '}', '*', '?', '[', ']'])),
        ":{1,3}",
    ]
}

proptest! {
    #![proptest_config(common::cases(400))]

    #[test]
    fn every_key_of_the_five_systems_reads_back(
        drawn in prop::collection::vec(value(), 6),
        number in 0u32..100_000,
    ) {
        for resource in BUNDLED.resources() {
            let label = format!("{}.{}", resource.kind, resource.name);
            for row in &resource.keys {
                let values = fitted(&row.pattern, &drawn, number);
                prop_assert!(values.is_some(), "{} takes nothing", row.pattern.text());
                comes_back(&BUNDLED, &label, row, &values.unwrap())?;
            }
        }
    }

    #[test]
    fn side_keys_are_the_keys_of_the_request_row(drawn in prop::collection::vec(value(), 3), id in "[a-z0-9:]{1,12}") {
        for resource in BUNDLED.resources().filter(|resource| resource.as_limit().is_some()) {
            let primary = &resource.keys[0].pattern;
            let values = fitted(primary, &drawn, 7).unwrap();
            let borrowed: Vec<(&str, &str)> = values.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let mut all = values.clone();
            all.push(("request_id".to_owned(), id.clone()));
            for spelling in SPELLINGS {
                let mut side = Vec::new();
                primary.render_side(&borrowed, &format!("req:{id}"), spelling, &mut side).unwrap();
                prop_assert_eq!(Some(side), render(&resource.key("request").unwrap().pattern, &all, spelling));
            }
        }
    }
}

/// The part of a key that decides its slot.
fn slot_tag(key: &[u8]) -> &[u8] {
    let inner = key.iter().position(|b| *b == b'{').and_then(|open| {
        let close = key[open..].iter().position(|b| *b == b'}')? + open;
        (close > open + 1).then(|| &key[open + 1..close])
    });
    inner.unwrap_or(key)
}

#[test]
fn keys_of_one_step_share_a_slot_on_a_cluster() {
    // Written by steps of their own, whatever their primary does.
    let apart = [
        "failed",
        "runs",
        "live",
        "kept",
        "known",
        "started",
        "uploads",
        "ready",
        "in_flight",
        "in_flight_until",
        "in_flight_total",
    ];
    for resource in BUNDLED.resources() {
        let tags: std::collections::BTreeSet<String> = resource
            .keys
            .iter()
            .filter(|row| !apart.contains(&row.role))
            .map(|row| {
                let values = fitted(&row.pattern, &vec!["7".to_owned(); 6], 7).unwrap();
                let key = render(&row.pattern, &values, Spelling::Cluster).unwrap();
                String::from_utf8(slot_tag(&key).to_vec()).unwrap()
            })
            .collect();
        assert!(tags.len() <= 1, "{}.{}: {tags:?}", resource.kind, resource.name);
    }
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("a".to_owned()),
        2 => Just("b".to_owned()),
        3 => Just("{x}".to_owned()),
        2 => Just("{y}".to_owned()),
        1 => Just("a{z}".to_owned()),
        1 => Just("{hour}".to_owned()),
    ]
}

fn resource(index: usize) -> impl Strategy<Value = String> {
    let kind = prop_oneof![Just("cache"), Just("lock")];
    let colocate =
        prop_oneof![4 => Just(""), 1 => Just("colocate = \"a\"\n"), 1 => Just("colocate = \"{x}\"\n")];
    (prop::collection::vec(segment(), 1..4), kind, colocate).prop_map(move |(segments, kind, colocate)| {
        format!("[{kind}.r{index}]\nkey = \"{}\"\nttl = \"1m\"\n{colocate}\n", segments.join(":"))
    })
}

fn prefix() -> impl Strategy<Value = &'static str> {
    prop_oneof![2 => Just(""), 1 => Just("a:"), 1 => Just("a:b:"), 1 => Just("p:"), 1 => Just("a")]
}

proptest! {
    #![proptest_config(common::cases(1500))]

    /// Small alphabets, so that patterns and values collide as often as they can.
    #[test]
    fn whatever_schema_loads_its_keys_read_back(
        parts in (resource(0), resource(1), resource(2)),
        prefixes in (prefix(), prefix()),
        drawn in prop::collection::vec(
            prop_oneof![Just("a"), Just("b"), Just("a:b"), Just("b:a:a"), Just("aa"), Just("2024-01-15_14"), Just("fence")],
            3,
        ),
    ) {
        let text = format!("[schema]\nprefix = \"{}\"\n{}{}", prefixes.0, parts.0, parts.1);
        let other = format!("[schema]\nprefix = \"{}\"\n{}", prefixes.1, parts.2);
        let loaded = load(&[Source { name: "s", text: &text }, Source { name: "o", text: &other }], &|_| None);
        let Some(schema) = loaded.schema else { return Ok(()) };
        for resource in schema.resources() {
            let label = format!("{}.{}", resource.kind, resource.name);
            for row in &resource.keys {
                let names: Vec<String> = row.pattern.placeholders().map(str::to_owned).collect();
                let values: Vec<(String, String)> =
                    names.into_iter().zip(drawn.iter().map(|value| (*value).to_owned())).collect();
                comes_back(&schema, &label, row, &values)
                    .map_err(|error| TestCaseError::fail(format!("{error}\n{text}\n{other}\n{:?}", loaded.diagnostics)))?;
            }
        }
    }
}
