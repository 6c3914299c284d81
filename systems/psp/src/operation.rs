//! The five operations.

use axum::http::StatusCode;
use quaymaster::cache::{Loaded, Value};
use quaymaster::lock::{Acquire, Hold as Held};
use serde_json::json;

use crate::answer::{self, Answer, Failure, How, Reply};
use crate::app::App;
use crate::flow::{self, Operation, Ran};
use crate::hold::Point;
use crate::payments::{Done, Lease, NewPayment, Payment, Status, Written};
use crate::request::{Body as _, Check, Create, Execute, Update};

/// Whether a code can be paid. Reads only: run twice, it reads twice.
pub(crate) async fn check(app: &App, check: &Check) -> Result<Reply, Failure> {
    flow::claimed(app, &Checking { check, amount: check.amount.to_string() }).await
}

/// Makes a payment.
pub(crate) async fn create(app: &App, create: &Create) -> Result<Reply, Failure> {
    flow::guarded(app, create).await
}

/// Executes a payment: the money moves.
pub(crate) async fn execute(app: &App, execute: &Execute) -> Result<Reply, Failure> {
    // Before the guard: nobody uses up the quota of another one's payment.
    if own(app, &execute.psp_id, &execute.transaction_id).await?.is_none() {
        return Ok(missing());
    }
    let reply = flow::guarded(app, execute).await?;
    forget_status(app, &execute.transaction_id, &reply).await;
    Ok(reply)
}

/// Tells how a payment ended.
pub(crate) async fn update(app: &App, update: &Update) -> Result<Reply, Failure> {
    let Some(to) = Status::of(update.status).filter(|to| to.number() >= Status::Success.number()) else {
        let detail = "status: 50 (SUCCESS), 60 (FAILED) or 70 (REFUNDED)";
        return Ok(Reply::refused(StatusCode::BAD_REQUEST, "request.invalid", detail));
    };
    if own(app, &update.psp_id, &update.transaction_id).await?.is_none() {
        return Ok(missing());
    }
    let reply = flow::claimed(app, &Updating { update, to, status: update.status.to_string() }).await?;
    forget_status(app, &update.transaction_id, &reply).await;
    Ok(reply)
}

/// Where a payment stands, as of the last minute or the last change.
pub(crate) async fn status(app: &App, psp_id: &str, transaction_id: &str) -> Result<Reply, Failure> {
    let (payments, id) = (app.payments.clone(), transaction_id.to_owned());
    let load = move || {
        let (payments, id) = (payments.clone(), id.clone());
        async move {
            let fields = |payment: Payment| {
                Value::fields([
                    ("status", payment.status.name().to_owned()),
                    ("amount", payment.amount.to_string()),
                    ("timestamp", answer::now()),
                    // Beyond the documented three: whose it is.
                    ("psp_id", payment.psp_id),
                ])
            };
            Ok(payments.payment(&id).await?.map(fields))
        }
    };
    let cache = app.quaymaster.cache("status")?;
    let found = answer::cached(cache, &[("transaction_id", transaction_id)], load).await?;
    let Some(Loaded { value, outage }) = found else { return Ok(missing()) };
    let field = |name| value.field(name).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    // A program of the old scheme caches three fields; whose payment it is, SQL knows.
    let ours = match value.field("psp_id") {
        Some(_) => field("psp_id") == psp_id,
        None => own(app, psp_id, transaction_id).await?.is_some(),
    };
    if !ours {
        return Ok(missing());
    }
    let body = json!({
        "transaction_id": transaction_id, "status": field("status"),
        "amount": field("amount").parse::<i64>().unwrap_or_default(), "timestamp": field("timestamp"),
    });
    Ok(Reply::new(Answer::new(StatusCode::OK, body), How::Read).under(outage))
}

async fn own(app: &App, psp_id: &str, transaction_id: &str) -> Result<Option<Payment>, Failure> {
    let payment = app.payments.payment(transaction_id).await?;
    Ok(payment.filter(|payment| payment.psp_id == psp_id))
}

/// What was read before a change must not be read after it.
async fn forget_status(app: &App, transaction_id: &str, reply: &Reply) {
    if reply.how != How::Ran {
        return;
    }
    let forgotten = match app.quaymaster.cache("status") {
        Ok(cache) => cache.delete(&[("transaction_id", transaction_id)], None).await.map(|_| ()),
        Err(error) => Err(error),
    };
    if let Err(error) = forgotten {
        tracing::warn!(%error, "a cached status stays until it expires");
    }
}

pub(crate) fn missing() -> Reply {
    Reply::refused(StatusCode::NOT_FOUND, "payment.unknown", "there is no such payment")
}

struct Checking<'a> {
    check: &'a Check,
    amount: String,
}

impl Operation for Checking<'_> {
    const NAME: &'static str = "check";

    fn key(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("psp_id", &self.check.psp_id),
            ("merchant_provider", &self.check.merchant_provider),
            ("qr_tx_id", &self.check.qr_tx_id),
            ("amount", &self.amount),
        ]
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.check.fingerprint()
    }

    async fn run(&self, app: &App, _lease: Lease<'_>) -> Result<Ran, Failure> {
        let check = self.check;
        let taken = app.payments.is_taken(&check.merchant_provider, &check.qr_tx_id).await?;
        let body = json!({
            "merchant_provider": check.merchant_provider, "qr_tx_id": check.qr_tx_id, "amount": check.amount,
            "payable": !taken, "checked_at": answer::now(),
        });
        Ok(Ran::Done(Answer::new(StatusCode::OK, body)))
    }

    /// A check that nobody kept is made again.
    async fn recall(&self, app: &App) -> Result<Option<Answer>, Failure> {
        Ok(match self.run(app, flow::UNLOCKED).await? {
            Ran::Done(answer) => Some(answer),
            Ran::Nothing(reply) | Ran::Stale(reply) => Some(reply.answer),
        })
    }
}

impl Operation for Create {
    const NAME: &'static str = "create";

    fn key(&self) -> Vec<(&'static str, &str)> {
        vec![("psp_id", &self.psp_id), ("psp_transaction_id", &self.psp_transaction_id)]
    }

    fn fingerprint(&self) -> Vec<u8> {
        crate::request::Body::fingerprint(self)
    }

    async fn run(&self, app: &App, lease: Lease<'_>) -> Result<Ran, Failure> {
        let new = NewPayment {
            psp_transaction_id: &self.psp_transaction_id,
            psp_id: &self.psp_id,
            merchant_provider: &self.merchant_provider,
            qr_tx_id: &self.qr_tx_id,
            amount: self.amount,
        };
        let written = app.payments.create(new, &new_transaction_id(), lease).await?;
        Ok(ran(written, StatusCode::CREATED, Status::Created))
    }

    async fn recall(&self, app: &App) -> Result<Option<Answer>, Failure> {
        let done = app.payments.created(&self.psp_transaction_id).await?;
        let done = done.filter(|done| done.payment.psp_id == self.psp_id);
        Ok(done.map(|done| told(&done, StatusCode::CREATED, Status::Created)))
    }
}

impl Operation for Execute {
    const NAME: &'static str = "execute";

    fn key(&self) -> Vec<(&'static str, &str)> {
        vec![("psp_id", &self.psp_id), ("transaction_id", &self.transaction_id)]
    }

    fn fingerprint(&self) -> Vec<u8> {
        crate::request::Body::fingerprint(self)
    }

    async fn run(&self, app: &App, lease: Lease<'_>) -> Result<Ran, Failure> {
        let (psp_id, id) = (&self.psp_id, &self.transaction_id);
        let written = app.payments.advance(Self::NAME, psp_id, id, Status::Executed, lease).await?;
        Ok(ran(written, StatusCode::OK, Status::Executed))
    }

    async fn recall(&self, app: &App) -> Result<Option<Answer>, Failure> {
        let done = app.payments.done(Self::NAME, &self.transaction_id, Status::Executed).await?;
        Ok(done.map(|done| told(&done, StatusCode::OK, Status::Executed)))
    }
}

struct Updating<'a> {
    update: &'a Update,
    to: Status,
    status: String,
}

impl Operation for Updating<'_> {
    const NAME: &'static str = "update";

    fn key(&self) -> Vec<(&'static str, &str)> {
        vec![("transaction_id", &self.update.transaction_id), ("status", &self.status)]
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.update.fingerprint()
    }

    /// Holds the lock that `guard.execute` holds too, under a lease that renews itself.
    async fn run(&self, app: &App, _lease: Lease<'_>) -> Result<Ran, Failure> {
        let Update { psp_id, transaction_id, .. } = self.update;
        let acquire = Acquire { wait: app.wait, ..Acquire::default() };
        let lock = app.quaymaster.lock("update")?;
        let holding = match lock.hold(&[("transaction_id", transaction_id)], acquire).await? {
            Held::Ours(holding) => holding,
            Held::Held { retry_after, .. } => {
                return Ok(Ran::Nothing(flow::in_flight(retry_after)));
            }
        };
        app.hold.at(Self::NAME, Point::Entered).await;
        // Under an outage policy nothing is locked and there is no fence; where the payment stands still decides.
        let locked = holding.outage().is_none();
        let is_lost = || locked && holding.is_lost();
        let lease = Lease { fence: locked.then(|| holding.fence()), is_lost: &is_lost };
        let written = app.payments.advance(Self::NAME, psp_id, transaction_id, self.to, lease).await;
        match holding.release().await {
            Ok(released) => tracing::debug!(?released, "released"),
            Err(error) => tracing::warn!(%error, "the lock could not be released; its lease ends by itself"),
        }
        Ok(ran(written?, StatusCode::OK, self.to))
    }

    async fn recall(&self, app: &App) -> Result<Option<Answer>, Failure> {
        let done = app.payments.done(Self::NAME, &self.update.transaction_id, self.to).await?;
        Ok(done.map(|done| told(&done, StatusCode::OK, self.to)))
    }
}

fn ran(written: Written, status: StatusCode, now: Status) -> Ran {
    match written {
        Written::Done(done) => Ran::Done(told(&done, status, now)),
        Written::Stale { ours, theirs } => {
            let detail = format!(
                "the lock was lost while this ran: its fence {ours} is behind {theirs}; nothing was written"
            );
            Ran::Stale(Reply::refused(StatusCode::CONFLICT, "lock.lost", detail))
        }
        Written::Lost => {
            let detail = "the lock was lost while this ran: its lease ended; nothing was written";
            Ran::Stale(Reply::refused(StatusCode::CONFLICT, "lock.lost", detail))
        }
        Written::Missing => Ran::Nothing(missing()),
        Written::Refused(at) => {
            let detail = format!("a payment that is {} cannot become {}", at.name(), now.name());
            Ran::Nothing(Reply::refused(StatusCode::CONFLICT, "payment.status", detail))
        }
        Written::Other => {
            let detail = "this psp_transaction_id belongs to a payment with other content";
            Ran::Nothing(Reply::refused(StatusCode::UNPROCESSABLE_ENTITY, "payment.other", detail))
        }
    }
}

/// Made of what never changes once the operation is done, so that every run of it says the same.
fn told(done: &Done, status: StatusCode, now: Status) -> Answer {
    let payment = &done.payment;
    let body = json!({
        "transaction_id": payment.transaction_id, "psp_transaction_id": payment.psp_transaction_id,
        "amount": payment.amount, "status": now.name(), "at": done.at,
    });
    Answer::new(status, body)
}

/// A version 4 UUID.
fn new_transaction_id() -> String {
    let bits =
        u128::from_be_bytes(crate::token::random()) & !(0xF << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let text = format!("{bits:032x}");
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_ids_are_random_uuids() {
        let (one, two) = (new_transaction_id(), new_transaction_id());
        assert_ne!(one, two);
        assert_eq!(one.len(), 36);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]), "{one}");
    }
}
