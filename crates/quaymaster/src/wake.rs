//! Waiting for a hint on a channel. The hint only wakes; what is true is asked of the store again.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use quaymaster_store::{Engine, Message};
use tokio::time::{Instant, timeout_at};

use crate::Result;

/// What ended a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A message came.
    Hint(Bytes),
    /// Messages may have been missed: ask again.
    Missed,
    /// Nothing came in time.
    Time,
}

/// A subscription to one channel, made before the question whose answer may be "wait".
pub(crate) struct Wake {
    messages: Option<BoxStream<'static, Message>>,
}

impl Wake {
    /// Listens from now on.
    pub(crate) async fn on(engine: &dyn Engine, channel: &[u8]) -> Result<Self> {
        Ok(Self { messages: Some(engine.subscribe(channel).await?) })
    }

    /// Waits for the next hint, at most `limit`.
    pub(crate) async fn wait(&mut self, limit: Duration) -> Woken {
        let until = Instant::now() + limit;
        let Some(messages) = &mut self.messages else {
            tokio::time::sleep_until(until).await;
            return Woken::Time;
        };
        match timeout_at(until, messages.next()).await {
            Ok(Some(Message::Data(data))) => Woken::Hint(data),
            Ok(Some(Message::Missed(_))) => Woken::Missed,
            // The subscription ended with its store; what is left of the wait is waited by time.
            Ok(None) => {
                self.messages = None;
                tokio::time::sleep_until(until).await;
                Woken::Time
            }
            Err(_) => Woken::Time,
        }
    }
}
