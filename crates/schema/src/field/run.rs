//! The fields of a run.

use super::{
    Derived, Field, Form, LONGEST, MILLISECOND, Optional, Or, Period, Required, Table, Text, field, fields,
};
use crate::kind::Kind;

pub(crate) static TABLE: Table = Table {
    path: "run",
    kind: Some(Kind::Run),
    fields: FIELDS,
    meaning: "The state of one pass of a pipeline: processed items, failures, tasks.",
    page: Some("runs.md"),
    example: r#"[run.nightly]
key = "run:{run_id}"
state_ttl = "7d"
hour_ttl = "2h"
"#,
};

/// The longest name of a field of the state.
const NAME_MAX: usize = 64;

const LASTING: Period = Period { least: MILLISECOND, most: LONGEST };

fields! {
    since "0.1.0":
    KEY: Field<Text, Required> = field(
        "key",
        Text(Form::Pattern),
        Required,
        "The key of a run's state: text and one placeholder, the run's id, which may contain `:`.",
    );
    TASK_KEY: Field<Text, Derived> = field(
        "task_key",
        Text(Form::Pattern),
        Derived("`task_start:{ID}:{task_id}`"),
        "The key of a task's start: the run's id and `{task_id}`.",
    );
    FAILED_KEY: Field<Text, Or<&'static str>> =
        field("failed_key", Text(Form::Pattern), Or("failed:{hour}"), "The key of an hour's list of failures.");
    STATE_TTL: Field<Period, Required> =
        field("state_ttl", LASTING, Required, "How long a run is kept after its last change.");
    HOUR_TTL: Field<Period, Required> =
        field("hour_ttl", LASTING, Required, "How long an hour's list of failures is kept. At least `1h`.");
    STALE_AFTER: Field<Period, Derived> = field(
        "stale_after",
        LASTING,
        Derived("`10m`, at most half of `state_ttl`"),
        "A run without a sign of life for this long is stale. Shorter than `state_ttl`.",
    );
    LIMIT: Field<Text, Optional> = field(
        "limit",
        Text(Form::Resource(Kind::Limit)),
        Optional,
        "The limit whose count is the run's calls of the hour: a window of `1h`, no placeholders.",
    );
    CALLS_FIELD: Field<Text, Or<&'static str>> = field(
        "calls_field",
        Text(Form::Label(NAME_MAX)),
        Or("api_calls_this_hour"),
        "The field of the state's hash that shows the calls of the hour. Answers call it `calls_this_hour`.",
    );
    PROCESSED_FIELD: Field<Text, Or<&'static str>> = field(
        "processed_field",
        Text(Form::Label(NAME_MAX)),
        Or("dockets_processed"),
        "The field of the state's hash that lists what is processed. Answers call it `processed`.",
    );
}
