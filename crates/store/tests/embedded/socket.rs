//! What the owner's socket does with strangers.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use quaymaster_store::Code;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;

fn hello(protocol: u32, version: &str) -> Vec<u8> {
    let mut body = Vec::from(0_u64.to_le_bytes());
    body.push(0);
    body.extend_from_slice(b"QMSOCKET");
    body.extend_from_slice(&protocol.to_le_bytes());
    body.extend_from_slice(&(version.len() as u32).to_le_bytes());
    body.extend_from_slice(version.as_bytes());
    [&(body.len() as u32).to_le_bytes(), body.as_slice()].concat()
}

/// Sends `bytes` and reads until the owner closes the connection or is silent for a while.
async fn send(dir: &std::path::Path, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut stream = UnixStream::connect(dir.join("socket")).await.unwrap();
    // The owner may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
    read.is_ok().then_some(answer)
}

#[tokio::test]
async fn garbage_ends_its_own_connection_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let _owner = open(dir.path()).await;
    let attached = open(dir.path()).await;
    let mine = hello(3, env!("CARGO_PKG_VERSION"));
    let frame = |body: &[u8]| [&(body.len() as u32).to_le_bytes(), body].concat();
    let unknown = frame(&[[1; 8].as_slice(), &[99]].concat());
    let huge = u32::MAX.to_le_bytes().to_vec();
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        frame(b"short and no hello"),
        [mine.clone(), unknown].concat(),
        [mine.clone(), huge].concat(),
        [mine.clone(), mine.clone()].concat(),
    ] {
        let closed = send(dir.path(), &garbage).await;
        assert!(closed.is_some(), "the connection stays open after {garbage:?}");
    }
    assert_eq!(int(&attached, &INCR, &["n"]).await.unwrap(), 1);
    assert_eq!(attached.health().retries, 0);
}

#[tokio::test]
async fn another_version_is_told_which_one_is_here() {
    let dir = tempfile::tempdir().unwrap();
    let _owner = open(dir.path()).await;
    for (protocol, version) in [(3, "0.0.0"), (4, env!("CARGO_PKG_VERSION"))] {
        let answer = send(dir.path(), &hello(protocol, version)).await.expect("the connection is closed");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text:?}");
    }
}

#[tokio::test]
async fn an_owner_of_another_version_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let real = open(dir.path()).await;
    // Somebody else answers at the socket: as an owner of version 9 would.
    std::fs::remove_file(dir.path().join("socket")).unwrap();
    let listener = tokio::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let other = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut body = Vec::from(0_u64.to_le_bytes());
        body.push(1);
        body.extend_from_slice(&7_u32.to_le_bytes());
        body.extend_from_slice(&5_u32.to_le_bytes());
        body.extend_from_slice(b"9.9.9");
        stream.write_u32_le(body.len() as u32).await.unwrap();
        stream.write_all(&body).await.unwrap();
        stream
    });
    let error = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.unwrap_err();
    assert_eq!(error.code, Code::StoreVersion);
    assert!(error.detail.contains("9.9.9"), "{error}");
    other.await.unwrap();
    drop(real);
}

/// The next frame without its length.
async fn frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut body = vec![0; stream.read_u32_le().await.unwrap() as usize];
    stream.read_exact(&mut body).await.unwrap();
    body
}

#[tokio::test]
async fn an_error_after_a_lost_reply_says_that_the_call_may_have_run() {
    let dir = tempfile::tempdir().unwrap();
    let real = open(dir.path()).await;
    let socket = dir.path().join("socket");
    std::fs::remove_file(&socket).unwrap();
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let owner = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        frame(&mut stream).await;
        // Welcome, and the time.
        let body = [[0; 8].as_slice(), &[0], &1_u64.to_le_bytes()].concat();
        stream.write_u32_le(body.len() as u32).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let call = frame(&mut stream).await;
        std::fs::remove_file(&socket).unwrap();
        call[8]
    });
    let options = EmbeddedOptions { deadline: Duration::from_millis(300), ..EmbeddedOptions::default() };
    let attached = EmbeddedStore::open(dir.path(), options).await.unwrap();
    let error = attached.run(call(&INCR, &["n"], &[]).repeat_safe()).await.unwrap_err();
    assert_eq!(owner.await.unwrap(), 1, "the owner has read a call");
    assert!(error.may_have_run, "{error}");
    assert_eq!(error.code, Code::StoreLost, "{error}");
    // The folder is locked and nobody answers there: this one went nowhere.
    let error = attached.run(call(&INCR, &["n"], &[]).repeat_safe()).await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (Code::StoreRefused, false), "{error}");
    drop(real);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_stalls_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path()).await;
    let attached = open(dir.path()).await;
    let mut deaf = UnixStream::connect(dir.path().join("socket")).await.unwrap();
    deaf.write_all(&hello(3, env!("CARGO_PKG_VERSION"))).await.unwrap();
    // Requests without end, answers never read: TIME, again and again.
    let pump = tokio::spawn(async move {
        for id in 1_u64.. {
            let body = [id.to_le_bytes().as_slice(), &[3]].concat();
            let frame = [&(body.len() as u32).to_le_bytes(), body.as_slice()].concat();
            if deaf.write_all(&frame).await.is_err() {
                return;
            }
        }
    });
    for n in 1..=200 {
        assert_eq!(int(&attached, &INCR, &["n"]).await.unwrap(), n);
    }
    assert_eq!(int(&owner, &INCR, &["n"]).await.unwrap(), 201);
    pump.abort();
}

#[tokio::test]
async fn the_folder_and_its_socket_are_the_users_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("made/here");
    let _owner = open(&folder).await;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("socket"))), (0o700, 0o600));
}

/// A perl program run as the user nobody, which every Debian has; it prints a line when it is ready. Needs root.
fn as_nobody(program: &str, path: &std::path::Path) -> std::process::Child {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--reuid", "65534", "--clear-groups", "--"]);
    command
        .args(["perl", "-MIO::Socket::UNIX", "-e", program])
        .arg(path)
        .stdout(std::process::Stdio::piped());
    command.spawn().unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn a_socket_that_another_user_serves_is_not_attached_to() {
    if !is_root() {
        return;
    }
    let (dir, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::set_permissions(theirs.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = "$| = 1; my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 9) or die; print qq(ready\\n); \
                   while (my $c = $s->accept) { print $c 'welcome' }";
    let mut child = as_nobody(program, &theirs.path().join("socket"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    // The lock is held, so whoever opens the folder attaches to whatever listens there.
    let lock = std::fs::File::create(dir.path().join("lock")).unwrap();
    lock.lock().unwrap();
    std::fs::rename(theirs.path().join("socket"), dir.path().join("socket")).unwrap();
    let error = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.unwrap_err();
    assert_eq!(error.code, Code::StoreFolder, "{error}");
    assert!(error.detail.contains("user 65534"), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_process_of_another_user_is_not_answered_even_where_it_can_connect() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _owner = open(dir.path()).await;
    for (path, mode) in [(dir.path().to_owned(), 0o711), (dir.path().join("socket"), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let program = "$| = 1; $SIG{PIPE} = 'IGNORE'; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die; \
                   print 'connected '; print $s 'hello'; \
                   $s->flush; my $n = sysread($s, my $b, 10); print $n ? 'answered' : 'closed'";
    let path = dir.path().join("socket");
    let child = tokio::task::spawn_blocking(move || as_nobody(program, &path).wait_with_output().unwrap());
    let said = String::from_utf8(child.await.unwrap().stdout).unwrap();
    assert!(said.starts_with("connected ") && !said.contains("answered"), "{said:?}");
}
