//! A completion's way from step to step, each under the fence of its owner.

use std::time::Duration;

use super::Ledger;
use super::connection::{Arg, Session};
use super::facts::{Event, Fence, Moved, Step, Upload};
use super::outbox;
use super::rows::after;
use crate::{Error, Result, Trouble};

/// The code of an error: the row in `nodes` that an upload is for was removed.
pub const NODE_GONE: &str = "node_gone";

/// The last time: an upload that failed afterwards may have been given another object.
const PROVED_AT: &str = "SELECT at_ms FROM quaymaster_upload_events
    WHERE upload_id = $1 AND what = 'proved' ORDER BY n DESC LIMIT 1";

/// Where a repeated call finds itself.
enum Place {
    Here(Box<Upload>),
    Answer(Moved),
}

impl Session<'_> {
    /// The upload, if it stands at `from` under this fence.
    async fn stand(&mut self, fence: &Fence, from: Step, to: Step) -> Result<Place> {
        let Some(was) = self.lock(&fence.upload_id).await? else { return Ok(Place::Answer(Moved::Unknown)) };
        let was = Box::new(was);
        Ok(if was.fence != fence.number {
            Place::Answer(Moved::Lost(was))
        } else if was.step == from {
            Place::Here(was)
        } else if was.step == to {
            // The answer to the same call was lost.
            Place::Answer(Moved::Moved(was))
        } else {
            Place::Answer(Moved::Lost(was))
        })
    }
}

impl Ledger {
    /// A look at the object showed this ETag and size, and the upload's token.
    ///
    /// A size other than the one the client announced is the caller's to judge; the true one is recorded.
    pub async fn proved(&self, fence: &Fence, etag: &str, size: u64) -> Result<Moved> {
        self.database
            .bounded("ledger.proved", async {
                let mut session = self.database.begin().await?;
                let was = match session.stand(fence, Step::Completing, Step::Proved).await? {
                    Place::Here(was) => was,
                    Place::Answer(answer) => return session.roll_back().await.map(|()| answer),
                };
                let now = Upload {
                    step: Step::Proved,
                    final_etag: Some(etag.to_owned()),
                    final_size: Some(size),
                    error: None,
                    updated_ms: session.now_ms().await?,
                    ..(*was).clone()
                };
                session.move_on(&was, now, "proved", &format!("{size} bytes, {etag}")).await
            })
            .await
    }

    /// The `nodes` row becomes ACTIVE and the event enters the outbox, both or none.
    ///
    /// A node that another program removed is [`Trouble::Never`] with the code [`NODE_GONE`], and nothing is changed.
    pub async fn recorded(&self, fence: &Fence, topic: &str) -> Result<Moved> {
        self.database
            .bounded("ledger.recorded", async {
                let mut session = self.database.begin().await?;
                let was = match session.stand(fence, Step::Proved, Step::Recorded).await? {
                    Place::Here(was) => was,
                    Place::Answer(answer) => return session.roll_back().await.map(|()| answer),
                };
                let now =
                    Upload { step: Step::Recorded, updated_ms: session.now_ms().await?, ..(*was).clone() };
                if !session.activate_node(&now).await? {
                    session.roll_back().await?;
                    let detail = format!("the row {} of nodes is gone", was.node_id);
                    return Err(Error::new("ledger", Trouble::Never, detail).saying(NODE_GONE));
                }
                session.put_event(&now, topic).await?;
                session.move_on(&was, now, "recorded", topic).await
            })
            .await
    }

    /// When the object of an upload was proved, in milliseconds since the epoch: what follows does not change it, and
    /// nothing of the object either.
    pub async fn proved_at(&self, upload_id: &str) -> Result<Option<i64>> {
        self.database
            .bounded("ledger.proved_at", async {
                let mut session = self.database.session().await?;
                let row = session.one(PROVED_AT, &[Arg::Text(upload_id)]).await?;
                session.done();
                Ok(row.and_then(|row| row[0].maybe_int()))
            })
            .await
    }

    /// The event of an upload, once it is recorded.
    pub async fn event_of(&self, upload_id: &str) -> Result<Option<Event>> {
        self.database
            .bounded("ledger.event_of", async {
                let mut session = self.database.session().await?;
                let row = session.one(outbox::OF, &[Arg::Text(upload_id)]).await?;
                session.done();
                Ok(row.as_ref().map(outbox::event))
            })
            .await
    }

    /// The event was told.
    pub async fn announced(&self, fence: &Fence) -> Result<Moved> {
        self.database
            .bounded("ledger.announced", async {
                let mut session = self.database.begin().await?;
                let was = match session.stand(fence, Step::Recorded, Step::Announced).await? {
                    Place::Here(was) => was,
                    Place::Answer(answer) => return session.roll_back().await.map(|()| answer),
                };
                // Whatever it waited for is over, and nothing of it is shown again.
                let now = Upload {
                    step: Step::Announced,
                    error: None,
                    updated_ms: session.now_ms().await?,
                    ..(*was).clone()
                };
                session.mark_published(&now).await?;
                session.move_on(&was, now, "announced", "").await
            })
            .await
    }

    /// Everything else is cleaned up; kept this much longer for questions.
    pub async fn finished(&self, fence: &Fence, keep: Duration) -> Result<Moved> {
        self.database
            .bounded("ledger.finished", async {
                let mut session = self.database.begin().await?;
                let was = match session.stand(fence, Step::Announced, Step::Done).await? {
                    Place::Here(was) => was,
                    Place::Answer(answer) => return session.roll_back().await.map(|()| answer),
                };
                let now_ms = session.now_ms().await?;
                let now = Upload {
                    step: Step::Done,
                    lease_ms: now_ms,
                    due_ms: after(now_ms, keep),
                    error: None,
                    updated_ms: now_ms,
                    ..(*was).clone()
                };
                session.move_on(&was, now, "done", "").await
            })
            .await
    }
}
