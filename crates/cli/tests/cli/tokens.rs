//! `tokens` in `[server]`: what may be written there, and what a server says of wrong ones.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use crate::process::{SCHEMA, Served, any_port, command, folder, said};

fn settings(tokens: &str) -> String {
    format!("schemas = [\"shop.toml\"]\n[server]\n{tokens}\n")
}

/// The status of a request with this token.
fn status(served: &Served, token: &str) -> String {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    let head = format!(
        "GET /v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    line.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn wrong_tokens_are_told_with_their_line() {
    for (tokens, part) in [
        (
            r#"tokens = [{ env = "A", role = "owner" }]"#,
            "must be \"read\", \"operate\", \"write\" or \"admin\"",
        ),
        (r#"tokens = [{ env = "A", name = "x" }, { env = "B", name = "x" }]"#, "another token has this name"),
        (
            r#"tokens = [{ env = "A", role = "read" }, { env = "A2", name = "x" }]"#,
            "another token has this text",
        ),
        (r#"tokens = [{ env = "A" }, { env = "A", name = "x" }]"#, "another token has this text"),
        (r#"tokens = [{ env = "A", name = "" }]"#, "server.tokens.name: must not be empty"),
        (r#"tokens = [{ env = "A", resources = [] }]"#, "server.tokens.resources: must not be empty"),
        (r#"tokens = [{ env = "A", resources = ["limits.psp"] }]"#, "did you mean \"limit\"?"),
        (r#"tokens = [{ env = "A", resources = ["queue"] }]"#, "is not a resource such as"),
        (r#"tokens = [{ env = "A", resource = ["queue.*"] }]"#, "did you mean `resources`?"),
        (r#"anonymous = "nobody""#, "server.anonymous: must be"),
        ("tokens = [{ env = \"A\" }]\nanonymous = \"read\"", "server.anonymous: with tokens"),
        (
            r#"tokens = [{ env = "A", resources = ["limit.order"] }]"#,
            "has no limit \"order\"; did you mean \"orders\"?",
        ),
    ] {
        let folder = folder(&[("quaymaster.toml", &settings(tokens)), ("shop.toml", SCHEMA)]);
        let mut serve = command(folder.path());
        serve.args(["serve", "--store", "memory", "--listen", &any_port()]);
        serve.env("A", "token-of-a-client").env("A2", "token-of-a-client").env("B", "token-of-another");
        let told = said(&mut serve);
        assert_eq!((told.code, told.err.contains(part)), (2, true), "{part}: {told:?}");
        assert!(!told.err.contains("token-of"), "{told:?}");
        let mut worker = command(folder.path());
        worker.args(["worker", "--store", "memory", "--metrics", &any_port()]);
        worker.env("A", "token-of-a-client").env("A2", "token-of-a-client").env("B", "token-of-another");
        let told = said(&mut worker);
        assert_eq!((told.code, told.err.contains(part)), (2, true), "worker: {part}: {told:?}");
    }
}

#[test]
fn tokens_that_others_could_read_on_the_way_end_a_start_with_2() {
    let folder =
        folder(&[("quaymaster.toml", &settings(r#"tokens = [{ env = "A" }]"#)), ("shop.toml", SCHEMA)]);
    // Beyond the loopback, and on no interface of this machine.
    let beyond = "192.0.2.1:7420";
    for words in [["serve", "--listen"], ["worker", "--metrics"]] {
        let start = |more: &[&str]| {
            let mut start = command(folder.path());
            start.args(words).args([beyond, "--store", "memory"]).args(more).env("A", "token-of-a-client");
            said(&mut start)
        };
        let told = start(&[]);
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{words:?}: {told:?}");
        assert!(told.err.contains("[server.tls]") && told.err.contains("--insecure-http"), "{told:?}");
        // Told so it goes on, to find that the address is not its own.
        let told = start(&["--insecure-http"]);
        assert!(told.err.contains("cannot listen on 192.0.2.1"), "{words:?}: {told:?}");
    }
}

#[test]
fn wrong_tokens_are_logged_by_address_and_never_shown() {
    let tokens = r#"tokens = [{ env = "A", resources = ["limit.orders"] }]"#;
    let folder = folder(&[("quaymaster.toml", &settings(tokens)), ("shop.toml", SCHEMA)]);
    let mut serve = command(folder.path());
    serve.args(["serve", "--store", "memory", "--listen", &any_port()]).env("A", "token-of-a-client");
    let served = Served::spawn(&mut serve);
    for _ in 0..3 {
        assert_eq!(status(&served, "token-of-nobody"), "401");
    }
    assert_eq!(status(&served, "token-of-a-client"), "200");
    let told = served.stop();
    let lines: Vec<&str> = told.err.lines().filter(|line| line.contains("none of ours")).collect();
    assert_eq!(lines.len(), 2, "the first and the second: {}", told.err);
    assert!(lines[1].contains("failures=2") && lines[1].contains("address=\"127."), "{}", lines[1]);
    assert!(!told.err.contains("token-of"), "{}", told.err);
}
