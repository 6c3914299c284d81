//! Queues on the command line, and the worker as a process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Said, Served, any_port, command, folder, said};

const SCHEMA: &str = r#"
[schema]
name = "shop"

[queue.orders]
max_size = 1000000
retry = { max_attempts = 2, base = "1ms", max = "1ms", jitter = 0 }
push = { url = { env = "SHOP_URL", default = "http://127.0.0.1:1/" }, concurrency = 2, result_to = "queue.packed", secret = { env = "SHOP_SECRET" } }

[queue.packed]
max_size = 1000000
"#;

/// The command with the schema's secret in its environment.
fn shop(here: &Path) -> Command {
    let mut shop = command(here);
    shop.env("SHOP_SECRET", "a secret of some length").env("QUAYMASTER_DURABILITY", "everysec");
    shop
}

fn call(here: &Path, words: &[&str]) -> Said {
    let mut call = shop(here);
    call.args(["queue", words[0], words[1], "--schema", "shop.toml"]).args(&words[2..]);
    said(&mut call)
}

#[test]
fn jobs_are_pushed_claimed_and_settled() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    let pushed =
        call(here, &["push", "packed", "--payload", r#"{"z": 1,  "a": 2.50}"#, "--id", "o-1", "--json"]);
    assert_eq!((pushed.code, pushed.json()["accepted"].clone()), (0, json!(1)), "{}", pushed.err);
    assert_eq!(call(here, &["push", "packed", "--payload", "1", "--id", "o-1"]).code, 1, "a duplicate");
    let peeked = call(here, &["peek", "packed"]);
    assert_eq!(peeked.out, "{\"z\": 1,  \"a\": 2.50}\n", "as it was typed");
    let claimed = call(here, &["claim", "packed", "--json"]);
    let lease = claimed.json()["jobs"][0]["lease"].as_str().unwrap().to_owned();
    assert_eq!(call(here, &["claim", "packed"]).code, 1, "nothing left");
    assert_eq!(call(here, &["extend", "packed", "--lease", &lease]).code, 0);
    let acked = call(here, &["ack", "packed", "--leases", &lease]);
    assert_eq!((acked.code, acked.out.as_str()), (0, "acked  1\nlost   0\n"), "{}", acked.err);
    assert_eq!(call(here, &["ack", "packed", "--leases", &lease]).code, 1, "lost");
    let wrong = call(here, &["ack", "packed", "--leases", "x"]);
    assert!(wrong.code == 2 && wrong.err.contains("lease"), "{wrong:?}");
    let keyed = call(here, &["pause", "packed", "--key", "a=b"]);
    assert!(keyed.code == 2 && keyed.err.contains("key"), "{keyed:?}");
    assert_eq!(call(here, &["pause", "packed"]).out, "paused  yes\n");
    assert_eq!(call(here, &["resume", "packed"]).out, "paused  no\n");
}

/// Python writes the name of a file that is no UTF-8 like this.
#[test]
fn a_job_that_cannot_be_read_here_is_still_claimed_with_its_lease() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    for odd in [r#"{"file": "\udcff.jpg"}"#, "1e999"] {
        for json in [&["--json"][..], &[]] {
            let pushed = call(here, &["push", "packed", "--payload", odd]);
            assert_eq!(pushed.code, 0, "{pushed:?}");
            let peeked = call(here, &["peek", "packed"]);
            assert_eq!((peeked.code, peeked.out.trim_end()), (0, odd), "{peeked:?}");
            let claimed = call(here, &[&["claim", "packed"], json].concat());
            assert!(claimed.code == 0 && claimed.out.contains(odd), "{claimed:?}");
            let (_, lease) = claimed.out.split_once("\"lease\":\"").unwrap();
            let (lease, _) = lease.split_once('"').unwrap();
            let nacked = call(here, &["nack", "packed", "--lease", lease, "--error", "odd", "--dead"]);
            assert_eq!(nacked.code, 0, "{nacked:?}");
            let dead = call(here, &[&["dead", "packed"], json].concat());
            assert!(dead.code == 0 && dead.out.contains(odd), "{dead:?}");
            assert_eq!(call(here, &["purge", "packed"]).code, 0);
        }
    }
}

#[test]
fn dead_letters_are_a_table_and_can_be_redriven_and_purged() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    let served = Served::spawn(shop(here).args(["serve", "--listen", &any_port(), "--schema", "shop.toml"]));
    let numbers: Vec<usize> = (0..300).collect();
    served.take("/v1/queue/packed/push", &json!({"payloads": numbers}).to_string());
    let told = served.take("/v1/queue/packed/claim", r#"{"count":300}"#);
    for job in told["jobs"].as_array().unwrap() {
        let nack = json!({"lease": job["lease"], "error": "broken\u{1b}[2J", "dead": true});
        served.take("/v1/queue/packed/nack", &nack.to_string());
    }
    let dead = call(here, &["dead", "packed", "--count", "2"]);
    let lines: Vec<&str> = dead.out.lines().collect();
    assert!(lines[0].starts_with("attempts  last failed"), "{}", dead.out);
    assert!(lines[1].starts_with('1') && lines[1].contains("broken\\u{1b}[2J  0"), "{}", dead.out);
    assert_eq!(lines[3], "298 others: --offset and --count");
    assert_eq!(
        call(here, &["dead", "packed", "--json", "--count", "1"]).json()["items"][0]["original_job"],
        0
    );
    let moved = call(here, &["redrive", "packed", "--count", "100", "--json"]);
    assert_eq!(moved.json(), json!({"moved": 100, "left": 0, "full": false}));
    assert_eq!(call(here, &["purge", "packed"]).out, "removed  200\n");
    assert_eq!(served.stop().code, 0);
}

/// A service on a thread: tells what came, and answers what it is told to.
struct Desk {
    url: String,
    came: Receiver<(String, Vec<u8>)>,
    answers: Sender<String>,
}

impl Desk {
    fn open() -> Self {
        let listener = TcpListener::bind(any_port()).unwrap();
        let url = format!("http://{}/pack", listener.local_addr().unwrap());
        let (tell, came) = channel();
        let (answers, told) = channel::<String>();
        let told = std::sync::Arc::new(std::sync::Mutex::new(told));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (tell, told) = (tell.clone(), told.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &tell, &told));
            }
        });
        Self { url, came, answers }
    }

    fn next(&self) -> (String, Vec<u8>) {
        self.came.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn answer(&self, status: &str, body: &str) {
        let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        self.answers.send(text).unwrap();
    }
}

fn serve(mut stream: TcpStream, tell: &Sender<(String, Vec<u8>)>, told: &std::sync::Mutex<Receiver<String>>) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(count) => buffer.extend_from_slice(&piece[..count]),
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let length: usize =
            head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
        while buffer.len() < length {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece).unwrap();
            buffer.extend_from_slice(&piece[..count]);
        }
        let _ = tell.send((head, buffer.drain(..length).collect()));
        let Ok(answer) = told.lock().unwrap().recv() else { return };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let line = head.lines().find_map(|line| line.split_once(": ").filter(|(known, _)| known == &name));
    line.map_or("", |(_, value)| value)
}

fn worker(here: &Path, url: &str) -> Served {
    let mut start = shop(here);
    start.args(["worker", "--schema", "shop.toml", "--queue", "orders"]).env("SHOP_URL", url);
    Served::spawn_saying(&mut start, "quaymaster working on orders")
}

fn depths(here: &Path, queue: &str) -> Value {
    call(here, &["pressure", queue, "--json"]).json()
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_worker_sends_jobs_hands_answers_on_and_drains_on_sigterm() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    let desk = Desk::open();
    let pushed = call(here, &["push", "orders", "--payloads", r#"[{"n":1},{"n":2},{"n":3},{"n":4}]"#]);
    assert_eq!(pushed.code, 0, "{}", pushed.err);
    let mut worker = worker(here, &desk.url);
    let (head, body) = desk.next();
    assert!(head.starts_with("POST /pack HTTP/1.1"), "{head}");
    assert_eq!(header(&head, "quaymaster-queue"), "orders");
    assert!(header(&head, "quaymaster-signature").starts_with("v1="), "{head}");
    assert!(body == br#"{"n":1}"# || body == br#"{"n":2}"#, "two at once, in any order");
    let _ = desk.next();
    // Two calls are under way. A stop lets them end and gives the rest back.
    worker.signal(Signal::TERM);
    worker.wait_for_log("stopping");
    desk.answer("200 OK", r#"{"packed": 1}"#);
    desk.answer("204 No Content", "");
    assert_eq!(worker.stop_code(), 0);
    let left = depths(here, "orders");
    assert_eq!(
        (&left["leased"], left["current_length"].as_u64().unwrap() + left["delayed"].as_u64().unwrap()),
        (&json!(0), 2)
    );
    assert_eq!(call(here, &["peek", "packed"]).out, "{\"packed\": 1}\n");
    let claimed = call(here, &["claim", "orders", "--count", "9", "--json"]).json();
    assert!(claimed["jobs"].as_array().unwrap().iter().all(|job| job["attempt"] == 1), "{claimed}");
}

#[test]
fn a_worker_that_is_killed_leaves_its_job_to_the_next_one() {
    let schema = SCHEMA.replace("push = ", "lease = \"200ms\"\npush = ");
    let folder = folder(&[("shop.toml", &schema)]);
    let here = folder.path();
    let desk = Desk::open();
    assert_eq!(call(here, &["push", "orders", "--payload", "7"]).code, 0);
    let first = worker(here, &desk.url);
    let (head, _) = desk.next();
    assert_eq!(header(&head, "quaymaster-attempt"), "1");
    first.signal(Signal::KILL);
    let _ = first.stop_code();
    let second = worker(here, &desk.url);
    let (again, body) = desk.next();
    assert_eq!((header(&again, "quaymaster-attempt"), &body[..]), ("2", &b"7"[..]));
    assert_eq!(header(&again, "idempotency-key"), header(&head, "idempotency-key"));
    // One answer for the connection of the dead, one for the living.
    desk.answer("204 No Content", "");
    desk.answer("204 No Content", "");
    until("it is done", || depths(here, "orders")["leased"] == 0);
    assert_eq!(second.stop().code, 0);
}

#[test]
fn a_server_works_too_when_told() {
    let folder = folder(&[
        ("shop.toml", SCHEMA),
        ("quaymaster.toml", "[server]\nworkers = true\n[worker]\ndrain = \"5s\""),
    ]);
    let here = folder.path();
    let desk = Desk::open();
    let mut serve = shop(here);
    serve.env_remove("QUAYMASTER_DURABILITY").args([
        "serve",
        "--listen",
        &any_port(),
        "--store",
        "memory",
        "--schema",
        "shop.toml",
    ]);
    let served = Served::spawn(serve.env("SHOP_URL", &desk.url));
    served.take("/v1/queue/orders/push", r#"{"payload": 1}"#);
    let _ = desk.next();
    let metrics = served.ask("GET", "/metrics", "").1;
    assert!(metrics.contains("quaymaster_worker_busy{queue=\"orders\"} 1"), "{metrics}");
    assert!(metrics.contains("quaymaster_worker_concurrency{queue=\"orders\"} 2"), "{metrics}");
    desk.answer("404 Not Found", "no such order");
    until("it is dead", || served.take_get("/v1/queue/orders/pressure")["dead"] == 1);
    let metrics = served.ask("GET", "/metrics", "").1;
    assert!(
        metrics.contains("quaymaster_worker_calls_total{queue=\"orders\",outcome=\"refused\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("quaymaster_worker_jobs_total{queue=\"orders\",what=\"dead\"} 1"), "{metrics}");
    assert_eq!(served.stop().code, 0);
}

#[test]
fn a_worker_without_anything_to_do_says_so() {
    let none = SCHEMA.lines().filter(|line| !line.starts_with("push")).collect::<Vec<_>>().join("\n");
    let folder = folder(&[("shop.toml", SCHEMA), ("none.toml", &none)]);
    let here = folder.path();
    for (args, part) in [
        (&["--schema", "none.toml"][..], "no queue of the schema declares"),
        (&["--schema", "shop.toml", "--queue", "packed"], "declares no `push"),
        (&["--schema", "shop.toml", "--queue", "order"], "did you mean \"orders\"?"),
    ] {
        let said = said(shop(here).args(["worker", "--store", "memory"]).args(args));
        assert!(said.code == 2 && said.err.contains(part), "{said:?}");
    }
}
