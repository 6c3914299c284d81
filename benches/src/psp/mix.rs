//! The payment mix: what is asked for, and what its parts are called.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// PSPs whose quota the mix spends, in turn: 2,000 of them may make 33,000 payments a second under the
/// document's 1,000 a minute, more than any machine here runs.
const PSPS: u64 = 2_000;
/// Transactions whose status is asked for again and again.
const WARM: u64 = 200;
/// One status in this many asks for a transaction nobody has cached: the document's hit rate of 95 %.
const COLD_EVERY: u64 = 20;

pub(crate) const MERCHANT_PROVIDER: &str = "DEMO_MERCHANT";
pub(crate) const STATUS: &str = "50";
pub(crate) const AMOUNT: &str = "100000";
pub(crate) const TIMESTAMP: &str = "2024-01-15T14:30:00Z";
/// The answer a payment is remembered by; about 200 bytes.
pub(crate) const RESPONSE: &str = r#"{"status":"SUCCESS","transactionId":"fbded76a-9fc6-42d8-b0a0-e7e7110e0cc7","receiptId":"RC-2024-01-15-000123456","amount":100000,"currency":"KGS","createdAt":"2024-01-15T14:30:00Z","operator":"DEMO_MERCHANT"}"#;

/// One of the five things a gateway is asked for. Each is one or more [`Operation`]s, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// `idempotency.check` begin, finish.
    Check { psp_id: String, qr_tx_id: String },
    /// `guard.create` enter, leave.
    Create { psp_id: String, psp_transaction_id: String },
    /// `guard.execute` enter, leave.
    Execute { psp_id: String, transaction_id: String },
    /// `idempotency.update` begin, `lock.update` acquire, release, `idempotency.update` finish.
    Update { transaction_id: String },
    /// `cache.status` get, and put after a miss.
    Status { transaction_id: String },
}

/// Operations of one round of the five steps: 2 + 2 + 2 + 4, and a status of one or (after a miss) two.
const OPERATIONS_OF_FIVE: f64 = 11.0 + 1.0 / COLD_EVERY as f64;

/// How many steps a second make this many operations a second.
pub(crate) fn steps_per_s(operations_per_s: f64) -> f64 {
    operations_per_s * 5.0 / OPERATIONS_OF_FIVE
}

/// Hands out steps: the five kinds in turn, no transaction twice.
#[derive(Debug)]
pub(crate) struct Mix {
    next: AtomicU64,
    salt: u64,
}

impl Mix {
    pub(crate) fn new() -> Self {
        Self { next: AtomicU64::new(0), salt: fastrand::u64(..) }
    }

    pub(crate) fn step(&self) -> Step {
        let number = self.next.fetch_add(1, Relaxed);
        let round = number / 5;
        let psp_id = || format!("PSP{:04}", round % PSPS);
        match number % 5 {
            0 => Step::Check { psp_id: psp_id(), qr_tx_id: format!("QR{:08}", round % 100_000_000) },
            1 => Step::Create { psp_id: psp_id(), psp_transaction_id: Self::psp_transaction_id(number) },
            2 => Step::Execute { psp_id: psp_id(), transaction_id: self.transaction_id(number) },
            3 => Step::Update { transaction_id: self.transaction_id(number) },
            _ if round.is_multiple_of(COLD_EVERY) => {
                Step::Status { transaction_id: self.transaction_id(number) }
            }
            _ => Step::Status { transaction_id: self.warm(round) },
        }
    }

    /// One of those asked for again and again; counted from the end, where no step's own number comes.
    fn warm(&self, round: u64) -> String {
        self.transaction_id(u64::MAX - round % WARM)
    }

    /// A UUID by its looks; the same number gives the same one.
    pub(crate) fn transaction_id(&self, number: u64) -> String {
        let (high, low) = (scatter(self.salt ^ number), scatter(number));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            0x8000 | low >> 50,
            low & 0xffff_ffff_ffff
        )
    }

    /// As the document's example: a word and digits.
    pub(crate) fn psp_transaction_id(number: u64) -> String {
        format!("PSP-TX-{number:09}")
    }
}

/// Spreads neighbouring numbers apart; one to one (the finaliser of splitmix64).
fn scatter(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// One call of the interface: what a latency is counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Begin,
    Finish,
    Acquire,
    Release,
    Get,
    Put,
    Enter,
    Leave,
}

/// Which of the two promises an operation is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// A call of one primitive.
    Single,
    /// A call of a guard: limits, idempotency and lock at once.
    Compound,
}

impl Class {
    /// The most its p95 may be, in milliseconds.
    pub(crate) const fn p95_ms(self) -> f64 {
        match self {
            Class::Single => 1.0,
            Class::Compound => 2.0,
        }
    }
}

impl Operation {
    pub(crate) const ALL: [Operation; 8] = [
        Operation::Begin,
        Operation::Finish,
        Operation::Acquire,
        Operation::Release,
        Operation::Get,
        Operation::Put,
        Operation::Enter,
        Operation::Leave,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Operation::Begin => "idempotency.begin",
            Operation::Finish => "idempotency.finish",
            Operation::Acquire => "lock.acquire",
            Operation::Release => "lock.release",
            Operation::Get => "cache.get",
            Operation::Put => "cache.put",
            Operation::Enter => "guard.enter",
            Operation::Leave => "guard.leave",
        }
    }

    pub(crate) const fn class(self) -> Class {
        match self {
            Operation::Enter | Operation::Leave => Class::Compound,
            _ => Class::Single,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_five_steps_come_in_equal_parts_and_no_payment_comes_twice() {
        let mix = Mix::new();
        let steps: Vec<Step> = (0..50_000).map(|_| mix.step()).collect();
        let (mut kinds, mut payments) = ([0; 5], HashSet::new());
        for step in &steps {
            let (kind, payment) = match step {
                Step::Check { psp_id, qr_tx_id } => (0, Some(format!("{psp_id}:{qr_tx_id}"))),
                Step::Create { psp_transaction_id, .. } => (1, Some(psp_transaction_id.clone())),
                Step::Execute { transaction_id, .. } => (2, Some(transaction_id.clone())),
                Step::Update { transaction_id } => (3, Some(transaction_id.clone())),
                Step::Status { .. } => (4, None),
            };
            kinds[kind] += 1;
            assert!(payment.is_none_or(|payment| payments.insert(payment)), "{step:?} came twice");
        }
        assert_eq!(kinds, [10_000; 5]);
    }

    #[test]
    fn one_status_in_twenty_is_of_a_transaction_nobody_asked_for_yet() {
        let mix = Mix::new();
        let mut seen: HashSet<String> = (0..WARM).map(|round| mix.warm(round)).collect();
        let fresh = (0..10_000)
            .filter(|_| match mix.step() {
                Step::Status { transaction_id } => seen.insert(transaction_id),
                _ => false,
            })
            .count();
        assert_eq!(fresh, 2_000 / 20);
    }

    #[test]
    fn transaction_ids_have_the_documents_shape() {
        let id = Mix::new().transaction_id(7);
        let groups: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
    }
}
