//! Fields and tasks of a run.

use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::answer::{self, Changed, RunState, TaskEnd, TaskFinished, TaskStarted};
use super::ops::{self, Frame};
use super::{Items, MAX_ITEMS, Run, check_status, ended, is_longer};
use crate::wrote::in_steps;
use crate::{Code, Error, Result};

/// The most fields of one update.
pub const MAX_FIELDS: usize = 32;

/// The most fields of their own that callers may give a run.
pub const MAX_OWN_FIELDS: usize = 100;

/// The longest value of a field.
pub const MAX_VALUE_CHARS: usize = 4096;

/// The longest name of a field.
const MAX_NAME_CHARS: usize = 64;

/// What an update sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// What the run is doing.
    pub status: Option<&'a str>,
    /// The documented list of items, [`RunSpec::processed_field`](quaymaster_schema::RunSpec): noted as processed, like [`Run::processed`], any number of them.
    pub processed: &'a [&'a str],
    /// Fields of the caller's own, by name.
    pub own: &'a [(&'a str, &'a str)],
}

impl Run {
    /// Sets the status and fields of the caller's own; a finished run's status stays.
    pub async fn update(&self, id: &str, fields: &Fields<'_>, request_id: Option<&str>) -> Result<RunState> {
        let told = in_steps(self.set(id, fields, request_id)).await;
        self.noted(told)
    }

    async fn set(&self, id: &str, fields: &Fields<'_>, request_id: Option<&str>) -> Result<RunState> {
        const OP: &str = ops::UPDATE;
        self.check_fields(OP, fields)?;
        for chunk in fields.processed.chunks(MAX_ITEMS) {
            let _counts = self.processed(id, chunk, None).await.map_err(|error| error.during(OP))?;
        }
        let status = fields.status.map(|status| ("status", status));
        let pairs: Vec<(&str, &str)> = status.into_iter().chain(fields.own.iter().copied()).collect();
        if pairs.is_empty() {
            return self.look(id, Items::Without).await.map_err(|error| error.during(OP));
        }
        let build = |frame: Frame<'_>, _| ops::update(frame, &pairs);
        match self.ask(OP, id, request_id, true, build, answer::updated).await?.0 {
            Changed::Done(view) => {
                let run = answer::view(view, id)?;
                self.beat(OP, id, true, if run.over { 2 } else { 1 }).await;
                Ok(run)
            }
            Changed::Ended(status) => Err(ended(OP, id, &status)),
        }
    }

    fn check_fields(&self, op: &'static str, fields: &Fields<'_>) -> Result<()> {
        if let Some(status) = fields.status {
            check_status(op, status)?;
        }
        for chunk in fields.processed.chunks(MAX_ITEMS) {
            super::check_items(op, chunk)?;
        }
        let invalid = |detail: String| Err(Error::new(op, Code::RequestInvalid, detail).field("fields"));
        if fields.own.len() > MAX_FIELDS {
            return invalid(format!("fields: {MAX_FIELDS} at most in one call, got {}", fields.own.len()));
        }
        for (index, (name, value)) in fields.own.iter().enumerate() {
            if let Some(who) = self.owner_of(name) {
                let detail = format!("`{name}` is not set by update: {who}");
                return Err(Error::new(op, Code::RunField, detail).field("fields"));
            }
            if name.is_empty() || is_longer(name, MAX_NAME_CHARS) || name.contains(char::is_control) {
                return invalid(format!("a field's name has 1 to {MAX_NAME_CHARS} characters of text"));
            }
            if is_longer(value, MAX_VALUE_CHARS) {
                return invalid(format!(
                    "`{name}` has {} characters; the most is {MAX_VALUE_CHARS}",
                    value.chars().count()
                ));
            }
            if fields.own[..index].iter().any(|(before, _)| before == name) {
                return invalid(format!("`{name}` is given twice"));
            }
        }
        Ok(())
    }

    /// Who sets a documented field, if callers do not.
    fn owner_of(&self, name: &str) -> Option<&'static str> {
        match name {
            _ if name == self.spec.id => Some("it is the run's id"),
            "start_time" => Some("the first start sets it"),
            "current_hour" => Some("it is rendered from the limit's counter"),
            _ if name == self.spec.calls_field => Some("it is rendered from the limit's counter"),
            "redis_keys" => Some("it is rendered from the schema"),
            _ if name == self.spec.processed_field => {
                Some("it is rendered from the items that were processed")
            }
            "status" => Some("it is the update's status"),
            _ => None,
        }
    }

    /// Notes that a task began. The first time counts while it runs; after its end it begins anew.
    pub async fn task_start(&self, id: &str, task: &str, request_id: Option<&str>) -> Result<TaskStarted> {
        let told = in_steps(self.begin_task(id, task, request_id)).await;
        self.noted(told)
    }

    async fn begin_task(&self, id: &str, task: &str, request_id: Option<&str>) -> Result<TaskStarted> {
        const OP: &str = ops::TASK_START;
        let build = |frame: Frame<'_>, _| ops::task_start(frame, task);
        let ((started, beat), _) = self.ask(OP, id, request_id, true, build, answer::task_started).await?;
        self.beat(OP, id, true, beat).await;
        Ok(started)
    }

    /// Notes that a task ended, and how long it took by the store's clock; a second time answers the same.
    pub async fn task_finish(&self, id: &str, task: &str, request_id: Option<&str>) -> Result<TaskFinished> {
        let told = in_steps(self.end_task(id, task, request_id)).await;
        self.noted(told)
    }

    async fn end_task(&self, id: &str, task: &str, request_id: Option<&str>) -> Result<TaskFinished> {
        const OP: &str = ops::TASK_FINISH;
        let untimed = |what: &str| Err(Error::new(OP, Code::RunTask, format!("task {task:?} {what}")));
        let mut given = None;
        loop {
            let build = |frame: Frame<'_>, _| ops::task_finish(frame, task, given);
            match self.ask(OP, id, request_id, true, build, answer::task_ended).await?.0 {
                TaskEnd::Finished(finished, beat) => {
                    self.beat(OP, id, true, beat).await;
                    return Ok(finished);
                }
                // Started by another program, which writes when in its own key.
                TaskEnd::Elsewhere(text) if given.is_none() => match from_document(&answer::text(&text)) {
                    Some(us) => given = Some(us),
                    None => return untimed("was started at a time nobody can read"),
                },
                TaskEnd::Elsewhere(_) | TaskEnd::Untimed => return untimed("was not started in this run"),
            }
        }
    }
}

/// Reads a moment as documents write it, with or without a zone.
pub(super) fn from_document(text: &str) -> Option<i64> {
    let text = text.trim().trim_matches('"');
    let us = match text.parse::<jiff::Timestamp>() {
        Ok(moment) => moment.as_microsecond(),
        Err(_) => Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok()?.as_microsecond(),
    };
    (0..1 << 53).contains(&us).then_some(us)
}
