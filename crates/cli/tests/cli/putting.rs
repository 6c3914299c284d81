//! `upload put` to servers that do what a real one does seldom: behind a proxy that answers for them, slow to complete,
//! on a line that breaks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Served, Started, any_port, command, folder, run};
use crate::uploads::{file, first, put};

/// A request as it came.
struct Asked {
    method: String,
    path: String,
    /// Where its range begins.
    from: Option<usize>,
    body: Vec<u8>,
}

/// What answers it; the connection is closed after that.
enum Answer {
    Says(u16, Vec<u8>),
    /// Whatever it likes.
    Does(Box<dyn FnOnce(&mut TcpStream)>),
}

/// Answers each request by `answer`; the address.
fn fake(mut answer: impl FnMut(&Asked) -> Answer + Send + 'static) -> String {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let mut words = line.split(' ').map(str::to_owned);
            let (method, path) = (words.next().unwrap(), words.next().unwrap());
            let mut asked = Asked { method, path, from: None, body: Vec::new() };
            while !line.trim().is_empty() {
                line.clear();
                stream.read_line(&mut line).unwrap();
                let told = line.to_ascii_lowercase();
                if let Some(length) = told.strip_prefix("content-length:") {
                    asked.body = vec![0; length.trim().parse().unwrap()];
                }
                if let Some(range) = told.strip_prefix("range: bytes=") {
                    asked.from = Some(range.trim().trim_end_matches('-').parse().unwrap());
                }
            }
            stream.read_exact(&mut asked.body).unwrap();
            let stream = stream.get_mut();
            match answer(&asked) {
                Answer::Does(act) => act(stream),
                Answer::Says(status, body) => {
                    head(stream, status, body.len());
                    stream.write_all(&body).unwrap();
                }
            }
        }
    });
    format!("http://{address}")
}

fn head(stream: &mut TcpStream, status: u16, length: usize) {
    let head = format!("HTTP/1.1 {status} Said\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
}

/// A server of uploads that has one, which is so when its chunk is there.
struct Usual {
    status: &'static str,
    then: &'static str,
    error: Option<&'static str>,
}

impl Default for Usual {
    fn default() -> Self {
        Self { status: "PENDING", then: "COMPLETED", error: None }
    }
}

impl Usual {
    fn answer(&mut self, asked: &Asked) -> Answer {
        let told = match asked.method.as_str() {
            "POST" => {
                json!({ "upload_id": "a", "node_id": "b", "chunk_min_bytes": 1, "chunk_max_bytes": 1 << 20 })
            }
            "PUT" => {
                self.status = self.then;
                json!({})
            }
            _ => {
                let error = self.error.filter(|_| self.status == self.then);
                json!({ "status": self.status, "received": [], "durable": [], "resend": [], "error_message": error })
            }
        };
        Answer::Says(200, told.to_string().into_bytes())
    }
}

#[test]
fn a_proxy_that_asks_to_come_back_in_hours_is_not_waited_for() {
    let server = fake(|_| {
        Answer::Does(Box::new(|stream| {
            let later =
                b"HTTP/1.1 503 Away\r\nRetry-After: 3600\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(later).unwrap();
        }))
    });
    let folder = folder(&[]);
    file(folder.path(), "a.bin", 100);
    let said = put(folder.path(), &["a.bin", "--resource=documents", "--server", &server]);
    assert_eq!(said.code, 3, "{said:?}");
    let error = said.json()["files"][0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("503") && error.contains("3600 s"), "{error}");
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_told() {
    let folder = folder(&[("log", "one\n")]);
    let log = folder.path().join("log");
    let mut usual = Usual::default();
    let server = fake(move |asked| usual.answer(asked));
    let still = put(folder.path(), &["log", "--resource=documents", "--server", &server, "--no-verify"]);
    assert_eq!(still.code, 0, "{still:?}");
    let mut usual = Usual::default();
    let grows = fake(move |asked| {
        if asked.method == "POST" {
            std::fs::write(&log, "one\ntwo\n").unwrap();
        }
        usual.answer(asked)
    });
    let grown = put(folder.path(), &["log", "--resource=documents", "--server", &grows, "--no-verify"]);
    assert!(grown.code == 1 && grown.err.contains("has changed while it was sent"), "{grown:?}");
}

#[test]
fn a_proxy_that_answers_with_a_page_of_its_own_is_tried_again() {
    let folder = folder(&[("small", "abc")]);
    let page = "<html><body>Bad Gateway</body></html>";
    let mut away = vec![
        ("POST", 502, page),
        ("POST", 503, ""),
        ("GET", 504, page),
        ("PUT", 429, page),
        ("PUT", 408, page),
        // JSON, and no problem of ours.
        ("PUT", 503, "{\"message\": \"no healthy upstream\"}"),
    ];
    let mut usual = Usual::default();
    let server = fake(move |asked| match away.iter().position(|(method, ..)| asked.method == *method) {
        Some(at) => {
            let (_, status, body) = away.remove(at);
            Answer::Says(status, body.into())
        }
        None => usual.answer(asked),
    });
    let sent = put(folder.path(), &["small", "--resource=documents", "--server", &server, "--no-verify"]);
    assert_eq!(first(&sent)["size"], 3);
}

#[test]
fn a_page_that_no_waiting_changes_is_told_by_its_status_and_an_excerpt() {
    let folder = folder(&[("small", "abc")]);
    let page = format!("<html>\n <h1>\x1b[31mForbidden</h1>{}</html>", "x".repeat(10_000));
    let server = fake(move |_| Answer::Says(403, page.clone().into()));
    let refused = put(folder.path(), &["small", "--resource=documents", "--server", &server]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(
        refused.err.contains("the server answers 403 Forbidden: <html> <h1> [31mForbidden"),
        "{refused:?}"
    );
    assert!(refused.err.len() < 1000 && !refused.err.contains('\x1b'), "{refused:?}");
    // The document comes also where no file is there.
    let told = refused.json()["files"][0].clone();
    assert_eq!((&told["file"], &told["code"]), (&json!("small"), &json!("server.answer")), "{told}");
    assert!(told["error"].as_str().unwrap().contains("403") && told["upload_id"].is_null(), "{told}");
    let missing = put(folder.path(), &["missing", "--resource=documents", "--server", &server]);
    let told = missing.json()["files"][0]["error"].to_string();
    assert!(missing.code == 2 && told.contains("cannot read missing"), "{missing:?}");
}

#[test]
fn each_file_that_failed_has_its_whole_problem_document() {
    let folder = folder(&[("small", "abc")]);
    let says =
        |status: u16, problem: Value| fake(move |_| Answer::Says(status, problem.to_string().into_bytes()));
    let wrong = says(422, json!({"code": "resource.mismatch", "detail": "no", "field": "mime_type"}));
    // Nobody waits an hour for it.
    let hour = 3_600_000;
    let lost = says(
        503,
        json!({"code": "store.lost", "detail": "gone", "retry_after_ms": hour, "may_have_run": true}),
    );
    for (server, file, code, field, wait, doubt) in [
        (&wrong, "small", "resource.mismatch", json!("mime_type"), Value::Null, Value::Null),
        (&lost, "small", "store.lost", Value::Null, json!(hour), json!(true)),
        (&wrong, "missing", "config.invalid", Value::Null, Value::Null, Value::Null),
    ] {
        let failed = put(folder.path(), &[file, "--resource=documents", "--server", server]);
        let told = failed.json()["files"][0].clone();
        let problem = &told["problem"];
        assert_eq!((&told["error"], &told["code"]), (&problem["detail"], &problem["code"]), "{failed:?}");
        assert_eq!((&problem["code"], &problem["field"]), (&json!(code), &field), "{failed:?}");
        assert_eq!((&problem["retry_after_ms"], &problem["may_have_run"]), (&wait, &doubt), "{failed:?}");
        for part in ["type", "title", "status", "detail", "advice"] {
            assert!(!problem[part].is_null(), "{part}: {failed:?}");
        }
    }
}

#[test]
fn a_completion_that_waits_is_told_once_and_gone_on_with_after_an_interruption() {
    let folder = folder(&[("small", "abc")]);
    let why = "no broker takes the event";
    let mut usual = Usual { then: "COMPLETING", error: Some(why), ..Usual::default() };
    let server = fake(move |asked| usual.answer(asked));
    let mut sending = command(folder.path());
    let mut sending = Started::spawn(sending.args([
        "upload",
        "put",
        "--json",
        "--no-verify",
        "small",
        "--resource=documents",
        "--server",
        &server,
    ]));
    let told = sending.wait_for("waiting for the completion");
    assert!(told.contains("small: all chunks of upload a are durable"), "{told}");
    assert!(told.contains(&format!("waiting for the completion: {why}")), "{told}");
    let stopped = sending.stop_by(Signal::INT);
    assert_eq!(stopped.code, 130, "{stopped:?}");
    assert!(stopped.err.contains("the same command goes on"), "{stopped:?}");
    assert!(!stopped.err.contains("waiting"), "{stopped:?}");
    assert_eq!(stopped.json()["files"][0], json!({ "file": "small", "error": "interrupted" }));
}

#[test]
fn what_was_begun_with_again_is_not_said_to_be_gone_on_with() {
    let folder = folder(&[("small", "abc")]);
    let failing = || {
        let mut usual = Usual { then: "FAILED", error: Some("refused: 400"), ..Usual::default() };
        fake(move |asked| usual.answer(asked))
    };
    let plain = put(folder.path(), &["small", "--resource=documents", "--server", &failing()]);
    assert!(plain.code == 1 && plain.err.contains("refused: 400; the same command goes on"), "{plain:?}");
    let again = put(folder.path(), &["small", "--again", "--resource=documents", "--server", &failing()]);
    assert!(again.code == 1 && again.err.contains("begins another upload"), "{again:?}");
    assert!(!again.err.contains("command goes on"), "{again:?}");
    // A chunk that nobody takes is on its way.
    let (came, comes) = std::sync::mpsc::channel();
    let mut usual = Usual::default();
    let server = fake(move |asked| {
        if asked.method != "PUT" {
            return usual.answer(asked);
        }
        came.send(()).unwrap();
        Answer::Does(Box::new(|stream| {
            let _ = stream.read(&mut [0]);
        }))
    });
    let mut sending = command(folder.path());
    let sending = Started::spawn(sending.args([
        "upload",
        "put",
        "small",
        "--again",
        "--resource=documents",
        "--server",
        &server,
    ]));
    comes.recv().unwrap();
    let stopped = sending.stop_by(Signal::INT);
    assert!(stopped.code == 130 && stopped.err.contains("interrupted; with --again"), "{stopped:?}");
    assert!(!stopped.err.contains("command goes on"), "{stopped:?}");
}

/// A server whose content is sent by `send`, which is given where it is to begin.
fn with_content(send: impl Fn(Option<usize>, &mut TcpStream) + Send + Sync + 'static) -> String {
    let (mut usual, send) = (Usual::default(), Arc::new(send));
    fake(move |asked| {
        if !asked.path.ends_with("/content") {
            return usual.answer(asked);
        }
        let (send, from) = (send.clone(), asked.from);
        Answer::Does(Box::new(move |stream| send(from, stream)))
    })
}

#[test]
fn content_that_breaks_off_while_it_is_compared_is_read_on_from_there() {
    let folder = folder(&[]);
    let bytes = file(folder.path(), "a.bin", 900_000);
    let begun = Arc::new(Mutex::new(Vec::new()));
    let seen = begun.clone();
    let server = with_content(move |from, stream| {
        seen.lock().unwrap().push(from);
        let nth = seen.lock().unwrap().len();
        match (from, nth) {
            (None, _) => head(stream, 200, bytes.len()),
            // A proxy that knows no ranges.
            (Some(_), 2) => head(stream, 200, bytes.len()),
            (Some(from), _) => head(stream, 206, bytes.len() - from),
        }
        let from = if nth == 2 { 0 } else { from.unwrap_or(0) };
        let to = bytes.len().min(nth * 300_000);
        stream.write_all(&bytes[from..to]).unwrap();
    });
    let sent = put(folder.path(), &["a.bin", "--resource=documents", "--server", &server]);
    assert_eq!(first(&sent)["size"], 900_000);
    let begun = begun.lock().unwrap().clone();
    assert_eq!(begun, [None, Some(300_000), Some(600_000)]);
}

#[test]
fn content_that_never_comes_is_an_error_in_the_end() {
    let folder = folder(&[("small", "abc")]);
    let times = Arc::new(Mutex::new(0));
    let seen = times.clone();
    let server = with_content(move |_, stream| {
        *seen.lock().unwrap() += 1;
        head(stream, 200, 3);
        stream.shutdown(Shutdown::Both).unwrap();
    });
    let sent = put(folder.path(), &["small", "--resource=documents", "--server", &server]);
    assert_eq!((sent.code, *times.lock().unwrap()), (3, 5), "{sent:?}");
}

#[test]
fn json_adds_nothing_to_content_on_stdout_that_breaks_off() {
    let folder = folder(&[]);
    let read = |bytes: &'static [u8], words: &[&str]| {
        let server = with_content(move |from, stream| match from {
            None => {
                head(stream, 200, 6);
                stream.write_all(bytes).unwrap();
            }
            // Gone: nothing is left to read on.
            Some(_) => head(stream, 410, 0),
        });
        let asked = ["upload", "content", "documents", "--upload-id", "a", "--json", "--server", &server];
        run(folder.path(), &[&asked[..], words].concat())
    };
    let torn = read(b"abc", &[]);
    assert_eq!((torn.code, torn.out.as_str()), (3, "abc"), "{torn:?}");
    assert!(torn.err.contains("410"), "{torn:?}");
    // In a file the bytes are apart from the document.
    let file = read(b"abc", &["--output", "new"]);
    assert_eq!((file.code, &file.json()["code"]), (3, &json!("server.answer")), "{file:?}");
    let server = fake(|_| Answer::Says(410, Vec::new()));
    let gone = run(
        folder.path(),
        &["upload", "content", "documents", "--upload-id", "a", "--json", "--server", &server],
    );
    assert_eq!((gone.code, &gone.json()["code"]), (3, &json!("server.answer")), "{gone:?}");
}

#[test]
fn comparing_says_how_far_it_is() {
    let folder = folder(&[("small", "abcdef")]);
    let server = with_content(|_, stream| {
        head(stream, 200, 6);
        stream.write_all(b"abc").unwrap();
        // Longer than what is quick.
        std::thread::sleep(Duration::from_millis(700));
        stream.write_all(b"def").unwrap();
    });
    let sent = put(folder.path(), &["small", "--resource=documents", "--server", &server]);
    assert_eq!(first(&sent)["size"], 6);
    assert!(sent.err.contains("small: 6 B of 6 B compared"), "{sent:?}");
}

#[test]
fn what_is_said_of_a_file_is_said_to_its_upload_on_either_way() {
    // A number that no float holds, and spaces where nobody needs them.
    let metadata = "{ \"n\": 12345678901234567890123,  \"a\": [1.10] }";
    let folder = folder(&[("small", "abc"), ("facts.json", metadata)]);
    let here = folder.path();
    let node = "550e8400-e29b-41d4-a716-446655440000";
    let said = [
        ["--name", "b.txt"],
        ["--path", "x/b.txt"],
        ["--client-node-id", "n-1"],
        ["--node-id", node],
        ["--custom-metadata", "@facts.json"],
    ]
    .concat();
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let (mut usual, seen) = (Usual::default(), bodies.clone());
    let server = fake(move |asked| {
        if asked.method == "POST" {
            seen.lock().unwrap().push(String::from_utf8(asked.body.clone()).unwrap());
        }
        usual.answer(asked)
    });
    let words = [&["small", "--no-verify"][..], &said].concat();
    assert_eq!(put(here, &[&words[..], &["--resource=documents", "--server", &server]].concat()).code, 0);
    let body = bodies.lock().unwrap()[0].clone();
    assert!(body.contains(&format!("\"custom_metadata\":{metadata}")), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&body["name"], &body["path"], &body["client_node_id"], &body["node_id"]),
        (&json!("b.txt"), &json!("x/b.txt"), &json!("n-1"), &json!(node))
    );
    // The same request to the last byte, by the store and by a server.
    let straight = first(&put(here, &words));
    let served = Served::start(here, &[]);
    let server = format!("http://{}", served.address);
    let over = first(&put(here, &[&words[..], &["--resource=documents", "--server", &server]].concat()));
    assert_eq!((&over["upload_id"], &over["node_id"]), (&straight["upload_id"], &json!(node)));
    let another =
        first(&put(here, &["small", "--name", "c.txt", "--resource=documents", "--server", &server]));
    assert_ne!(another["upload_id"], straight["upload_id"]);
    assert_eq!(served.stop().code, 0);
    for (flag, value) in [("--name", "b.txt"), ("--node-id", node)] {
        let several = put(here, &["small", "small", flag, value]);
        assert!(several.code == 2 && several.err.contains(flag), "{several:?}");
    }
    for wrong in ["[1]", "{", "text"] {
        let refused = put(here, &["small", "--custom-metadata", wrong]);
        assert!(refused.code == 2 && refused.err.contains("--custom-metadata"), "{refused:?}");
        assert_eq!(refused.json()["field"], "--custom-metadata", "{refused:?}");
    }
}
