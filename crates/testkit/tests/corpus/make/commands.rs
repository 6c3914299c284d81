//! What the command line prints: the same calls as commands.

use super::{Act, Maker, VERBS};

/// Commands that are no calls.
const COMMANDS: &[&str] = &[
    "--version",
    "frobnicate",
    "limit",
    "limit frobnicate",
    "limt take",
    "check",
    "check own.toml",
    "check --json own.toml",
    "check nosuch.toml",
    "docs home-assistant.toml",
    "explain c:door:s",
];

/// Calls that show the answers, `yes` and `no`, and what is refused.
const CALLS: &[&str] = &[
    "limit take fixed --key id=a",
    "limit take fixed --key id=a --json",
    "limit take fixed --key id=a --cost 9",
    "limit take fixed --key id=a --cost 9 --json",
    "limit peek fixed --key id=a",
    "limit refund fixed --key id=a --cost 1",
    "limit reset fixed --key id=a --json",
    "limit take fixed",
    "limit take fixed --json",
    "limit take fixed --key id",
    "limit take fixed --key idd=a",
    "limit take fixed --key id=a --key id=b",
    "limit take fixed --key id=a*",
    "limit take fixed --key id=a --cost 0",
    "limit take fixed --key id=a --cost x",
    "limit take fixed --key id=a --cost -1",
    "limit take fixed --key id=a --csot 1",
    "limit take fixd --key id=a",
    "limit take fixd --key id=a --json",
    "limit take",
    "lock acquire door --key id=a --owner me",
    "lock acquire door --key id=a",
    "lock acquire door --key id=a --json",
    "lock renew door --key id=a --token stolen",
    "lock release door --key id=a --token stolen --json",
    "lock release door --key id=a",
    "idempotency begin once --key id=a --fingerprint f",
    "idempotency begin once --key id=a --json",
    "idempotency finish once --key id=a --token stolen --response {\"a\":1}",
    "idempotency finish once --key id=a --token stolen --response {bad",
    "cache put text --key id=a --value hello",
    "cache put text --key id=a --value {\"a\":1} --json",
    "cache put table --key id=a --value [1]",
    "cache get text --key id=a",
    "cache get text --key id=b",
    "cache get text --key id=b --json",
    "cache exists text --key id=a",
    "cache delete text --key id=a",
    "dedupe first seen --key id=a --value v",
    "dedupe first seen --key id=a --json",
    "guard enter limited --key id=a",
    "guard enter locked --key id=a --json",
    "queue push jobs --payload 1",
    "queue push jobs --payload {\"a\":1} --json",
    "queue push jobs --payload {bad",
    "queue push jobs --payload @nosuch",
    "queue push jobs",
    "queue peek jobs",
    "queue peek jobs --json",
    "queue pressure jobs",
    "queue pressure jobs --json",
    "queue claim jobs --count 1 --json",
    "queue claim rejecting",
    "queue ack jobs --leases x",
    "queue nack jobs --lease x --error e",
    "queue dead jobs",
    "queue redrive jobs --json",
    "queue pause jobs",
    "queue resume jobs",
    "batch add slow --key id=a --item 1",
    "batch list slow",
    "batch close slow --key id=a --json",
    "batch close slow --key id=a",
    "event publish news --data {\"a\":1}",
    "event publish news --json",
    "run start passes --run-id base",
    "run processed passes --run-id base --items a --items b",
    "run failed passes --run-id base --item c --error e --json",
    "run show passes --run-id base",
    "run show passes --run-id base --json",
    "run show passes --run-id nosuch",
    "run list passes",
    "run failures passes --json",
    "stats record web --connections {\"0\":1}",
    "stats report web",
    "stats report web --json",
    "upload create files --name f",
    "upload create files --name f --json",
    "upload status files --upload-id 00000000000000000000000000000000",
    "upload status files --upload-id 00000000000000000000000000000000 --json",
    "upload abort files --upload-id nope",
    "upload events files",
    "explain c:door:a",
    "explain --json c:door:a",
    "explain nobody:knows",
    "explain rl:PSP001:2026-11-15-12-00",
];

pub(super) fn commands(maker: &mut Maker) {
    for line in COMMANDS {
        maker.run(line, &[]);
    }
    for verb in VERBS {
        maker.run(&format!("{} {} -h", verb.kind, verb.word), &[]);
    }
    for line in CALLS {
        maker.run(line, &["--store", "${store}"]);
    }
}

impl Maker {
    fn run(&mut self, line: &str, more: &[&str]) {
        let words = line.split(' ').chain(more.iter().copied()).map(str::to_owned).collect();
        self.add(line.to_owned(), "", Act::Run(words));
    }
}
