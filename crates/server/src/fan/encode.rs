//! A message as it goes over the wire.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use quaymaster::event::Message;
use tokio_tungstenite::tungstenite::{self, Utf8Bytes};

/// What stands in the place of messages that were missed.
pub(crate) fn missed(count: u64) -> String {
    format!("{{\"missed\":{count}}}")
}

/// A server-sent event: its id, its data line by line, an empty line.
///
/// The id is where the message stands in its channel as this process has seen it. JSON may have line breaks only where
/// spaces may be, so cutting it there changes nothing. What is no text comes in base64, as an event called `binary`.
pub(crate) fn sse(message: &Message, origin: &str, number: u64) -> Bytes {
    let mut out = String::new();
    if matches!(message, Message::Missed(_)) {
        // Nobody published this, so it is no message.
        out.push_str("event: missed\n");
    }
    let _ = writeln!(out, "id: {origin}.{number}");
    match message {
        Message::Missed(count) => {
            let _ = writeln!(out, "data: {}", missed(*count));
        }
        Message::Data(data) => match std::str::from_utf8(data) {
            Ok(text) => {
                out.reserve(text.len() + 16);
                for line in lines(text) {
                    out.push_str("data: ");
                    out.push_str(line);
                    out.push('\n');
                }
            }
            Err(_) => {
                let _ = writeln!(out, "event: binary\ndata: {}", STANDARD.encode(data));
            }
        },
    }
    out.push('\n');
    Bytes::from(out)
}

/// The lines of a text as a reader of server-sent events sees them: `\r\n`, `\n` and `\r` each end one.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// A WebSocket message: text, or binary for what is none.
pub(crate) fn frame(message: &Message) -> tungstenite::Message {
    match message {
        Message::Missed(count) => tungstenite::Message::Text(missed(*count).into()),
        Message::Data(data) => match Utf8Bytes::try_from(data.clone()) {
            Ok(text) => tungstenite::Message::Text(text),
            Err(_) => tungstenite::Message::Binary(data.clone()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: &'static [u8]) -> String {
        String::from_utf8_lossy(&sse(&Message::Data(Bytes::from_static(data)), "o", 7)).into_owned()
    }

    #[test]
    fn data_of_several_lines_is_one_event_and_nothing_in_it_can_end_it() {
        assert_eq!(event(b"{\"a\":1}"), "id: o.7\ndata: {\"a\":1}\n\n");
        assert_eq!(event(b"{\n \"a\":1\r\n}"), "id: o.7\ndata: {\ndata:  \"a\":1\ndata: }\n\n");
        assert_eq!(
            event(b"[1,\r\rid: x\n\n2]"),
            "id: o.7\ndata: [1,\ndata: \ndata: id: x\ndata: \ndata: 2]\n\n"
        );
        assert_eq!(event(b""), "id: o.7\ndata: \n\n");
        assert_eq!(event(b"\xff"), "id: o.7\nevent: binary\ndata: /w==\n\n");
        let told = sse(&Message::Missed(3), "o", 9);
        assert_eq!(&told[..], b"event: missed\nid: o.9\ndata: {\"missed\":3}\n\n");
    }

    #[test]
    fn text_goes_as_text_and_anything_else_as_it_is() {
        let frame = |data: &'static [u8]| frame(&Message::Data(Bytes::from_static(data)));
        assert_eq!(frame(b"{}"), tungstenite::Message::Text("{}".into()));
        assert_eq!(frame(b"\xff"), tungstenite::Message::Binary(Bytes::from_static(b"\xff")));
        assert_eq!(super::frame(&Message::Missed(0)), tungstenite::Message::Text("{\"missed\":0}".into()));
    }
}
