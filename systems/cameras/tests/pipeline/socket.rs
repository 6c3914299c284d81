//! A reader of an event's WebSocket, by a client that is not ours.

use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_tungstenite::tungstenite::Message;

/// Keeps what it hears until asked.
pub(crate) struct Socket {
    heard: UnboundedReceiver<Value>,
}

impl Socket {
    /// Listens from now on.
    pub(crate) async fn connect(address: &str, path: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut socket, _) =
            tokio_tungstenite::client_async(format!("ws://{address}{path}"), stream).await.unwrap();
        let (out, heard) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Text(text) = message {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    assert!(
                        event.get("missed").is_none(),
                        "a reader that keeps up missed something: {event}"
                    );
                    if out.send(event).is_err() {
                        return;
                    }
                }
            }
        });
        Self { heard }
    }

    /// What came since the last time.
    pub(crate) fn heard(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Ok(event) = self.heard.try_recv() {
            events.push(event);
        }
        events
    }
}
