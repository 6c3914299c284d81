//! A call's JSON as two columns for people. Nothing here knows a call; only how fields are named.

use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::output::{self, millis, printable};

/// Fields that hold what users stored: shown as they are, whatever is in them.
const VERBATIM: [&str; 6] = ["value", "value_base64", "response", "payload", "item", "data"];

/// Of a longer list, so many are shown.
const ROWS: usize = 100;

/// An answer: its fields in the order they came, each as it was written.
#[derive(Debug)]
pub(crate) struct Answer(Vec<(String, Box<RawValue>)>);

impl Answer {
    pub(crate) fn parse(json: &str) -> serde_json::Result<Self> {
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
        let mut rows = Vec::new();
        // `used` and `limit` are one fact.
        let number = |name: &str| self.field(name).and_then(|value| value.parse::<u64>().ok());
        let quota = number("used").zip(number("limit"));
        for (name, value) in &self.0 {
            match (name.as_str(), quota) {
                ("limit", Some(_)) => {}
                ("used", Some((used, limit))) => rows.push(("used".to_owned(), format!("{used} of {limit}"))),
                _ => describe(name, &serde_json::from_str(value.get())?, &mut rows),
            }
        }
        let rows: Vec<(&str, String)> =
            rows.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        Ok(output::table(&rows))
    }
}

fn describe(name: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    let last = name.rsplit('.').next().unwrap_or(name);
    if VERBATIM.contains(&last) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        rows.push((spoken(name), printable(&text)));
        return;
    }
    let text = match value {
        // When the same call can pass: said only when it cannot now.
        Value::Number(ms) if last == "retry_after_ms" && ms.as_u64() == Some(0) => return,
        Value::Null if last == "retry_after_ms" => "never: the cost is over the limit".to_owned(),
        Value::Number(number) => match number.as_u64().filter(|_| last.ends_with("_ms")) {
            Some(ms) => millis(ms),
            None => number.to_string(),
        },
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Null => "none".to_owned(),
        Value::String(text) => printable(text),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => {
            for (at, item) in items.iter().take(ROWS).enumerate() {
                describe(&format!("{name}.{}", at + 1), item, rows);
            }
            if items.len() > ROWS {
                rows.push((spoken(name), format!("and {} more; --json shows them", items.len() - ROWS)));
            }
            return;
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                describe(&format!("{name}.{field}"), value, rows);
            }
            return;
        }
    };
    rows.push((spoken(name), text));
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

#[derive(Deserialize)]
struct Letter {
    original_job: Box<RawValue>,
    error: String,
    attempt_count: u64,
    last_failed_at: String,
}

impl Listed {
    fn table(&self) -> String {
        let letters: Result<Vec<Letter>, _> =
            self.items.iter().map(|item| serde_json::from_str(item.get())).collect();
        let mut text = String::new();
        match letters {
            _ if self.items.is_empty() => text.push_str("none\n"),
            Ok(letters) => {
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
            Err(_) => {
                for item in &self.items {
                    text.push_str(&printable(item.get()));
                    text.push('\n');
                }
            }
        }
        let more = self.length.unwrap_or(0).saturating_sub(self.items.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "{more} others: --offset and --count");
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
        assert_eq!(table(r#"{"items":[{"z":1,"a":2},"x"]}"#).unwrap(), "{\"z\":1,\"a\":2}\n\"x\"\n");
        assert_eq!(table(r#"{"items":[],"length":0}"#).unwrap(), "none\n");
    }

    #[test]
    fn lists_and_objects_become_rows_of_their_own() {
        let told = r#"{"outcome":"limited","limits":[{"name":"psp","expires_in_ms":30000}],"jobs":[]}"#;
        let shown = "outcome              limited\nlimits.1.expires in  30.0 s\nlimits.1.name        psp\njobs                 none\n";
        assert_eq!(table(told).unwrap(), shown);
    }
}
