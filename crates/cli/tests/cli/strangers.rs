//! `--server` that leads to something else than a server of Quaymaster: a proxy's page, a redirect, silence, noise.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Said, Started, any_port, command, folder, run, said};

/// Does this with every connection, once its request has come; the address and the requests.
fn stranger(act: impl Fn(&mut TcpStream) + Send + 'static) -> (String, Receiver<String>) {
    let listener = TcpListener::bind(any_port()).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            request(&mut stream, &tell);
            act(&mut stream);
        }
    });
    (url, told)
}

fn request(stream: &mut TcpStream, tell: &Sender<String>) {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap() > 0 {
        let last = head.lines().last().unwrap().to_ascii_lowercase();
        if let Some(told) = last.strip_prefix("content-length:") {
            length = told.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let _ = tell.send(head + &String::from_utf8_lossy(&body));
}

/// Always answers with these bytes, and closes.
fn saying(answer: impl Into<String>) -> (String, Receiver<String>) {
    let answer = answer.into();
    stranger(move |stream| stream.write_all(answer.as_bytes()).unwrap())
}

fn http(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn json_answer(status: &str, body: &str) -> String {
    http(status, "content-type: application/json\r\n", body)
}

/// Says nothing more until the other side has gone.
fn hold(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0; 64]);
}

const ACQUIRE: [&str; 6] = ["lock", "acquire", "payment", "--key", "id=geheim", "--json"];
const GET: [&str; 6] = ["cache", "get", "page", "--key", "id=geheim", "--json"];

fn ask(server: &str, words: &[&str]) -> Said {
    let folder = folder(&[]);
    run(folder.path(), &[words, &["--server", server]].concat())
}

#[test]
fn only_an_answer_to_the_call_is_done() {
    let page = "<html>\u{1b}[2J\u{1b}]0;mine\u{7} log in</html>";
    for answer in [
        http("200 OK", "content-type: text/html\r\n", page),
        json_answer("200 OK", page),
        http("200 OK", "", ""),
        http("200 OK", "content-type: application/json\r\n", ""),
        "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_owned(),
        json_answer("200 OK", "{}"),
        json_answer("200 OK", "[]"),
        json_answer("200 OK", r#"{"status":"ok"}"#),
        json_answer("200 OK", r#"{"outcome":"maybe"}"#),
        json_answer("200 OK", r#"{"hit":"perhaps"}"#),
        http("200 OK", "content-type: text/plain\r\n", r#"{"outcome":"ours","hit":true}"#),
    ] {
        let (server, _asked) = saying(answer.clone());
        let acquired = ask(&server, &ACQUIRE);
        assert_eq!(acquired.code, 3, "{answer:?}: {acquired:?}");
        let problem = acquired.json();
        assert_eq!(
            (&problem["code"], &problem["may_have_run"]),
            (&json!("server.answer"), &json!(true)),
            "{problem}"
        );
        let got = ask(&server, &GET);
        assert_eq!((got.code, got.json()["code"].clone()), (3, json!("server.answer")), "{answer:?}");
        assert_eq!(got.json()["may_have_run"], Value::Null, "looking changes nothing");
        let explained = ask(&server, &["explain", "page:geheim", "--json"]);
        let code = explained.json()["code"].clone();
        assert_eq!((explained.code, code), (3, json!("server.answer")), "{answer:?}");
        for said in [&acquired.err, &acquired.out, &got.err, &got.out, &ask(&server, &GET[..5]).out] {
            assert!(!said.contains(['\u{1b}', '\u{7}']), "{said:?}");
        }
    }
    let (server, _asked) = saying(json_answer("200 OK", r#"{"outcome":"ours","token":"t","new":1}"#));
    assert_eq!(ask(&server, &ACQUIRE).code, 0, "a server of another version may say more, or less");
    let (server, _asked) = saying(json_answer("200 OK", r#"{"hit":true,"value":"\ud800"}"#));
    assert_eq!(ask(&server, &GET).code, 0, "what others stored may be no text");
}

#[test]
fn a_page_is_no_stream() {
    for answer in [
        http("200 OK", "content-type: text/html\r\n", "<html>log in</html>"),
        json_answer("200 OK", "{}"),
        "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_owned(),
    ] {
        let (server, _asked) = saying(answer);
        let listened = ask(&server, &["event", "stream", "news"]);
        assert_eq!((listened.code, listened.out.as_str()), (3, ""), "{listened:?}");
        assert!(listened.err.contains("server.answer"), "{listened:?}");
    }
}

#[test]
fn a_redirect_takes_neither_the_call_nor_the_token_elsewhere() {
    let folder = folder(&[]);
    let (elsewhere, came) = saying(json_answer("200 OK", r#"{"outcome":"ours","hit":true}"#));
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let (server, asked) = saying(http(status, &format!("location: {elsewhere}/there\r\n"), ""));
        for words in [&ACQUIRE[..], &GET, &["event", "stream", "news"]] {
            let mut command = command(folder.path());
            command.args(words).args(["--server", &server]).env("QUAYMASTER_TOKEN", "secret-token");
            let told = said(&mut command);
            assert_eq!(told.code, 3, "{told:?}");
            assert!(told.err.contains(&format!("points to {elsewhere}/there")), "{told:?}");
            assert!(asked.recv().unwrap().contains("secret-token"));
        }
        assert!(asked.try_recv().is_err(), "once a call");
    }
    assert_eq!(came.try_recv().ok(), None, "nobody came there");
}

#[test]
fn a_token_that_no_header_can_hold_is_sent_nowhere() {
    let folder = folder(&[]);
    let (server, asked) = saying(json_answer("200 OK", r#"{"hit":false}"#));
    let mut acquire = command(folder.path());
    acquire.args(ACQUIRE).args(["--server", &server]).env("QUAYMASTER_TOKEN", "two\nlines of a file");
    let told = said(&mut acquire);
    assert_eq!((told.code, told.json()["code"].clone()), (2, json!("config.invalid")), "{told:?}");
    assert!(told.err.contains("QUAYMASTER_TOKEN") && !told.err.contains("lines of"), "{told:?}");
    assert!(asked.try_recv().is_err(), "nothing was sent");
}

#[test]
fn a_server_that_stops_speaking_is_given_up() {
    let folder = folder(&[]);
    for head in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        "HTTP/1.1 500 No\r\ncontent-type: application/problem+json\r\ncontent-length: 100\r\n\r\n{",
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 100\r\n\r\n<",
    ] {
        let (server, _asked) = stranger(move |stream| {
            stream.write_all(head.as_bytes()).unwrap();
            hold(stream);
        });
        let mut acquire = command(folder.path());
        acquire.args(ACQUIRE).args(["--server", &server]).env("QUAYMASTER_SERVER_TIMEOUT", "0.2");
        let told = said(&mut acquire);
        assert_eq!((told.code, told.json()["may_have_run"].clone()), (3, json!(true)), "{head}: {told:?}");
        let silent = head.is_empty() || head.contains("200 OK\r\ncontent-type: application/json");
        assert_eq!(told.err.contains("said nothing for 0.2 s"), silent, "{told:?}");
    }
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: listening\n\n";
    let (server, _asked) = stranger(move |connection| {
        connection.write_all(stream.as_bytes()).unwrap();
        hold(connection);
    });
    let told = ask(&server, &["event", "stream", "news", "--server-timeout", "0.2"]);
    assert!(told.code == 3 && told.err.contains("store.timed_out"), "{told:?}");
}

#[test]
fn an_answer_without_an_end_is_not_kept() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":\"",
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n",
        "HTTP/1.1 503 No\r\n\r\n",
    ] {
        let (server, _asked) = stranger(move |stream| {
            let noise = vec![b'a'; 1 << 20];
            let mut sent = stream.write_all(head.as_bytes());
            while sent.is_ok() {
                sent = stream.write_all(&noise);
            }
        });
        let told = ask(&server, &ACQUIRE);
        assert_eq!((told.code, told.json()["code"].clone()), (3, json!("server.answer")), "{head}");
        assert!(told.err.len() < 2000, "{}", told.err.len());
    }
}

#[test]
fn a_signal_ends_what_waits_for_a_silent_server() {
    let folder = folder(&[]);
    for words in [&["stats", "report", "web", "--watch"][..], &["event", "stream", "news"]] {
        let (server, asked) = stranger(hold);
        let mut waiting = command(folder.path());
        let waiting = Started::spawn(waiting.args(words).args(["--server", &server]));
        asked.recv().unwrap();
        let ended = waiting.stop_by(Signal::TERM);
        assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{ended:?}");
    }
}

#[test]
fn no_message_has_the_password_or_the_key() {
    let (server, asked) = stranger(|stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
        stream.write_all(head.as_bytes()).unwrap();
    });
    let (cut, _asked) = stranger(|_| ());
    let nobody = format!("http://{}", TcpListener::bind(any_port()).unwrap().local_addr().unwrap());
    for server in [&server, &cut, &nobody] {
        let with_password = server.replace("http://", "http://user:hunter2@");
        for words in [&ACQUIRE[..], &GET, &["event", "stream", "news", "--key", "id=geheim"]] {
            let told = ask(&with_password, words);
            assert_eq!(told.code, 3, "{told:?}");
            assert!(!format!("{told:?}").contains("hunter2"), "{told:?}");
            assert!(!format!("{told:?}").contains("geheim"), "{told:?}");
        }
    }
    assert!(asked.recv().unwrap().to_lowercase().contains("authorization: basic "), "a proxy may want them");
    let folder = folder(&[]);
    let help = said(
        command(folder.path())
            .args(["lock", "acquire", "--help"])
            .env("QUAYMASTER_SERVER", "http://user:hunter2@there"),
    );
    assert!(help.code == 0 && !help.out.contains("hunter2"), "{help:?}");
}

#[test]
fn a_secret_goes_to_another_machine_by_https_or_when_somebody_says_so() {
    let folder = folder(&[]);
    // Whatever leaves this machine would come to the proxy.
    let (proxy, asked) = saying(json_answer("200 OK", r#"{"hit":false}"#));
    let ask = |server: &str, token: &str| {
        let mut get = command(folder.path());
        get.args(GET).args(["--server", server]).env("http_proxy", &proxy).env("QUAYMASTER_TOKEN", token);
        get
    };
    let elsewhere = "http://192.0.2.1:7420";
    for (server, token) in [
        (elsewhere, "hunter2"),
        ("http://[2001:db8::1]:7420", "hunter2"),
        ("http://elsewhere.invalid", "hunter2"),
        ("http://user:hunter2@192.0.2.1:7420", ""),
    ] {
        let told = said(&mut ask(server, token));
        assert_eq!((told.code, &told.json()["code"]), (2, &json!("config.invalid")), "{server}: {told:?}");
        assert!(told.err.contains("--insecure-http") && told.err.contains("https://"), "{told:?}");
        assert!(!format!("{told:?}").contains("hunter2"), "{told:?}");
    }
    // With it a server listens without TLS; it says nothing about the token of a command.
    let listens = said(ask(elsewhere, "hunter2").env("QUAYMASTER_INSECURE_HTTP", "1"));
    assert_eq!(listens.code, 2, "{listens:?}");
    assert!(asked.try_recv().is_err(), "nothing was sent");
    let sent = |call: &mut Command| {
        let told = said(call);
        assert_eq!(told.code, 1, "a miss: {told:?}");
        asked.recv().unwrap().to_lowercase()
    };
    let authorization = "authorization: bearer hunter2";
    assert!(!sent(&mut ask(elsewhere, "")).contains("authorization:"));
    assert!(sent(ask(elsewhere, "hunter2").arg("--insecure-http")).contains(authorization));

    let (here, asked_here) = saying(json_answer("200 OK", r#"{"hit":false}"#));
    assert_eq!(said(&mut ask(&here, "hunter2")).code, 1);
    assert!(asked_here.try_recv().unwrap().to_lowercase().contains(authorization));
    assert!(asked.try_recv().is_err(), "no proxy leads to this machine");
}

#[test]
fn what_a_problem_says_is_told_here_too() {
    let problem = |status: &str, body: Value| {
        saying(http(status, "content-type: application/problem+json\r\n", &body.to_string())).0
    };
    let newer = json!({"code": "store.weird", "detail": "it did", "retry_after_ms": 42_000});
    let told = ask(&problem("500 Oh", newer.clone()), &ACQUIRE);
    let document = told.json();
    assert_eq!((told.code, &document["may_have_run"]), (3, &json!(true)), "{told:?}");
    assert_eq!(document["retry_after_ms"], 42_000, "{document}");
    assert!(told.err.contains("(store.weird): it did") && told.err.contains("retry in: 42.0 s"), "{told:?}");
    let read = ask(&problem("500 Oh", newer), &GET);
    assert_eq!((read.code, read.json()["may_have_run"].clone()), (3, Value::Null), "{read:?}");

    let full = json!({"code": "queue.full", "detail": "no room", "retry_after_ms": 42_000});
    let told = ask(&problem("429 Full", full), &ACQUIRE);
    let document = told.json();
    assert_eq!(
        (told.code, &document["code"], &document["detail"]),
        (1, &json!("queue.full"), &json!("no room"))
    );
    assert_eq!((&document["retry_after_ms"], &document["may_have_run"]), (&json!(42_000), &Value::Null));

    let told = ask(&saying(http("503 Away", "retry-after: 7\r\n", "<html>away</html>")).0, &ACQUIRE);
    let document = told.json();
    assert_eq!((told.code, &document["code"]), (3, &json!("server.answer")), "{told:?}");
    assert_eq!((&document["retry_after_ms"], &document["may_have_run"]), (&json!(7000), &json!(true)));
}

#[test]
fn an_address_and_a_name_lead_nowhere_else() {
    let (server, asked) = saying(json_answer("200 OK", r#"{"outcome":"ours"}"#));
    for tail in ["/?x=1", "?x=1", "#f", "/a#f"] {
        let told = ask(&format!("{server}{tail}"), &ACQUIRE);
        assert!(told.code == 2 && told.err.contains("--server has a query"), "{tail}: {told:?}");
    }
    for name in ["..", ".", ""] {
        let told = ask(&server, &["lock", "acquire", name, "--json"]);
        assert_eq!((told.code, told.json()["code"].clone()), (2, json!("resource.unknown")), "{told:?}");
        assert_eq!(ask(&server, &["event", "stream", name]).code, 2);
        assert_eq!(ask(&server, &["upload", "progress", name, "--upload-id", "a"]).code, 2);
    }
    assert_eq!(asked.try_recv().ok(), None, "nothing was asked");
    ask(&server, &["upload", "progress", "docu/../x y?", "--upload-id", "a"]);
    let asked = asked.recv().unwrap();
    assert!(asked.starts_with("GET /v1/upload/docu%2F..%2Fx%20y%3F/a HTTP"), "{asked}");
}

const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[test]
fn a_message_of_several_lines_is_one_line_and_a_look_alike_counts() {
    let events = "id: o.1\ndata: {\ndata:  \"a\":1\ndata: }\n\ndata: {\"missed\":2}\n\nid: o.4\ndata: {\"missed\":3}\n\n\
                  : missed\nid: o.5\ndata: {\"missed\":9}\n\nid: o.6\nevent: binary\ndata: aGk=\n\nid: o.7\ndata: 7\n\n";
    let (server, _asked) = stranger(move |stream| {
        stream.write_all(STREAM.as_bytes()).unwrap();
        // Cut anywhere.
        for piece in events.as_bytes().chunks(7) {
            stream.write_all(chunk(std::str::from_utf8(piece).unwrap()).as_bytes()).unwrap();
        }
        hold(stream);
    });
    let heard = ask(&server, &["event", "stream", "news", "--count", "3"]);
    assert_eq!(heard.code, 0, "{heard:?}");
    assert_eq!(heard.out, "{  \"a\":1 }\n{\"missed\":2}\n{\"missed\":3}\n{\"missed\":9}\nhi\n");
}

#[test]
fn a_stream_that_breaks_off_is_a_lost_server() {
    let (server, _asked) = stranger(|stream| {
        stream.write_all(format!("{STREAM}{}5\r\nda", chunk("id: o.1\ndata: 1\n\n")).as_bytes()).unwrap();
    });
    let heard = ask(&server, &["event", "stream", "news"]);
    assert_eq!((heard.code, heard.out.as_str()), (3, "1\n"), "{heard:?}");
    assert!(heard.err.contains("[store.lost]"), "{heard:?}");
    let (ended, _asked) = saying(format!("{STREAM}{}0\r\n\r\n", chunk("id: o.1\ndata: 1\n\n")));
    assert_eq!(ask(&ended, &["event", "stream", "news"]).code, 0, "a server that stops says so");
}

const SCHEMA: &str = "[schema]\nname = \"shop\"\n[cache.page]\nkey = \"page:{id}\"\nttl = \"1h\"\n";

#[test]
fn a_store_that_was_typed_is_meant_whatever_server_the_environment_has() {
    let folder = folder(&[("shop.toml", SCHEMA), ("settings.toml", "schemas = [\"shop.toml\"]\n")]);
    let (server, asked) = saying(json_answer("200 OK", r#"{"stored":true}"#));
    let put = |words: &[&str], environment: &[(&str, &str)]| {
        let mut put = command(folder.path());
        put.args(["cache", "put", "page", "--key", "id=a", "--value", "1"]).args(words);
        said(put.envs(environment.iter().copied()))
    };
    let variable = ("QUAYMASTER_SERVER", server.as_str());
    for words in [
        &["--store", "memory", "--schema", "shop.toml"][..],
        &["--schema", "shop.toml"],
        &["--config", "settings.toml"],
        &["--data-dir", "data", "--schema", "shop.toml"],
    ] {
        let done = put(words, &[variable]);
        assert_eq!((done.code, done.out.as_str()), (0, "stored  yes\n"), "{words:?}: {done:?}");
        assert_eq!(asked.try_recv().ok(), None, "{words:?}: the server was asked");
        let both = put(&[words, &["--server", &server, "--json"]].concat(), &[]);
        assert_eq!(both.code, 2, "{words:?}: {both:?}");
        assert!(both.err.contains("--server and --") && !both.err.contains("Usage"), "{both:?}");
        assert_eq!(both.json()["code"], "request.invalid");
    }
    assert_eq!(asked.try_recv().ok(), None, "nobody was asked");
    for (words, environment) in [
        (&[][..], &[variable][..]),
        (&[], &[variable, ("QUAYMASTER_STORE", "memory"), ("QUAYMASTER_SCHEMA", "shop.toml")]),
        (&["--server", &server], &[("QUAYMASTER_STORE", "memory"), ("QUAYMASTER_CONFIG", "settings.toml")]),
    ] {
        assert_eq!(put(words, environment).code, 0);
        assert!(asked.try_recv().is_ok(), "{words:?}: the server was not asked");
    }
}

#[test]
fn with_a_server_and_a_resource_no_settings_are_read() {
    let folder =
        folder(&[("quaymaster.toml", "this is = no settings"), ("a.txt", "a"), ("shop.toml", SCHEMA)]);
    let (server, asked) = saying(json_answer("403 No", r#"{"code":"auth.forbidden","detail":"no"}"#));
    let words = ["upload", "put", "a.txt", "--server", &server, "--resource", "documents"];
    let told = run(folder.path(), &words);
    assert!(told.code == 2 && told.err.contains("auth.forbidden"), "{told:?}");
    assert!(asked.recv().unwrap().starts_with("POST /v1/upload/documents/create "));
    // Which upload is meant is not looked up in a schema that may not be the server's.
    let unnamed = ["upload", "put", "a.txt", "--json"];
    let by_flag = run(folder.path(), &[&unnamed[..], &["--server", &server]].concat());
    let by_variable = said(command(folder.path()).args(unnamed).env("QUAYMASTER_SERVER", &server));
    for told in [by_flag, by_variable] {
        let document = told.json();
        assert_eq!((told.code, &document["code"]), (2, &json!("request.invalid")), "{told:?}");
        assert_eq!(document["field"], "--resource", "{told:?}");
        assert!(told.err.contains("--resource is needed with --server"), "{told:?}");
    }
    let both = run(folder.path(), &[&words[..], &["--schema", "shop.toml"]].concat());
    assert!(both.code == 2 && both.err.contains("--server and --schema exclude each other"), "{both:?}");
    assert_eq!(asked.try_recv().ok(), None, "nobody was asked");
}
