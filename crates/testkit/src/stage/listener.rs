//! Messages of one channel, as another program hears them.
#![expect(clippy::unwrap_used, reason = "a store that does not answer fails the test")]

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use futures_util::StreamExt as _;
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Engine as _, Message};

/// Longer than any message takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Messages published on a channel since the listener was made.
#[derive(Debug)]
pub struct Listener(Receiver<String>);

impl Listener {
    /// The next message; panics when none comes.
    pub fn next(&self) -> String {
        self.0.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no message within {PATIENCE:?}"))
    }

    /// `SUBSCRIBE channel`.
    pub(super) fn on_redis(url: &str, channel_name: &str) -> Self {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let (heard, messages) = channel();
        let (ready, subscribed) = channel();
        let name = channel_name.to_owned();
        std::thread::spawn(move || {
            let mut subscription = connection.as_pubsub();
            subscription.subscribe(&name).unwrap();
            ready.send(()).unwrap();
            while let Ok(message) = subscription.get_message() {
                if heard.send(message.get_payload().unwrap()).is_err() {
                    break;
                }
            }
        });
        subscribed.recv_timeout(PATIENCE).unwrap();
        Self(messages)
    }

    /// The same in the folder of an embedded store that another process serves.
    pub(super) fn on_embedded(folder: PathBuf, channel_name: &str) -> Self {
        let (heard, messages) = channel();
        let (ready, subscribed) = channel();
        let name = channel_name.to_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(hear(folder, &name, &ready, &heard));
        });
        subscribed.recv_timeout(PATIENCE).unwrap();
        Self(messages)
    }
}

async fn hear(folder: PathBuf, channel: &str, ready: &Sender<()>, heard: &Sender<String>) {
    let store = EmbeddedStore::open(&folder, EmbeddedOptions::default()).await.unwrap();
    let mut messages = store.subscribe(channel.as_bytes()).await.unwrap();
    ready.send(()).unwrap();
    while let Some(message) = messages.next().await {
        let Message::Data(bytes) = message else { continue };
        if heard.send(String::from_utf8_lossy(&bytes).into_owned()).is_err() {
            break;
        }
    }
}
