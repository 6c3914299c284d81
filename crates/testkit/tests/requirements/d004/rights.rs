//! Who may call, and what nobody else gets to see.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;

use quaymaster_testkit::stage::{Ask, Stage, Store};
use serde_json::{Value, json};

use super::{SEAL_KEY, TRANSACTION, begin, of_transaction, put, put_status, take};

/// Everything that the store has on its disk, as text.
fn on_disk(s: &Stage) -> String {
    let folder = match s.store() {
        Store::Redis => {
            s.raw::<()>(&["SAVE"]);
            s.redis(|server| server.folder().to_owned())
        }
        Store::Embedded => s.folder().join("quaymaster-data"),
    };
    text_below(&folder)
}

/// The text of all files in a folder.
pub(super) fn text_below(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            text += &text_below(&path);
        } else if kind.is_file() {
            text += &String::from_utf8_lossy(&std::fs::read(path).unwrap());
        }
    }
    text
}

/// What `serve` says until it listens or ends: its line, or nothing and the refusal.
fn listens(s: &Stage, words: &[&str]) -> (String, String) {
    let mut command = s.command();
    command.arg("serve").args(words).env("QUAYMASTER_STORE", s.url());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut line, mut refusal) = (String::new(), String::new());
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _ = child.kill();
    child.stderr.take().unwrap().read_to_string(&mut refusal).unwrap();
    child.wait().unwrap();
    (line, refusal)
}

fn l263_loopback_is_the_default(s: &Stage) {
    // Where another program has the address, it is named in the refusal.
    let (line, refusal) = listens(s, &[]);
    assert!(line.contains("http://127.0.0.1:7420") || refusal.contains("127.0.0.1:7420"), "{line}{refusal}");
    for beyond in ["0.0.0.0:0", "[::]:0"] {
        let (line, refusal) = listens(s, &["--listen", beyond]);
        assert!(line.is_empty() && refusal.contains("is reachable by others"), "{beyond}: {line}{refusal}");
    }
    let address = s.address();
    assert!(address.ip().is_loopback(), "{address}");
    take(s, "psp", &json!({"psp_id": "PSP001"}));
}

fn l272_personal_data_stays_out(s: &Stage) {
    const CARD: &str = "4111-1111-1111-1111 Jane Roe";
    s.var("QUAYMASTER_SEAL_KEY", SEAL_KEY);
    s.settings("[server]\naccess_log = \"access.log\"");
    put_status(s);
    let key = json!({"psp_id": "PSP001", "psp_transaction_id": "A"});
    let entered = s.ok("guard/create/enter", json!({"key": key, "fingerprint": CARD, "request_id": "r1"}));
    let leave = json!({"key": key, "token": entered["token"], "response": {"payer": CARD}});
    assert_eq!(s.ok("guard/create/leave", leave)["outcome"], "finished");
    begin(s, "execute", &of_transaction(), CARD);
    take(s, "transaction", &of_transaction());
    // Whoever asks with it is told from others all the same.
    let again = begin(s, "create", &json!({"psp_transaction_id": "A"}), CARD);
    assert_eq!(again["response"]["payer"], CARD);
    assert_eq!(begin(s, "create", &json!({"psp_transaction_id": "A"}), "4111")["outcome"], "mismatch");
    let access = s.folder().join("access.log");
    s.until("the calls are noted", || {
        std::fs::read_to_string(&access).unwrap_or_default().lines().count() >= 7
    });
    let logs = s.log() + &std::fs::read_to_string(&access).unwrap();
    for text in [on_disk(s), logs.clone()] {
        assert!(!text.contains("4111") && !text.contains("Jane"), "{text}");
    }
    assert!(on_disk(s).contains(TRANSACTION) && !logs.contains(TRANSACTION), "ids are in the store alone");
}

fn l273_sensitive_values_are_sealed(s: &Stage) {
    let write = || {
        put(s, "token", &json!({"psp_id": "PSP001"}), &json!("hunter2-horse-staple"));
        let key = json!({"psp_transaction_id": "A"});
        let begun = begin(s, "create", &key, "f");
        s.ok(
            "idempotency/create/finish",
            json!({"key": key, "token": begun["token"], "response": "payed-to-jane"}),
        );
        put_status(s);
    };
    s.var("QUAYMASTER_SEAL_KEY", SEAL_KEY);
    write();
    let disk = on_disk(s);
    assert!(
        !disk.contains("hunter2") && !disk.contains("payed-to-jane"),
        "sealed before they leave the process"
    );
    assert!(disk.contains("token:psp:PSP001") && disk.contains("2024-01-15T14:30"), "nothing else is");
    assert_eq!(s.get("/v1/cache/token/get?key.psp_id=PSP001").expect(200)["value"], "hunter2-horse-staple");
    // The key is off by default: then it is said, or refused.
    s.kill();
    s.var("QUAYMASTER_SEAL_KEY", "");
    s.raw::<i64>(&["DEL", "idem:create:A"]);
    write();
    assert!(on_disk(s).contains("hunter2-horse-staple"));
    assert!(
        s.log().contains("stored readable") && super::warns(&super::status(s), "stored readable"),
        "{}",
        s.log()
    );
    s.kill();
    s.settings("[store]\nrequire_seal_key = true");
    let (line, refusal) = listens(s, &["--listen", "127.0.0.1:0"]);
    assert!(line.is_empty() && refusal.contains("QUAYMASTER_SEAL_KEY"), "{line}{refusal}");
}

const GATEWAY: &str = "the-token-of-the-gateway";
const READER: &str = "the-token-of-a-reader";

fn with_tokens(s: &Stage, more: &str) {
    s.var("GATEWAY_TOKEN", GATEWAY);
    s.var("READER_TOKEN", READER);
    let gateway = "{ env = \"GATEWAY_TOKEN\", name = \"gateway\", role = \"write\" }";
    let reader = "{ env = \"READER_TOKEN\", name = \"reader\", role = \"read\" }";
    s.settings(&format!("[server]\ntokens = [{gateway}, {reader}]\n{more}"));
}

/// Takes from a limit with this token; the status and the code of an error.
fn take_as(s: &Stage, token: Option<&str>) -> (u16, Value) {
    let mut ask = Ask::new("POST", "/v1/limit/psp/take").json(r#"{"key":{"psp_id":"PSP001"}}"#);
    if let Some(token) = token {
        ask = ask.with("authorization", &format!("Bearer {token}"));
    }
    let told = s.ask(&ask);
    (told.status, told.json()["code"].clone())
}

fn l274_callers_need_a_token_beyond_loopback(s: &Stage) {
    let (line, refusal) = listens(s, &["--listen", "0.0.0.0:0"]);
    assert!(line.is_empty() && refusal.contains("token"), "{line}{refusal}");
    with_tokens(s, "");
    // A token that others on the way could read is none.
    let (line, refusal) = listens(s, &["--listen", "0.0.0.0:0"]);
    assert!(line.is_empty() && refusal.contains("[server.tls]"), "{line}{refusal}");
    for (token, told) in [
        (None, (401, json!("auth.required"))),
        (Some("nobody-knows-this-token"), (401, json!("auth.required"))),
        (Some(READER), (403, json!("auth.forbidden"))),
        (Some(GATEWAY), (200, Value::Null)),
    ] {
        assert_eq!(take_as(s, token), told, "{token:?}");
    }
    assert_eq!(
        s.text("rl:PSP001:2026-11-15-12-00").as_deref(),
        Some("1"),
        "who is refused has taken nothing"
    );
    assert_eq!((s.get("/healthz").status, s.get("/v1/status").status), (200, 401));
    assert!(!s.log().contains(GATEWAY) && !s.log().contains("nobody-knows"), "{}", s.log());
}

fn l275_every_call_is_logged(s: &Stage) {
    with_tokens(s, "access_log = \"access.log\"");
    let lines = |count: usize| -> Vec<Value> {
        let mut text = String::new();
        s.until("the lines", || {
            text = std::fs::read_to_string(s.folder().join("access.log")).unwrap_or_default();
            text.lines().count() >= count
        });
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let ask = |path: &str, body: Value| {
        let ask = Ask::new("POST", path).json(&body.to_string());
        s.ask(&ask.with("authorization", &format!("Bearer {GATEWAY}")))
    };
    let lock = json!({ "key": of_transaction() });
    ask("/v1/lock/update/acquire", lock.clone()).expect(200);
    ask("/v1/lock/update/acquire", lock).expect(200);
    ask("/v1/cache/token/put", json!({"key": {"psp_id": "PSP001"}, "value": "hunter2"})).expect(200);
    ask("/v1/limit/psp/take", json!({"key": {"psp_id": "tx"}})).expect(400);
    take_as(s, None);
    let told = lines(5);
    let said =
        |line: &Value| ["token", "resource", "verb", "outcome", "status"].map(|name| line[name].clone());
    let wanted = [
        json!(["gateway", "lock.update", "acquire", "ours", 200]),
        json!(["gateway", "lock.update", "acquire", "held", 200]),
        json!(["gateway", "cache.token", "put", "ok", 200]),
        json!(["gateway", "limit.psp", "take", "key.value", 400]),
        json!([null, "limit.psp", "take", "auth.required", 401]),
    ];
    assert_eq!(told.iter().map(|line| json!(said(line))).collect::<Vec<_>>(), wanted);
    assert_eq!(told[0]["key_digest"], told[1]["key_digest"]);
    assert_eq!(told[0]["key_digest"].as_str().unwrap().len(), 16);
    let text = std::fs::read_to_string(s.folder().join("access.log")).unwrap();
    assert!(!text.contains("hunter2") && !text.contains(GATEWAY) && !text.contains(TRANSACTION), "{text}");
    // The key itself, where it was asked for; never of what is sensitive.
    s.kill();
    s.settings("access_log_keys = true");
    ask("/v1/lock/update/acquire", json!({ "key": of_transaction() })).expect(200);
    ask("/v1/cache/token/delete", json!({"key": {"psp_id": "PSP001"}})).expect(200);
    let told = lines(7);
    assert_eq!(told[5]["key"], format!("lock:update:{TRANSACTION}"));
    assert!(told[6]["key"].is_null() && told[6]["key_digest"].is_string(), "{}", told[6]);
}

cases! {
    l263_loopback_is_the_default
    l272_personal_data_stays_out
    l273_sensitive_values_are_sealed
    l274_callers_need_a_token_beyond_loopback
    l275_every_call_is_logged
}
