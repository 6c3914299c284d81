//! Does what was decided, one thing after the other, for as long as the upload is ours.

use std::time::Duration;

use quaymaster::upload::Moved as Shown;

use super::decide::{Asked, Begun, Did, Known, Next, Row, Seen, decide};
use crate::effect::Effect;
use crate::ingest::{about, multipart_of};
use crate::ledger::{Claim, Event, Fence, Moved, NODE_GONE, Part, Step, Upload};
use crate::objects::{Completed, Head};
use crate::uploads::Uploads;
use crate::{Error, Result, Trouble, names};

/// How far somebody came who worked on an upload's end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Ran {
    /// Nothing is left to do: done, expired, aborted.
    Ended(Step),
    /// It has FAILED, for this reason.
    Failed(String),
    /// Not now: somebody comes back to it.
    LetGo(String),
    /// Parts are missing.
    NotYet,
    /// Somebody else has it.
    Taken,
    /// It stands where there is nothing to do.
    Elsewhere(Step),
    /// There is no such upload.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Complete,
    Expire,
    Abort,
}

/// What an owner carries along beside what it knows.
struct Errand {
    fence: Fence,
    upload: Upload,
    parts: Option<Vec<Part>>,
    head: Option<Head>,
    /// The ETag of the object as its store told it when it was asked for it.
    told: Option<String>,
    reason: String,
}

impl Errand {
    /// Whether this object is the upload's: it has its token. One that another program began has none, and is known by
    /// its size and the ETag that its parts make, or that the store told this owner when it was asked for the object.
    fn is_ours(&self, head: &Head, made: Option<&str>, size: u64) -> bool {
        if !self.upload.is_adopted() {
            return head.token.as_deref() == Some(&self.upload.token);
        }
        let known = head.etag.is_some() && (head.etag.as_deref() == made || head.etag == self.told);
        // Of no bytes there is one object only.
        head.size == size && (known || size == 0)
    }

    /// Nobody could look at the object; behind what its store said when it was asked, if it was.
    fn hide(&mut self, error: &Error) {
        let hidden = format!("the object cannot be looked at: {error}");
        self.reason = if self.reason.is_empty() { hidden } else { format!("{}; {hidden}", self.reason) };
        self.head = None;
    }
}

impl Uploads {
    /// Completes an upload whose parts are all recorded, from wherever it stands.
    pub async fn complete(&self, id: &str) -> Result<Ran> {
        Box::pin(self.run(id, Aim::Complete)).await
    }

    /// Ends an upload that is past its deadline, unless its object is there.
    pub async fn expire(&self, id: &str) -> Result<Ran> {
        Box::pin(self.run(id, Aim::Expire)).await
    }

    /// Calls an upload off, unless its object is there.
    pub async fn abort(&self, id: &str) -> Result<Ran> {
        Box::pin(self.run(id, Aim::Abort)).await
    }

    async fn run(&self, id: &str, aim: Aim) -> Result<Ran> {
        let (ledger, lease) = (&self.inner.ledger, self.inner.options.lease);
        let given_back = || Ok(Ran::LetGo("given back".to_owned()));
        if self.inner.owned.is_closed() {
            return given_back();
        }
        let known = match aim {
            Aim::Abort => self.ours_by_now(id).await?,
            Aim::Complete | Aim::Expire => self.of_ours(id).await?,
        };
        if known.is_none() {
            return Ok(Ran::Unknown);
        }
        let owner = names::unique("upload.complete")?;
        let claim = match aim {
            Aim::Complete => Effect::CompleteClaim.of(ledger.begin_completion(id, &owner, lease)).await?,
            Aim::Expire => Effect::EndClaim.of(ledger.expire(id, &owner, lease)).await?,
            Aim::Abort => Effect::EndClaim.of(ledger.abort(id, &owner, lease)).await?,
        };
        let (fence, upload) = match claim {
            Claim::Ours(fence, upload) => (fence, *upload),
            Claim::NotYet { .. } => return Ok(Ran::NotYet),
            Claim::Taken { .. } => return Ok(Ran::Taken),
            Claim::Elsewhere(upload) => return Ok(Ran::Elsewhere(upload.step)),
            Claim::Unknown => return Ok(Ran::Unknown),
        };
        let errand = Errand {
            fence: fence.clone(),
            upload,
            parts: None,
            head: None,
            told: None,
            reason: String::new(),
        };
        let Some(mine) = self.inner.owned.begin(&fence) else {
            self.give_completion_back(&fence).await;
            return given_back();
        };
        tokio::select! {
            // The ledger says by now whose it is.
            ran = self.drive(errand) => ran.map_err(Error::after_a_change),
            () = self.until_lost(&fence) => Ok(Ran::Taken),
            () = mine.given_back() => given_back(),
        }
    }

    /// Renews a lease until it is somebody else's.
    async fn until_lost(&self, fence: &Fence) {
        let lease = self.inner.options.lease;
        loop {
            tokio::time::sleep(lease / 3).await;
            match self.inner.ledger.renew(fence, lease).await {
                Ok(Moved::Moved(_)) => {}
                Ok(Moved::Lost(_) | Moved::Unknown) => return,
                Err(error) => {
                    tracing::warn!(upload_id = fence.upload_id(), %error, "a lease was not renewed");
                }
            }
        }
    }

    async fn drive(&self, mut errand: Errand) -> Result<Ran> {
        // The first owner's fence is 1: nobody can have asked before.
        let first = errand.fence.number() == 1 && errand.upload.step == Step::Completing;
        let begun = if first { Begun::Now } else { Begun::Before };
        let late = errand.upload.deadline_ms <= errand.upload.updated_ms;
        let mut known = Known::on_taking(errand.upload.step, begun, late);
        if known.step == Step::Completing {
            Effect::CompleteBegin.of(self.show_completing(&errand.upload)).await;
        }
        loop {
            let next = decide(&known);
            tracing::debug!(upload_id = errand.fence.upload_id(), ?next, "next");
            let done = match next {
                Next::Fail(flaw) => {
                    let reason = flaw.reason(&errand.reason);
                    return self.failed(&errand, &reason).await;
                }
                Next::Wait => return self.let_go(&errand, None).await,
                Next::Stop => {
                    let step = known.step;
                    return Ok(if step.is_over() { Ran::Ended(step) } else { Ran::Elsewhere(step) });
                }
                next => self.take(&mut errand, known, next).await,
            };
            known = match done {
                Ok(Some(known)) => known,
                Ok(None) => return Ok(Ran::Taken),
                Err(error) => return self.let_go(&errand, Some(error)).await,
            };
        }
    }

    /// Does one thing; what is known then, or nothing when it is not ours any more.
    async fn take(&self, errand: &mut Errand, known: Known, next: Next) -> Result<Option<Known>> {
        let ledger = &self.inner.ledger;
        let fence = errand.fence.clone();
        let keep = self.inner.store.spec().keep_after_done;
        let moved = match next {
            Next::Look => {
                let seen = self.look(errand).await?;
                let row = if known.step.is_ending() && seen == Seen::Ours {
                    self.row_of(&errand.upload).await?
                } else {
                    known.row
                };
                return Ok(Some(Known { seen, row, ..known }));
            }
            Next::Ask => {
                let asked = self.ask(errand).await?;
                return Ok(Some(known.after_asking(asked)));
            }
            Next::Tell => {
                let Some(event) = self.event_of(&fence).await? else { return Ok(None) };
                Effect::CompleteTell.of(self.inner.announcer.tell(&event)).await?;
                return Ok(Some(Known { told: Did::Done, ..known }));
            }
            Next::Show if known.step == Step::Announced => {
                Effect::CompleteShow.of(self.show_completed(&errand.upload)).await?;
                return Ok(Some(Known { shown: Did::Done, ..known }));
            }
            Next::Show => {
                Effect::EndShow.of(self.show_ended(&errand.upload)).await?;
                return Ok(Some(Known { shown: Did::Done, ..known }));
            }
            Next::Cut => {
                Effect::EndCut.of(self.cut(&errand.upload)).await?;
                return Ok(Some(known.after_cutting()));
            }
            Next::Prove => {
                let (etag, size) =
                    errand.head.as_ref().map_or((None, 0), |head| (head.etag.clone(), head.size));
                let proved = ledger.proved(&fence, etag.as_deref().unwrap_or_default(), size);
                Effect::CompleteProve.of(proved).await?
            }
            Next::Record => {
                match Effect::CompleteRecord.of(ledger.recorded(&fence, self.inner.announcer.topic())).await {
                    // One that was replaced in the very moment is there again, and the next try finds it.
                    Err(error)
                        if error.said() == Some(NODE_GONE)
                            && self.row_of(&errand.upload).await? == Row::Gone =>
                    {
                        errand.reason = format!(
                            "{}; the object is at {}. Put the row back and resume, or call the upload off",
                            error.detail(),
                            errand.upload.object_key
                        );
                        return Ok(Some(Known { row: Row::Gone, ..known }));
                    }
                    moved => moved?,
                }
            }
            Next::Told => Effect::CompleteTold.of(ledger.announced(&fence)).await?,
            Next::Finish => Effect::CompleteFinish.of(ledger.finished(&fence, keep)).await?,
            Next::Rescue => Effect::EndRescue.of(ledger.rescue(&fence)).await?,
            Next::End => {
                if known.seen == Seen::Ours {
                    let (upload_id, object) = (fence.upload_id(), &*errand.upload.object_key);
                    tracing::warn!(
                        upload_id,
                        object,
                        "an upload ended whose object is there and whose row is gone"
                    );
                }
                Effect::EndEnded.of(ledger.ended(&fence, keep)).await?
            }
            Next::Fail(_) | Next::Wait | Next::Stop => return Ok(None),
        };
        let moved = moved.ours();
        if let Some(done) = moved.as_ref().filter(|upload| upload.step == Step::Done) {
            self.inner.figures.completed.observe(self.took(done).await);
        }
        Ok(moved.map(|upload| {
            let known = known.at(upload.step);
            errand.upload = upload;
            known
        }))
    }

    /// How long an upload took from its first chunk on, by the store's clock. The store is the one who saw that chunk:
    /// where it has forgotten, from the upload's creation on, by the database's.
    async fn took(&self, upload: &Upload) -> Duration {
        let told = self.inner.store.status(&upload.upload_id).await.ok().flatten();
        let told = told.and_then(|state| Some(state.updated_ms - state.first_chunk_ms?));
        let took = told.unwrap_or_else(|| upload.updated_ms.saturating_sub(upload.created_ms));
        Duration::from_millis(u64::try_from(took).unwrap_or(0))
    }

    async fn parts_of<'e>(&self, errand: &'e mut Errand) -> Result<&'e [Part]> {
        if errand.parts.is_none() {
            errand.parts = Some(self.inner.ledger.parts(&errand.upload.upload_id).await?);
        }
        Ok(errand.parts.as_deref().unwrap_or_default())
    }

    async fn look(&self, errand: &mut Errand) -> Result<Seen> {
        let parts = self.parts_of(errand).await?;
        let (count, size) = (parts.len(), parts.iter().map(|part| part.size).sum::<u64>());
        let made = self.inner.objects.etag_of(parts);
        let head = match self.inner.objects.head(&errand.upload.object_key).await {
            Ok(head) => head,
            Err(error) => {
                errand.hide(&error);
                return Ok(Seen::Hidden);
            }
        };
        let ours = head.filter(|head| errand.is_ours(head, made.as_deref(), size));
        let whole = errand.upload.total_chunks.is_some_and(|total| total as usize == count);
        let seen = match &ours {
            None => Seen::Absent,
            Some(head) if head.size == size && whole => Seen::Ours,
            Some(head) => {
                errand.reason = format!("the object has {} bytes and its {count} parts {size}", head.size);
                Seen::Misfit
            }
        };
        errand.head = ours;
        Ok(seen)
    }

    async fn row_of(&self, upload: &Upload) -> Result<Row> {
        let node = self.inner.ledger.node(&upload.node_id).await?;
        Ok(if node.is_some() { Row::There } else { Row::Gone })
    }

    async fn ask(&self, errand: &mut Errand) -> Result<Asked> {
        let parts = self.parts_of(errand).await?.to_vec();
        let size: u64 = errand.parts.iter().flatten().map(|part| part.size).sum();
        let upload = &errand.upload;
        if let Some(expected) = upload.expected_size.filter(|expected| *expected != size) {
            errand.reason = format!("the parts have {size} bytes; {expected} were announced");
            return Ok(Asked::Refused);
        }
        let key = &upload.object_key;
        let asked = if size == 0 {
            Effect::CompleteAsk
                .of(self.inner.objects.put_empty(key, &about(upload)))
                .await
                .map(|()| Completed::Done { etag: None })
        } else {
            let Some(multipart) = multipart_of(upload) else { return Ok(Asked::Gone) };
            Effect::CompleteAsk.of(self.inner.objects.complete(key, &multipart, &parts)).await
        };
        let gone = |error: &Error| matches!(error.said(), Some("NoSuchUpload" | "404"));
        let (asked, reason) = match asked {
            Ok(Completed::Done { etag }) => {
                errand.told = etag;
                (Asked::Done, "the object store says that it is done, and does not show the object".into())
            }
            Ok(Completed::Unknown(error)) | Err(error) if gone(&error) => (Asked::Gone, error.to_string()),
            Ok(Completed::Unknown(error)) => (Asked::Unsure, error.to_string()),
            Err(error) if error.trouble() == Trouble::Never => {
                let of_parts = matches!(
                    error.said(),
                    Some("InvalidPart" | "InvalidRequest" | "InvalidArgument" | "EntityTooSmall" | "400")
                );
                let hint = (of_parts && self.inner.objects.repeats()).then(|| uneven(&parts)).flatten();
                (Asked::Refused, format!("{error}{}", hint.unwrap_or_default()))
            }
            Err(error) => (Asked::Unsure, error.to_string()),
        };
        errand.reason = reason;
        Ok(asked)
    }

    /// The event that is to be told, put back if somebody removed it; `None` when the upload is not ours any more.
    async fn event_of(&self, fence: &Fence) -> Result<Option<Event>> {
        let (ledger, id) = (&self.inner.ledger, fence.upload_id());
        match ledger.event_of(id).await? {
            Some(event) => Ok(Some(event)),
            None => ledger.put_event_back(id, Some(fence), self.inner.announcer.topic()).await,
        }
    }

    /// Aborts the multipart upload, and any that somebody began who died before the ledger knew.
    pub(super) async fn cut(&self, upload: &Upload) -> Result<()> {
        if let Some(multipart) = multipart_of(upload) {
            let _ = self.inner.objects.abort(&upload.object_key, &multipart).await?;
        }
        // Of another program's key there may be others.
        if upload.is_adopted() { Ok(()) } else { self.cut_strays(upload).await.map(drop) }
    }

    async fn failed(&self, errand: &Errand, reason: &str) -> Result<Ran> {
        let id = errand.fence.upload_id();
        let fail = self.inner.ledger.fail(id, Some(&errand.fence), reason);
        match Effect::CompleteFail.of(fail).await? {
            Moved::Moved(_) => {
                tracing::warn!(upload_id = id, reason, "an upload has FAILED");
                let shown = Effect::CompleteFailShown.of(self.inner.store.fail(id, reason)).await?;
                if shown == Shown::Unknown {
                    self.restore(id).await?;
                }
                Ok(Ran::Failed(reason.to_owned()))
            }
            Moved::Lost(_) => Ok(Ran::Taken),
            Moved::Unknown => Ok(Ran::Unknown),
        }
    }

    /// Somebody comes back to it, later the more often it was tried.
    async fn let_go(&self, errand: &Errand, error: Option<Error>) -> Result<Ran> {
        let why = error.map_or_else(|| errand.reason.clone(), |error| error.to_string());
        let attempt = u32::try_from(errand.fence.number()).unwrap_or(u32::MAX);
        let wait = self.inner.options.backoff.delay(attempt);
        tracing::warn!(upload_id = errand.fence.upload_id(), why, "an upload is let go of for a while");
        // For those who look or follow, while it is ours: one that ends instead shows how it ended.
        let id = errand.fence.upload_id();
        if let Err(error) = self.inner.store.note(id, &why).await {
            tracing::debug!(upload_id = id, %error, "why a completion waits is not shown");
        }
        // If the ledger does not hear of it, the lease ends.
        let release = self.inner.ledger.release(&errand.fence, wait, &why);
        let _ = Effect::CompleteLetGo.of(release).await?;
        Ok(Ran::LetGo(why))
    }
}

/// What is said beside a refusal of parts that are not all of one size: some stores want that, and say so in words of
/// their own, or not at all.
fn uneven(parts: &[Part]) -> Option<String> {
    let (first, rest) = parts.split_first()?;
    let last = rest.last()?.number;
    let odd =
        rest.iter().find(|part| part.size > first.size || (part.size < first.size && part.number < last))?;
    Some(format!(
        "; part {} has {} bytes and part {} {}, and some object stores want one size for all but the last, which may be smaller: \
         call it off and send the file again in chunks of one size",
        first.number, first.size, odd.number, odd.size
    ))
}
