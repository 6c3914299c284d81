//! `event stream NAME`: what is published from now on, a line each, until told to stop.

use std::io::Write as _;
use std::process::ExitCode;

use futures_util::StreamExt as _;
use quaymaster::event::Message;
use tokio::signal::unix::{SignalKind, signal};

use super::serve::signalled;
use crate::args::Global;
use crate::calls::Listen;
use crate::failure::NothingRan;
use crate::setup::{self, Intent};

pub(crate) async fn run(listen: Listen, global: &Global) -> anyhow::Result<ExitCode> {
    let Listen { name, key, count, place } = listen;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let quaymaster = setup::open(global, place, Intent::Look).await?;
    let key: Vec<(&str, &str)> = key.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let event = quaymaster.event(&name).map_err(NothingRan::from)?;
    let mut messages = event.subscribe(&key).await.map_err(NothingRan::from)?;
    tracing::info!(event = name, "listening");
    let mut heard = 0;
    while count.is_none_or(|count| heard < count) {
        let message = tokio::select! {
            message = messages.next() => message,
            _ = signalled(&mut terminate, &mut interrupt) => break,
        };
        let Some(message) = message else { break };
        heard += u64::from(matches!(message, Message::Data(_)));
        let mut out = std::io::stdout().lock();
        // Whoever read the lines may have gone (`| head`), and that ends the listening.
        if writeln!(out, "{}", line(&message)).and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    quaymaster.engine().close().await?;
    Ok(ExitCode::SUCCESS)
}

/// A message on one line. JSON has line breaks only where spaces may be.
fn line(message: &Message) -> String {
    match message {
        Message::Missed(count) => format!("{{\"missed\":{count}}}"),
        Message::Data(data) => String::from_utf8_lossy(data).replace(['\n', '\r'], " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(line(&Message::Data("{\n \"a\": 1\r\n}".into())), "{  \"a\": 1  }");
        assert_eq!(line(&Message::Missed(0)), "{\"missed\":0}");
    }
}
