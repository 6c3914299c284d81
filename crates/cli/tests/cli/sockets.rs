//! `serve --listen unix:PATH`, and what a kept connection is told after SIGTERM.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::{Served, command, run};

#[test]
fn serve_listens_on_a_socket_file_until_it_is_told_to_stop() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("q.sock");
    let mut serve = command(folder.path());
    serve.args(["serve", "--store", "memory", "--listen", "unix:q.sock"]);
    let mut child = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let real = std::fs::canonicalize(folder.path()).unwrap().join("q.sock");
    let told =
        [&path, &real].map(|path| format!("quaymaster listening on unix:{} (store: memory", path.display()));
    assert!(told.iter().any(|told| line.starts_with(told)), "{line}");
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let second = run(folder.path(), &["serve", "--store", "memory", "--listen", "unix:q.sock"]);
    assert_eq!(second.code, 2, "{second:?}");
    assert!(second.err.contains("another server listens there"), "{second:?}");
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_request_on_a_kept_connection_is_answered_after_sigterm() {
    let folder = TempDir::new().unwrap();
    std::fs::write(
        folder.path().join("quaymaster.toml"),
        "[server]\nshutdown_drain = \"10m\"\nshutdown_grace = \"10m\"\n",
    )
    .unwrap();
    let served = Served::start(folder.path(), &["--store", "memory"]);
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let from = head.len();
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "no answer: {head}");
            if let Some(text) = head[from..].strip_prefix("content-length: ") {
                length = text.trim().parse().unwrap();
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        head
    };
    let mut kept = TcpStream::connect(&served.address).unwrap();
    assert!(ask(&mut kept).starts_with("HTTP/1.1 200"));
    served.signal(Signal::TERM);
    // Others see that it stops; the kept connection is still there.
    while ask(&mut TcpStream::connect(&served.address).unwrap()).starts_with("HTTP/1.1 200") {}
    let last = ask(&mut kept);
    assert!(last.starts_with("HTTP/1.1 503") && last.contains("connection: close\r\n"), "{last}");
    assert_eq!(served.ended(), 0);
}

#[test]
fn whoever_started_it_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notify");
    let heard = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    heard.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let hear = || {
        let mut text = [0; 64];
        let length = heard.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut serve = command(folder.path());
    serve.args(["serve", "--store", "memory", "--listen", &crate::process::any_port()]);
    let served = Served::spawn(serve.env("NOTIFY_SOCKET", &path));
    assert_eq!(hear(), "READY=1");
    let said = served.stop();
    assert_eq!((said.code, hear().as_str()), (0, "STOPPING=1"), "{}", said.err);
    let schema = "[schema]\nname = \"work\"\nowner = \"tests\"\n[upload.documents]\n";
    std::fs::write(folder.path().join("work.toml"), schema).unwrap();
    let mut work = command(folder.path());
    work.args(["worker", "--schema", "work.toml", "--upload", "documents"]).env("NOTIFY_SOCKET", &path);
    let working = Served::spawn_saying(&mut work, "quaymaster working on ");
    assert_eq!(hear(), "READY=1");
    let said = working.stop();
    assert_eq!((said.code, hear().as_str()), (0, "STOPPING=1"), "{}", said.err);
    // A socket that nobody has keeps nobody from starting.
    let mut serve = command(folder.path());
    serve.args(["serve", "--store", "memory", "--listen", &crate::process::any_port()]);
    let served = Served::spawn(serve.env("NOTIFY_SOCKET", folder.path().join("none")));
    assert_eq!(served.stop().code, 0);
}
