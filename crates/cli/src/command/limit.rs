//! `limit take|peek|refund|reset NAME`: straight on the store.

use std::process::ExitCode;

use quaymaster::limit::{self, Verdict};
use quaymaster_server::LimitAnswer;

use crate::args::{Charge, Global, LimitVerb, Subject};
use crate::failure::NothingRan;
use crate::output::{self, millis, table};
use crate::setup::{self, Intent};

/// Whether a refusal is the command's own "no".
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// `take`, `peek`: it asks whether a call may go ahead.
    May,
    /// `refund`, `reset`: it was done, whatever would be told now.
    Nothing,
}

pub(crate) async fn run(verb: LimitVerb, global: &Global) -> anyhow::Result<ExitCode> {
    let (subject, cost, request_id) = match &verb {
        LimitVerb::Take(Charge { subject, cost, request_id })
        | LimitVerb::Refund(Charge { subject, cost, request_id }) => (subject, *cost, request_id.clone()),
        LimitVerb::Peek(subject) => (subject, 1, None),
        LimitVerb::Reset(reset) => (&reset.subject, 1, reset.request_id.clone()),
    };
    for (at, (name, _)) in subject.key.iter().enumerate() {
        if subject.key[..at].iter().any(|(known, _)| known == name) {
            let detail = format!("--key gives {name:?} twice; each placeholder has one value");
            return Err(quaymaster::Error::new("limit", quaymaster::Code::RequestInvalid, detail).into());
        }
    }
    let intent = if matches!(verb, LimitVerb::Peek(_)) { Intent::Look } else { Intent::Change };
    let quaymaster = setup::open(global, subject.place.clone(), intent).await?;
    let answer = ask(&quaymaster, &verb, subject, cost, request_id.as_deref()).await;
    let closed = quaymaster.engine().close().await;
    let answer = match (answer, intent) {
        (Err(error), Intent::Look) => return Err(NothingRan::from(error).into()),
        (answer, _) => LimitAnswer::from(&answer?),
    };
    closed?;
    let text = if subject.json { serde_json::to_string(&answer)? } else { describe(&answer) };
    output::print(&text)?;
    let asks =
        if matches!(verb, LimitVerb::Take(_) | LimitVerb::Peek(_)) { Asks::May } else { Asks::Nothing };
    Ok(if asks == Asks::May && !answer.allowed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

async fn ask(
    quaymaster: &quaymaster::Quaymaster,
    verb: &LimitVerb,
    subject: &Subject,
    cost: u64,
    request_id: Option<&str>,
) -> quaymaster::Result<Verdict> {
    let limit = quaymaster.limit(&subject.name)?;
    let key: Vec<(&str, &str)> =
        subject.key.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let charge = limit::Charge { cost, request_id };
    match verb {
        LimitVerb::Take(_) => limit.take(&key, charge).await,
        LimitVerb::Peek(_) => limit.peek(&key).await,
        LimitVerb::Refund(_) => limit.refund(&key, charge).await,
        LimitVerb::Reset(_) => limit.reset(&key, request_id).await,
    }
}

fn describe(answer: &LimitAnswer) -> String {
    let mut rows = vec![
        ("allowed", if answer.allowed { "yes".to_owned() } else { "no".to_owned() }),
        ("used", format!("{} of {}", answer.used, answer.limit)),
        ("remaining", answer.remaining.to_string()),
        ("resets in", millis(answer.reset_after_ms)),
    ];
    if !answer.allowed {
        rows.push((
            "retry in",
            answer.retry_after_ms.map_or("never: the cost is over the limit".into(), millis),
        ));
    }
    table(&rows)
}
