//! Reading a run.

use std::time::Duration;

use super::common::{Body, Reading, reserved_placeholder};
use super::fields::Got;
use crate::field::Spec;
use crate::field::run::{
    CALLS_FIELD, FAILED_KEY, HOUR_TTL, KEY, LIMIT, PROCESSED_FIELD, STALE_AFTER, STATE_TTL, TASK_KEY,
};
use crate::keys::run_rows;
use crate::kind::{BucketUnit, Kind};
use crate::pattern::Template;
use crate::spec::RunSpec;

/// Ten minutes without a sign of life.
const STALE: Duration = Duration::from_secs(600);

pub(crate) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let fields = &reading.fields;
    let key = reading.key(&KEY);
    let state_ttl = fields.required(&STATE_TTL);
    let hour_ttl = fields.required(&HOUR_TTL);
    let limit = fields.read(&LIMIT);
    let stale = fields.read(&STALE_AFTER);
    let stale_at = stale.at();
    let stale_after = stale.option();
    let id = key.as_ref().map(|(key, _)| key.names().map(str::to_owned).collect::<Vec<_>>());
    let default_task = match id.as_deref() {
        Some([id]) if id != "task_id" => format!("task_start:{{{id}}}:{{task_id}}"),
        _ => "task_start:{run_id}:{task_id}".to_owned(),
    };
    let task = reading.key_or(&TASK_KEY, &default_task);
    let failed = reading.key_or_default(&FAILED_KEY);
    let (calls_field, processed_field) = (reading.label(&CALLS_FIELD), reading.label(&PROCESSED_FIELD));
    if let Got::Value(name, at) = &limit {
        reading.refer(Kind::Limit, name, *at);
    }
    let ((key, key_at), (state_ttl, _), (hour_ttl, hour_at)) = (key?, state_ttl?, hour_ttl?);
    let ((task, task_at), (failed, failed_at)) = (task?, failed?);
    if hour_ttl < Duration::from_secs(3600) {
        let message = "the hour's list would expire before the hour ends";
        reading.add(hour_at, "ttl-shorter-than-window", message, Some("make `hour_ttl` at least 1h"));
    }
    // A run that is kept for less than ten minutes is stale half-way, unless the schema says when.
    let stale_after = stale_after.unwrap_or_else(|| STALE.min(state_ttl / 2));
    if let Some(at) = stale_at.filter(|_| stale_after >= state_ttl) {
        let message = "the state would expire before the run is stale";
        reading.add(at, "contradiction", message, Some("make `stale_after` shorter than `state_ttl`"));
    }
    let id = match id?.as_slice() {
        // The index of runs lies under the text in front of the id.
        [id] if key.bucket().is_none() && !key.literal_head().is_empty() => id.clone(),
        _ => {
            let message = "the key of a run is text and one placeholder, its id, without a bucket, as in `run:{run_id}`";
            reading.add(key_at, "bad-pattern", message, None);
            return None;
        }
    };
    if id == "task_id" {
        reserved_placeholder(&reading.fields, key_at, &id);
        return None;
    }
    if !names_are(&task, &[&id, "task_id"]) || task.bucket().is_some() {
        let message = format!("`task_key` has `{{{id}}}` and `{{task_id}}` and no bucket");
        reading.add(task_at, "bad-pattern", message, None);
        return None;
    }
    if !names_are(&failed, &[]) || failed.bucket() != Some(BucketUnit::Hour) {
        reading.add(failed_at, "bad-pattern", "`failed_key` has `{hour}` and no placeholder", None);
        return None;
    }
    let (calls_field, processed_field) = (calls_field?, processed_field?);
    if !fields_differ(reading, &id, &calls_field, &processed_field) {
        return None;
    }
    let limit = limit.option();
    let spec =
        RunSpec { id: id.clone(), state_ttl, hour_ttl, limit, stale_after, calls_field, processed_field };
    let mut tag = Template::default();
    tag.push_name(&id);
    let mut body = Body::new(Spec::Run(spec.clone()), run_rows(key, task, failed, &spec), key_at);
    // The keys of a run are tagged by its id, wherever it stands in them.
    body.tag = tag;
    Some(body)
}

/// Every field of the hash has one meaning.
fn fields_differ(reading: &Reading<'_, '_>, id: &str, calls: &str, processed: &str) -> bool {
    let others = [id, "start_time", "current_hour", "status", "redis_keys"];
    let taken = [
        (&CALLS_FIELD, calls, others.contains(&calls)),
        (&PROCESSED_FIELD, processed, others.contains(&processed) || processed == calls),
    ];
    for (field, name, _) in taken.iter().filter(|(_, _, taken)| *taken) {
        let at = reading.fields.placed(field).1;
        let message = format!("`{}`: the run's hash has another field `{name}`", field.name);
        reading.add(at, "contradiction", message, Some("give this field another name"));
    }
    !taken.iter().any(|(_, _, taken)| *taken)
}

fn names_are(template: &Template, wanted: &[&str]) -> bool {
    let mut names: Vec<&str> = template.names().collect();
    let mut wanted = wanted.to_vec();
    names.sort_unstable();
    wanted.sort_unstable();
    names == wanted
}
