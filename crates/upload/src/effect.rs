//! Everything that changes something outside the process, by name; and where a test can stop it, just before or just
//! after.
//!
//! With the cargo feature `failpoints`, `QUAYMASTER_FAIL=ship.part:after` ends the process there, as a crash would, the
//! first time it comes by; `ship.part:after:3` the third time. Without the feature nothing of this is compiled.

use futures_util::future::BoxFuture;

macro_rules! effects {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// An effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Effect {
            $($(#[$doc])* $variant,)*
        }

        impl Effect {
            /// Every one.
            pub const ALL: &'static [Effect] = &[$(Effect::$variant),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Effect::$variant => $name),* }
            }
        }
    };
}

effects! {
    /// The upload and its row enter the ledger.
    CreateRow "create.row",
    /// The object store begins a multipart upload.
    CreateMultipart "create.multipart",
    /// The ledger learns its id.
    CreateOpened "create.opened",
    /// The store shows the upload.
    CreateShown "create.shown",
    /// Bytes in flight are reserved.
    IngestAdmit "ingest.admit",
    /// A piece of a chunk is staged.
    IngestStage "ingest.stage",
    /// What was staged is made durable where it lies.
    IngestSync "ingest.sync",
    /// The chunk is taken.
    IngestAccept "ingest.accept",
    /// Spooled bytes get the name under which they stay.
    IngestKeep "ingest.keep",
    /// The ledger learns how many chunks there are.
    IngestTotal "ingest.total",
    /// A chunk is claimed.
    ShipClaim "ship.claim",
    /// A part is sent.
    ShipPart "ship.part",
    /// The ledger records it.
    ShipRecord "ship.record",
    /// Spooled bytes are removed.
    ShipRemove "ship.remove",
    /// The store shows the chunk as durable and drops its bytes.
    ShipShown "ship.shown",
    /// The ledger learns how many chunks there are from whoever shipped the last one.
    ShipTotal "ship.total",
    /// A chunk goes back to be tried later.
    ShipAgain "ship.again",
    /// A chunk whose bytes are gone is asked for again.
    ShipMissing "ship.missing",
    /// An upload is given up in the ledger.
    ShipFail "ship.fail",
    /// And in the store.
    ShipFailShown "ship.fail_shown",
    /// An upload that was given up goes on, in the ledger.
    ResumeReopen "resume.reopen",
    /// And in the store.
    ResumeShown "resume.shown",
    /// A completion is taken.
    CompleteClaim "complete.claim",
    /// The store shows COMPLETING.
    CompleteBegin "complete.begin",
    /// The object store puts the parts together.
    CompleteAsk "complete.ask",
    /// The ledger notes that the object is there.
    CompleteProve "complete.prove",
    /// Row and event, in one transaction.
    CompleteRecord "complete.record",
    /// The event is told.
    CompleteTell "complete.tell",
    /// The ledger notes that it was.
    CompleteTold "complete.told",
    /// The store shows the end, and what is left of bytes goes.
    CompleteShow "complete.show",
    /// The ledger notes that it is done.
    CompleteFinish "complete.finish",
    /// A completion that cannot go on now is let go of.
    CompleteLetGo "complete.let_go",
    /// One that cannot go on is given up in the ledger.
    CompleteFail "complete.fail",
    /// And in the store.
    CompleteFailShown "complete.fail_shown",
    /// An end without an object is taken.
    EndClaim "end.claim",
    /// The multipart upload is aborted.
    EndCut "end.cut",
    /// The object is there after all: the end becomes a completion.
    EndRescue "end.rescue",
    /// The store shows the end.
    EndShow "end.show",
    /// The ledger notes the end.
    EndEnded "end.ended",
    /// What was kept long enough goes from the store.
    ForgetStore "forget.store",
    /// And from the ledger.
    ForgetRow "forget.row",
}

impl Effect {
    /// Does it. What has begun is done whole, however long its caller lives, only as far as the other side does so.
    pub(crate) fn of<'a, T>(self, work: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
        Box::pin(async move {
            self.pass("before");
            let done = work.await;
            self.pass("after");
            done
        })
    }

    #[cfg(not(feature = "failpoints"))]
    #[expect(clippy::unused_self, reason = "the other build uses it")]
    fn pass(self, _: &'static str) {}

    #[cfg(feature = "failpoints")]
    fn pass(self, side: &'static str) {
        use std::sync::OnceLock;
        use std::sync::atomic::{AtomicI64, Ordering};

        struct Stop {
            place: String,
            left: AtomicI64,
        }
        static STOP: OnceLock<Option<Stop>> = OnceLock::new();
        let stop = STOP.get_or_init(|| {
            let asked = std::env::var("QUAYMASTER_FAIL").ok()?;
            let mut words = asked.splitn(3, ':');
            let place = format!("{}:{}", words.next()?, words.next()?);
            let times = words.next().map_or(Some(1), |times| times.parse().ok())?;
            Some(Stop { place, left: AtomicI64::new(times) })
        });
        let Some(stop) = stop else { return };
        let here = stop.place.strip_prefix(self.name()).and_then(|rest| rest.strip_prefix(':')) == Some(side);
        if here && stop.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // No destructor runs and nothing is flushed: what kill -9 leaves.
            std::process::abort();
        }
    }
}
