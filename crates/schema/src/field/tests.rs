//! The reader and the JSON Schema keep every declaration.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::time::Duration;

use super::document::{self, env};
use super::{AnyField, Form, Holds, MILLISECOND, Otherwise, Row, Table, json, json_schema, table_of};
use crate::kind::Kind;
use crate::read::duration_text;
use crate::{Diagnostic, Severity, Source, load};

#[path = "../../tests/common/editor.rs"]
mod editor;
use editor::Editor;

/// A value that no field takes.
const NOTHING: &str = "[[]]";

/// Every table that a file has under a header of its own, the inner ones included.
fn tables() -> Vec<&'static Table> {
    let mut tables = vec![&document::TABLE];
    for kind in Kind::ALL {
        let table = table_of(*kind);
        tables.push(table);
        for field in table.fields {
            if let Holds::Nested(inner) = field.row().holds {
                tables.push(inner);
            }
        }
    }
    tables
}

fn rows(table: &Table) -> Vec<Row> {
    table.fields().map(AnyField::row).collect()
}

/// The header of the table in its example.
fn header(table: &Table) -> &'static str {
    let (first, last) = match table.path.split_once(".NAME") {
        Some((kind, inner)) => (format!("[{kind}."), format!("{inner}]")),
        None if table.kind.is_some() => (format!("[{}.", table.path), "]".to_owned()),
        None => ("[schema".to_owned(), "]".to_owned()),
    };
    table.example.lines().find(|line| line.starts_with(&first) && line.ends_with(&last)).unwrap()
}

/// The table's example with this field given as `value`, or not given; and the field's line.
fn with(table: &Table, name: &str, value: Option<&str>) -> (String, usize) {
    let header = header(table);
    let inner = format!("{}.{name}]", header.trim_end_matches(']'));
    let (mut text, mut section, mut line) = (String::new(), "", 0);
    for old in table.example.lines() {
        if old.starts_with('[') {
            section = old;
        }
        let given = section == header && old.split(" = ").next() == Some(name);
        if !given && section != inner {
            text.push_str(old);
            text.push('\n');
        }
        if old == header
            && let Some(value) = value
        {
            let _ = writeln!(text, "{name} = {value}");
            line = text.lines().count();
        }
    }
    (text, line)
}

/// The value that the example gives this field.
fn shown<'t>(table: &'t Table, name: &str) -> Option<&'t str> {
    let section = table.example.split_once(header(table))?.1;
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once(" = ")).find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn problems(text: &str) -> Vec<Diagnostic> {
    load(&[Source { name: "s.toml", text }], &|_| None).diagnostics
}

fn errors(text: &str) -> Vec<Diagnostic> {
    problems(text).into_iter().filter(|problem| problem.severity == Severity::Error).collect()
}

#[test]
fn every_example_is_a_file_without_a_problem() {
    let editor = Editor::with(&json_schema());
    for table in tables().into_iter().chain([&env::TABLE]) {
        assert_eq!(problems(table.example), [], "{}", table.path);
        assert_eq!(editor.refuses(table.example), None, "{}", table.path);
    }
}

#[test]
fn every_field_is_read_and_has_a_type() {
    let editor = Editor::with(&json_schema());
    for table in tables() {
        for row in rows(table) {
            let (text, line) = with(table, row.name, Some(NOTHING));
            let codes: Vec<_> = errors(&text).iter().filter(|d| d.line == line).map(|d| d.code).collect();
            let wanted = if row.holds == Holds::Secret { "secret-in-file" } else { "wrong-type" };
            assert_eq!(codes, [wanted], "{}.{}", table.path, row.name);
            assert!(editor.refuses(&text).is_some(), "{text}");
        }
    }
}

#[test]
fn a_field_that_is_not_declared_is_refused() {
    let editor = Editor::with(&json_schema());
    for table in tables() {
        let (text, line) = with(table, "nonsense", Some("1"));
        let found = errors(&text);
        assert_eq!(found.iter().map(|d| (d.code, d.line)).collect::<Vec<_>>(), [("unknown-field", line)]);
        assert!(editor.refuses(&text).is_some(), "{text}");
        // The help names what there is.
        let help = found[0].help.clone().unwrap();
        assert!(table.names().all(|name| help.contains(&format!("`{name}`"))), "{help}");
    }
}

#[test]
fn a_required_field_that_is_not_given_is_missed() {
    let editor = Editor::with(&json_schema());
    let mut required = 0;
    for table in tables() {
        for row in rows(table).into_iter().filter(|row| row.otherwise == Otherwise::Missing) {
            let (text, _) = with(table, row.name, None);
            let found = errors(&text);
            let missed = |d: &Diagnostic| {
                matches!(d.code, "missing-field" | "no-ttl") && d.message.contains(&format!("`{}`", row.name))
            };
            assert!(found.iter().any(missed), "{}.{}: {found:?}", table.path, row.name);
            assert!(editor.refuses(&text).is_some(), "{text}");
            required += 1;
        }
    }
    assert!(required > 20, "{required}");
}

#[test]
fn a_default_is_what_a_field_has_that_is_not_given() {
    let editor = Editor::with(&json_schema());
    let mut defaults = 0;
    for table in tables() {
        for row in rows(table) {
            let Otherwise::Value(default) = &row.otherwise else { continue };
            let given = with(table, row.name, Some(&default.to_string())).0;
            let absent = with(table, row.name, None).0;
            let declared = |text: &str| {
                let loaded = load(&[Source { name: "s.toml", text }], &|_| None);
                let schema = loaded.schema.unwrap_or_else(|| panic!("{text}{:?}", loaded.diagnostics));
                (schema.documents().to_vec(), schema.resources().cloned().collect::<Vec<_>>())
            };
            assert_eq!(declared(&given), declared(&absent), "{}.{}", table.path, row.name);
            assert_eq!(editor.refuses(&given), None, "{given}");
            defaults += 1;
        }
    }
    assert!(defaults > 40, "{defaults}");
}

/// Values just outside of what a field takes.
fn outside(holds: &Holds) -> Vec<String> {
    let quoted = |text: &str| format!("\"{text}\"");
    match holds {
        Holds::Count { least, most } => {
            let below = i128::from(*least) - 1;
            vec![below.to_string(), (most + 1).to_string(), "1.5".to_owned(), quoted("1")]
        }
        Holds::Bytes { least, most } => {
            let below = i128::from(*least) - 1;
            vec![below.to_string(), (most + 1).to_string(), quoted("1 KiB"), quoted("1kib"), quoted("64")]
        }
        Holds::Ratio => vec!["-0.1".to_owned(), "1.1".to_owned(), quoted("0.5")],
        Holds::Boolean => vec!["1".to_owned(), quoted("true")],
        Holds::Period { .. } => ["1 hour", "60", "", "1m1h", "never"].map(quoted).to_vec(),
        Holds::Expiry { never } => {
            let mut outside = ["1 hour", "60", "", "1m1h"].map(quoted).to_vec();
            if !never {
                outside.push(quoted("never"));
            }
            outside
        }
        Holds::Choice(_) | Holds::Text(Form::Words(_)) => {
            vec![quoted("nonsense"), quoted(""), "1".to_owned()]
        }
        Holds::Text(form) => match form {
            Form::Free => vec!["1".to_owned()],
            Form::Filled => vec![quoted("")],
            Form::Pattern => ["a:{b", "a:b}", "a:{b c}", "a:{}", "a*"].map(quoted).to_vec(),
            Form::Prefix => ["a:{b}", "a:{", "a*"].map(quoted).to_vec(),
            Form::Placeholder => ["a b", "", "1a"].map(quoted).to_vec(),
            Form::Resource(_) => ["a b", ""].map(quoted).to_vec(),
            Form::Target(_) => ["lock.a", "queue", "queue.a b"].map(quoted).to_vec(),
            Form::Url(_) => ["gopher://a", ""].map(quoted).to_vec(),
            Form::Label(most) => {
                let long = "a".repeat(most + 1);
                ["a b", "", ".", "..", &long].map(quoted).to_vec()
            }
            Form::AsField | Form::Words(_) => unreachable!("not here"),
        },
        Holds::Names { most, .. } => {
            let mut outside = vec!["[1]".to_owned(), "[\"a b\"]".to_owned(), "\"a\"".to_owned()];
            outside.push("[\"a\", \"a\"]".to_owned());
            outside.extend(most.map(|most| {
                let names: Vec<String> = (0..=most).map(|n| format!("\"a{n}\"")).collect();
                format!("[{}]", names.join(", "))
            }));
            outside
        }
        Holds::Strings => vec!["[1]".to_owned(), quoted("a")],
        Holds::Meanings => vec!["{ a = 1 }".to_owned()],
        Holds::Secret => vec![quoted("hunter2"), "{ env = \"A\", default = \"hunter2\" }".to_owned()],
        Holds::Nested(_) => vec!["1".to_owned()],
    }
}

#[test]
fn a_value_outside_of_its_type_is_refused_by_the_reader_and_by_the_editor() {
    let editor = Editor::with(&json_schema());
    for table in tables() {
        for row in rows(table) {
            for value in outside(&row.holds) {
                let (text, line) = with(table, row.name, Some(&value));
                let found = errors(&text);
                // A key that is made from the value is told at the header.
                assert!(
                    found.iter().any(|d| [line, line - 1].contains(&d.line)),
                    "{}.{} = {value}: {found:?}",
                    table.path,
                    row.name
                );
                assert!(editor.refuses(&text).is_some(), "{}.{} = {value}", table.path, row.name);
            }
        }
    }
}

/// Whether the reader finds the value of this field outside of its bounds.
fn is_out_of_bounds(table: &Table, name: &str, value: &str) -> bool {
    let (text, line) = with(table, name, Some(value));
    // The shortest heartbeat follows from the flush.
    let text = if name == "heartbeat" { text.replace("flush = \"1s\"", "flush = \"10ms\"") } else { text };
    errors(&text).iter().any(|d| d.line == line && d.message.contains("must be from"))
}

#[test]
fn bounds_are_exact() {
    let editor = Editor::with(&json_schema());
    for table in tables() {
        for row in rows(table) {
            let (inside, outside): (Vec<String>, Vec<String>) = match row.holds {
                Holds::Count { least, most } | Holds::Bytes { least, most } => {
                    let below = least.checked_sub(1).map(|below| below.to_string());
                    let outside = below.into_iter().chain([(most + 1).to_string()]).collect();
                    (vec![least.to_string(), most.to_string()], outside)
                }
                Holds::Period { least, most } => {
                    let quoted = |length: Duration| format!("\"{}\"", duration_text(length));
                    let outside = vec![quoted(least.saturating_sub(MILLISECOND)), quoted(most + MILLISECOND)];
                    (vec![quoted(least), quoted(most)], outside)
                }
                _ => continue,
            };
            for value in inside {
                assert!(!is_out_of_bounds(table, row.name, &value), "{}.{} = {value}", table.path, row.name);
                assert_eq!(editor.refuses(&with(table, row.name, Some(&value)).0), None, "{value}");
            }
            for value in outside {
                assert!(is_out_of_bounds(table, row.name, &value), "{}.{} = {value}", table.path, row.name);
            }
        }
    }
}

#[test]
fn a_scalar_may_come_from_the_environment_in_one_form() {
    let editor = Editor::with(&json_schema());
    let mut scalars = 0;
    for table in tables() {
        for row in rows(table) {
            let Some(value) = shown(table, row.name) else { continue };
            let given = |form: &str| with(table, row.name, Some(&form.replace("VALUE", value))).0;
            let good = given("{ env = \"UNSET\", default = VALUE }");
            let may = json::is_scalar(&row.holds);
            assert_eq!((errors(&good).is_empty(), editor.refuses(&good).is_none()), (may, may), "{good}");
            if !may {
                continue;
            }
            scalars += 1;
            for wrong in [
                "{ env = 1, default = VALUE }",
                "{ env = \"UNSET\", defualt = VALUE }",
                "{ env = \"UNSET\", default = VALUE, unit = \"parsec\" }",
                "{ env = \"UNSET\", default = { env = \"ALSO\" } }",
                "{ default = VALUE }",
                "{}",
            ] {
                let text = given(wrong);
                assert!(!errors(&text).is_empty(), "{text}");
                assert!(editor.refuses(&text).is_some(), "{text}");
            }
        }
    }
    assert!(scalars > 20, "{scalars}");
}

#[test]
fn every_field_says_what_it_means_and_since_when() {
    for table in tables().into_iter().chain([&env::TABLE]) {
        let rows = rows(table);
        for row in &rows {
            assert!(row.meaning.ends_with('.') || row.meaning.ends_with("`."), "{}.{}", table.path, row.name);
            assert_eq!(row.since.split('.').count(), 3, "{}.{}", table.path, row.name);
            let twice = rows.iter().filter(|other| other.name == row.name).count();
            assert_eq!(twice, 1, "{}.{} is declared twice", table.path, row.name);
        }
    }
}
