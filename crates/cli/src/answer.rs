//! A call's JSON as two columns for people. Nothing here knows a call; only how fields are named.

use std::fmt::{self, Write as _};

use quaymaster_server::QueueLetter;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::output::{self, millis, printable};

/// Fields that hold what users stored: shown as they are, whatever is in them.
const VERBATIM: [&str; 6] = ["value", "value_base64", "response", "payload", "item", "data"];

/// Fields that hold a list of things of one kind: columns, below the other fields.
const LISTS: [&str; 3] = ["jobs", "runs", "batches"];

/// Of a longer list, so many are shown.
const ROWS: usize = 100;

/// An answer: its fields in the order they came, each as it was written.
#[derive(Debug)]
pub(crate) struct Answer(Vec<(String, Box<RawValue>)>);

/// A call's answer as it came, and its fields where they can be read.
pub(crate) struct Answered {
    pub(crate) text: String,
    pub(crate) answer: serde_json::Result<Answer>,
}

impl From<String> for Answered {
    fn from(text: String) -> Self {
        Self { answer: Answer::parse(&text), text }
    }
}

impl Answer {
    fn parse(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// A field as it was written.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.get())
    }

    /// Its table.
    pub(crate) fn table(&self) -> serde_json::Result<String> {
        let is = |names: &[&str]| self.0.iter().all(|(name, _)| names.contains(&name.as_str()));
        if let (Some(items), true) = (self.field("items"), is(&["items", "length"])) {
            let length = self.field("length").and_then(|length| length.parse().ok());
            return Ok(Listed { items: serde_json::from_str(items)?, length }.table());
        }
        let (mut rows, mut lists) = (Vec::new(), String::new());
        // `used` and `limit` are one fact.
        let number = |name: &str| self.field(name).and_then(|value| value.parse::<u64>().ok());
        let quota = number("used").zip(number("limit"));
        for (name, value) in &self.0 {
            match (name.as_str(), quota) {
                ("limit", Some(_)) => {}
                ("used", Some((used, limit))) => rows.push(("used".to_owned(), format!("{used} of {limit}"))),
                (name, _) if LISTS.contains(&name) && value.get() != "[]" => {
                    match serde_json::from_str::<Vec<Answer>>(value.get()) {
                        Ok(items) => lists.push_str(&columns(&items)?),
                        Err(_) => describe(name, &serde_json::from_str(value.get())?, &mut rows),
                    }
                }
                _ => describe(name, &serde_json::from_str(value.get())?, &mut rows),
            }
        }
        let rows: Vec<(&str, String)> =
            rows.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        Ok(output::table(&rows) + &lists)
    }
}

/// Things of one kind, one a line under the names of their fields; what users stored comes last. Of lists and objects in
/// them only the number is told.
fn columns(items: &[Answer]) -> serde_json::Result<String> {
    let shown = &items[..items.len().min(ROWS)];
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in shown.iter().flat_map(|item| &item.0) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| VERBATIM.contains(name));
    let mut rows = Vec::new();
    for item in shown {
        let cell = |name: &&str| match item.field(name) {
            None => Ok(String::new()),
            Some(written) if VERBATIM.contains(name) => Ok(verbatim(&serde_json::from_str(written)?)),
            Some(written) => Ok(match serde_json::from_str(written)? {
                Value::Array(items) => items.len().to_string(),
                Value::Object(fields) => {
                    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", verbatim(value)));
                    pairs.collect::<Vec<_>>().join(" ")
                }
                value => plain(name, &value).unwrap_or_default(),
            }),
        };
        rows.push(names.iter().map(cell).collect::<serde_json::Result<Vec<String>>>()?);
    }
    let mut text = output::grid(&names.iter().map(|name| spoken(name)).collect::<Vec<_>>(), &rows);
    if items.len() > ROWS {
        let _ = writeln!(text, "and {} more; --json shows them", items.len() - ROWS);
    }
    Ok(text)
}

/// What users stored, on one line.
fn verbatim(value: &Value) -> String {
    printable(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// A value that is neither list nor object; nothing where there is nothing to say.
fn plain(name: &str, value: &Value) -> Option<String> {
    Some(match value {
        // When the same call can pass: said only when it cannot now.
        Value::Number(ms) if name == "retry_after_ms" && ms.as_u64() == Some(0) => return None,
        Value::Null if name == "retry_after_ms" => "never: the cost is over the limit".to_owned(),
        Value::Number(number) => match number.as_u64().filter(|_| name.ends_with("_ms")) {
            Some(ms) => millis(ms),
            None => number.to_string(),
        },
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) => printable(text),
        _ => "none".to_owned(),
    })
}

fn describe(name: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    let last = name.rsplit('.').next().unwrap_or(name);
    if VERBATIM.contains(&last) {
        rows.push((spoken(name), verbatim(value)));
        return;
    }
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().take(ROWS).enumerate() {
                describe(&format!("{name}.{}", at + 1), item, rows);
            }
            if items.len() > ROWS {
                rows.push((spoken(name), format!("and {} more; --json shows them", items.len() - ROWS)));
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                describe(&format!("{name}.{field}"), value, rows);
            }
        }
        value => rows.extend(plain(last, value).map(|text| (spoken(name), text))),
    }
}

/// A field's name for people.
fn spoken(name: &str) -> String {
    let name = name.replace("retry_after_ms", "retry in").replace("reset_after_ms", "resets in");
    name.strip_suffix("_ms").unwrap_or(&name).replace('_', " ")
}

/// A page of items: dead letters in columns, anything else as it is, one a line.
struct Listed {
    items: Vec<Box<RawValue>>,
    length: Option<u64>,
}

impl Listed {
    fn table(&self) -> String {
        let letter = |item: &RawValue| match QueueLetter::read(item) {
            QueueLetter::Dead(letter) => Some(letter),
            QueueLetter::Raw(_) | QueueLetter::Foreign(_) => None,
        };
        let letters: Option<Vec<_>> = self.items.iter().map(|item| letter(item)).collect();
        let mut text = String::new();
        match letters {
            _ if self.items.is_empty() => text.push_str("none\n"),
            Some(letters) => {
                let rows = letters.iter().map(|letter| {
                    let job = printable(letter.original_job.get());
                    [
                        letter.attempt_count.to_string(),
                        letter.last_failed_at.clone(),
                        printable(&letter.error),
                        job,
                    ]
                });
                text.push_str(&output::columns(["attempts", "last failed", "error", "job"], rows.collect()));
            }
            None => {
                for item in &self.items {
                    text.push_str(&printable(item.get()));
                    text.push('\n');
                }
            }
        }
        let more = self.length.unwrap_or(0).saturating_sub(self.items.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "{}: --offset and --count", output::others(more));
        }
        text
    }
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Answer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an answer")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Answer, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Answer(fields))
            }
        }
        input.deserialize_map(Ordered)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn table(json: &str) -> serde_json::Result<String> {
        Answer::parse(json)?.table()
    }

    #[test]
    fn a_limits_answer_reads_as_it_always_did() {
        let told = r#"{"allowed":false,"limit":3,"used":2,"remaining":1,"reset_after_ms":1500,"retry_after_ms":900}"#;
        let shown = "allowed    no\nused       2 of 3\nremaining  1\nresets in  1.5 s\nretry in   900 ms\n";
        assert_eq!(table(told).unwrap(), shown);
        let told =
            r#"{"allowed":true,"limit":3,"used":2,"remaining":1,"reset_after_ms":0,"retry_after_ms":0}"#;
        assert!(!table(told).unwrap().contains("retry"));
        let told = r#"{"allowed":false,"limit":3,"used":2,"retry_after_ms":null}"#;
        assert!(table(told).unwrap().contains("retry in  never"));
    }

    #[test]
    fn what_users_stored_is_shown_as_it_is_and_cannot_steer_the_terminal() {
        let told = r#"{"hit":true,"value":{"a_ms":5}}"#;
        assert_eq!(table(told).unwrap(), "hit    yes\nvalue  {\"a_ms\":5}\n");
        let told = "{\"value\":\"a\\u001b[2Jb\\nc ü\"}";
        assert_eq!(table(told).unwrap(), "value  a\\u{1b}[2Jb\\nc ü\n");
    }

    #[test]
    fn dead_letters_are_columns_and_items_are_lines() {
        let told = r#"{"items":[{"original_job":{"b":1,"a":2},"error":"connection\nrefused","attempt_count":3,
            "first_failed_at":"2026-01-24T10:30:05.000000","last_failed_at":"2026-01-24T10:30:15.000000",
            "queue_name":"q"}],"length":5}"#;
        let shown = "attempts  last failed                 error                job\n\
                     3         2026-01-24T10:30:15.000000  connection\\nrefused  {\"b\":1,\"a\":2}\n\
                     4 others: --offset and --count\n";
        assert_eq!(table(told).unwrap(), shown);
        assert_eq!(table(r#"{"items":["x"],"length":2}"#).unwrap(), "\"x\"\n1 other: --offset and --count\n");
        assert_eq!(table(r#"{"items":[{"z":1,"a":2},"x"]}"#).unwrap(), "{\"z\":1,\"a\":2}\n\"x\"\n");
        assert_eq!(table(r#"{"items":[],"length":0}"#).unwrap(), "none\n");
    }

    #[test]
    fn jobs_and_runs_are_columns_below_the_other_fields() {
        let told = r#"{"acked":1,"jobs":[{"payload":{"a":1},"id":"7","lease_expires_in_ms":30000},
            {"payload":"x\ny","id":"18","lease_expires_in_ms":900,"attempt":2}]}"#;
        let shown = "acked  1\nid  lease expires in  attempt  payload\n7   30.0 s                     {\"a\":1}\n\
                     18  900 ms            2        x\\ny\n";
        assert_eq!(table(told).unwrap(), shown);
        let told =
            r#"{"runs":[{"run_id":"r","status":"running","processed":[1,2],"tasks":[],"key":{"c":"d"}}]}"#;
        let shown = "run id  status   processed  tasks  key\nr       running  2          0      c=d\n";
        assert_eq!(table(told).unwrap(), shown);
        assert_eq!(table(r#"{"jobs":[]}"#).unwrap(), "jobs  none\n");
        let many = vec!["{\"id\":\"1\"}"; ROWS + 2].join(",");
        assert!(
            table(&format!("{{\"jobs\":[{many}]}}")).unwrap().ends_with("\nand 2 more; --json shows them\n")
        );
    }

    #[test]
    fn lists_and_objects_become_rows_of_their_own() {
        let told = r#"{"outcome":"limited","limits":[{"name":"psp","expires_in_ms":30000}],"jobs":[]}"#;
        let shown = "outcome              limited\nlimits.1.expires in  30.0 s\nlimits.1.name        psp\njobs                 none\n";
        assert_eq!(table(told).unwrap(), shown);
    }
}
