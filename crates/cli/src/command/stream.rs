//! `event stream NAME`: what is published from now on, a line each, until told to stop.

use std::io::Write as _;
use std::process::ExitCode;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt as _;
use quaymaster::event::Message;
use quaymaster::schema::Kind;
use quaymaster::{Code, Error};
use quaymaster_server::command;
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};

use super::serve::signalled;
use crate::args::Global;
use crate::calls::Listen;
use crate::failure::NothingRan;
use crate::remote::{Client, excerpt};
use crate::setup::{self, Intent};
use crate::sse::{Event, Events, TooLong};

const OP: &str = "event.stream";

/// The most bytes of one message.
const EVENT_MAX: usize = 64 << 20;

pub(crate) async fn run(listen: Listen, global: &Global) -> anyhow::Result<ExitCode> {
    if let Some(client) = listen.remote.client()? {
        return follow(&client, &listen).await;
    }
    let Listen { name, key, count, place, .. } = listen;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (quaymaster, _) = setup::open_for_call(global, place, Intent::Look, Kind::Event, Some(&name)).await?;
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

/// The same from a server, which sends each message as the data of an event.
async fn follow(client: &Client, listen: &Listen) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let sent = command::stream(&listen.name, &listen.key).map_err(NothingRan::from)?;
    let response = tokio::select! {
        response = client.listen(OP, &sent) => response.map_err(NothingRan::from)?,
        _ = signalled(&mut terminate, &mut interrupt) => return Ok(ExitCode::SUCCESS),
    };
    tracing::info!(event = listen.name, "listening");
    let mut pieces = client.pieces(OP, response);
    let (mut events, mut heard) = (Events::new(EVENT_MAX), 0);
    loop {
        while let Some(event) = events.next().map_err(too_long)? {
            let message = message(event);
            let mut out = std::io::stdout().lock();
            // Whoever read the lines may have gone (`| head`), and that ends the listening.
            if writeln!(out, "{}", line(&message)).and_then(|()| out.flush()).is_err() {
                return Ok(ExitCode::SUCCESS);
            }
            heard += u64::from(matches!(message, Message::Data(_)));
            if listen.count.is_some_and(|count| heard >= count) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let piece = tokio::select! {
            piece = pieces.next() => piece,
            _ = signalled(&mut terminate, &mut interrupt) => return Ok(ExitCode::SUCCESS),
        };
        match piece {
            Some(piece) => events.push(&piece.map_err(NothingRan::from)?),
            None => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// What an event tells. A message that was published has an id, whatever is in it.
fn message(event: Event) -> Message {
    // Earlier servers wrote a comment, or nothing but that it has no id.
    let named = event.name.as_deref() == Some("missed") || event.comment.as_deref() == Some("missed");
    let missed = named || !event.has_id;
    let count = || serde_json::from_slice::<Missed>(&event.data).ok().filter(|_| missed);
    match (count(), event.name.as_deref()) {
        (Some(Missed { missed }), _) => Message::Missed(missed),
        (None, Some("binary")) => match BASE64_STANDARD.decode(&event.data) {
            Ok(data) => Message::Data(data.into()),
            Err(_) => Message::Data(event.data.into()),
        },
        (None, _) => Message::Data(event.data.into()),
    }
}

#[derive(Deserialize)]
struct Missed {
    missed: u64,
}

fn too_long(event: TooLong) -> NothingRan {
    let detail = format!("a message has more than {EVENT_MAX} bytes: {}", excerpt(&event.0));
    Error::new(OP, Code::ServerAnswer, detail).into()
}

/// A message on one line, the same from a store and from a server. JSON has line breaks only where spaces may be.
fn line(message: &Message) -> String {
    match message {
        Message::Missed(count) => format!("{{\"missed\":{count}}}"),
        Message::Data(data) => String::from_utf8_lossy(data).replace("\r\n", " ").replace(['\n', '\r'], " "),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(line(&Message::Data("{\n \"a\": 1\r\n}".into())), "{  \"a\": 1 }");
        assert_eq!(line(&Message::Missed(0)), "{\"missed\":0}");
    }

    #[test]
    fn a_published_message_that_looks_like_a_gap_is_a_message() {
        let read = |text: &str| {
            let mut events = Events::new(100);
            events.push(text.as_bytes());
            message(events.next().unwrap().unwrap())
        };
        let is_message = |text| matches!(read(text), Message::Data(_));
        assert!(is_message("id: o.7\ndata: {\"missed\":3}\n\n"), "somebody published it");
        assert!(!is_message("data: {\"missed\":3}\n\n"), "this reader was slow");
        assert!(!is_message(": missed\nid: o.9\ndata: {\"missed\":3}\n\n"), "the server itself was");
        assert!(!is_message("event: missed\nid: o.9\ndata: {\"missed\":3}\n\n"), "the same of today");
        let bytes = read("id: o.7\nevent: binary\ndata: /w==\n\n");
        assert!(matches!(bytes, Message::Data(data) if data[..] == [255]));
    }
}
