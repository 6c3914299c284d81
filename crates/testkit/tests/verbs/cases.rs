//! The cases of the table of verbs, one after the other.

use std::sync::LazyLock;

use quaymaster_testkit::verbs::{self, Before, Call, VERBS};
use serde_json::{Value, json};

use crate::runner::Runner;

quaymaster_testkit::kinds!(kinds);

/// One call of a verb; `before` is done on the healthy store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Kind, verb and resource.
    pub(crate) call: Call,
    before: &'static [Before],
    /// What it is given; `$name` stands for what was kept.
    pub(crate) fields: &'static str,
}

/// Every case; a verb may have several.
pub(crate) static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let of = |verb: &'static verbs::Verb| {
        verb.cases.iter().map(|case| {
            let verbs::Case { name, before, fields } = *case;
            Case { call: (verb.kind, verb.word, name), before, fields }
        })
    };
    VERBS.iter().flat_map(of).collect()
});

impl Case {
    /// It has an effect only on a run that another program has begun, or on an instance that was silent for a day.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.call, ("run", "remaining", _) | ("stats", "sweep", _))
    }

    /// Does what comes before, and answers what the call is given.
    pub(crate) async fn prepare(&self, runner: &Runner) -> Value {
        let mut kept: Vec<(String, String)> = Vec::new();
        for (call, fields, keep) in self.before {
            let answer = runner.run(*call, fill(fields, &kept)).await;
            let answer = answer.unwrap_or_else(|error| panic!("{self:?}: {call:?}: {error}"));
            if let Some((name, pointer)) = keep {
                let value = answer.pointer(pointer).and_then(Value::as_str);
                let value = value.unwrap_or_else(|| panic!("{self:?}: {pointer} of {answer}"));
                kept.push((format!("${name}"), value.to_owned()));
            }
        }
        fill(self.fields, &kept)
    }

    /// The same fields under a request's id.
    pub(crate) fn asked_as(fields: &Value, id: &str) -> Value {
        let mut fields = fields.clone();
        fields["request_id"] = json!(id);
        fields
    }
}

fn fill(fields: &str, kept: &[(String, String)]) -> Value {
    let text = kept.iter().fold(fields.to_owned(), |text, (name, value)| text.replace(name, value));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}
