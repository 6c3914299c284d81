//! Subscriptions: they outlive the owner they were made with, in this process or another.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::keeper::{Backend, Keeper, Phase, closed};
use super::link::{Link, Miss};
use super::owner::failed;
use super::wire::{Answer, Request};
use crate::{Code, Error, Message, Repeat, Result};

/// Messages a subscriber may leave unread before it misses some.
const UNREAD: usize = 1024;

/// Messages on `channel` from now on, whoever owns the data meanwhile.
pub(super) async fn listen(keeper: &Arc<Keeper>, channel: Bytes) -> Result<BoxStream<'static, Message>> {
    let op = "store.subscribe";
    let limit = keeper.options.deadline;
    let deadline = Instant::now() + limit;
    let (messages, unread) = mpsc::channel(UNREAD);
    let (link, id) = loop {
        let link = match keeper.backend(op, deadline).await? {
            Backend::Owner(owner) => {
                owner.check().map_err(|error| error.during(op))?;
                let own = owner.subscribe(&channel).take_until(Box::pin(failed(owner.failure())));
                let next = again(Arc::downgrade(keeper), channel);
                return Ok(Box::pin(own.chain(stream::once(next).flatten())));
            }
            Backend::Link(link) => link,
        };
        match subscribe(&link, &channel, &messages, deadline).await {
            Ok(id) => break (link, id),
            Err(Refusal::Missed(miss)) => keeper.again(op, miss, Repeat::Safe).await?,
            Err(Refusal::Refused(code, detail)) => return Err(Error::new(op, code, detail)),
        }
    };
    let watching = Arc::downgrade(keeper);
    let phases = keeper.phases();
    tokio::spawn(async move {
        let (mut link, mut id) = (link, id);
        loop {
            tokio::select! {
                () = link.ended() => {}
                () = messages.closed() => return link.unsubscribe(id),
            }
            drop(link);
            let resumed = tokio::select! {
                resumed = resume(&watching, phases.clone(), &channel, &messages, limit) => resumed,
                () = messages.closed() => None,
            };
            match resumed {
                Some(resumed) => (link, id) = resumed,
                None => return,
            }
        }
    });
    let next =
        |mut unread: mpsc::Receiver<Message>| async { unread.recv().await.map(|message| (message, unread)) };
    Ok(Box::pin(stream::unfold(unread, next)))
}

/// The same subscription with the next owner, whoever that is.
fn again(keeper: Weak<Keeper>, channel: Bytes) -> BoxFuture<'static, BoxStream<'static, Message>> {
    Box::pin(async move {
        loop {
            let Some(keeper) = keeper.upgrade() else { return stream::empty().boxed() };
            let mut phases = keeper.phases();
            if let Ok(messages) = listen(&keeper, channel.clone()).await {
                // Nobody knows how many were published while there was no owner.
                return stream::once(std::future::ready(Message::Missed(0))).chain(messages).boxed();
            }
            drop(keeper);
            if matches!(*phases.borrow(), Phase::Closed) || phases.changed().await.is_err() {
                return stream::empty().boxed();
            }
        }
    })
}

enum Refusal {
    Missed(Miss),
    Refused(Code, String),
}

async fn subscribe(
    link: &Arc<Link>,
    channel: &Bytes,
    messages: &mpsc::Sender<Message>,
    deadline: Instant,
) -> Result<u64, Refusal> {
    let request = Request::Subscribe { channel: channel.clone() };
    match link.subscribe(&request, messages.clone(), deadline).await {
        Ok((id, Answer::Done)) => Ok(id),
        Ok((_, Answer::Failed(failure))) => Err(Refusal::Refused(failure.code, failure.detail)),
        Ok(_) => Err(Refusal::Refused(Code::StoreProtocol, "not an answer to a subscription".to_owned())),
        Err(miss) => Err(Refusal::Missed(miss)),
    }
}

/// Subscribes again wherever the data is now; `None` when the subscription ends for good.
async fn resume(
    keeper: &Weak<Keeper>,
    mut phases: watch::Receiver<Phase>,
    channel: &Bytes,
    messages: &mpsc::Sender<Message>,
    limit: Duration,
) -> Option<(Arc<Link>, u64)> {
    loop {
        let phase = phases.borrow_and_update().clone();
        match phase {
            Phase::Closed => return None,
            Phase::Owner => {
                let Some(owner) = keeper.upgrade()?.owner() else {
                    // It failed this moment; the phase says so next.
                    phases.changed().await.ok()?;
                    continue;
                };
                let (mut own, failure) = (owner.subscribe(channel), owner.failure());
                drop(owner);
                let mut failure = std::pin::pin!(failed(failure));
                // Nobody knows how many were published while there was no owner.
                messages.send(Message::Missed(0)).await.ok()?;
                loop {
                    tokio::select! {
                        message = own.next() => messages.send(message?).await.ok()?,
                        () = closed(&mut phases) => return None,
                        () = &mut failure => break,
                    }
                }
                phases.wait_for(|phase| !matches!(phase, Phase::Owner)).await.ok()?;
                continue;
            }
            Phase::Attached(link) if !link.is_ended() => {
                if let Ok(id) = subscribe(&link, channel, messages, Instant::now() + limit).await {
                    messages.send(Message::Missed(0)).await.ok()?;
                    return Some((link, id));
                }
                if !link.is_ended() {
                    // Refused or too slow for now; the phase will not change for that.
                    tokio::time::sleep(limit / 10).await;
                    continue;
                }
            }
            Phase::Attached(_) | Phase::Between | Phase::Failed(..) => {}
        }
        phases.changed().await.ok()?;
    }
}
