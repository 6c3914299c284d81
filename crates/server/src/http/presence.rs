//! Whether whoever asked is still there: a connection whose other end can be noticed to be gone while an answer is
//! being waited for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::BufMut as _;
use rustix::io::Errno;
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::socket::Socket;

/// What is read at once while no more than so many connections bring much, so that many have little more memory than a
/// few. A little less than a power of two: a connection's buffer doubles whenever a read has filled it.
const READS: [(usize, usize); 2] = [(8, 31 * 1024), (32, 15 * 1024)];

/// The same with more of them; who brings as much at once brings much.
const LEAST: usize = 7 * 1024;

/// Memory is the process's, whatever listeners it has.
static EVERYBODY: Crowd = Crowd(AtomicUsize::new(0));

/// On how many connections much is coming in.
#[derive(Debug)]
struct Crowd(AtomicUsize);

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Arc<Socket>,
    crowd: &'static Crowd,
    /// Whether it is counted among the crowd.
    brings_much: bool,
}

/// The other end, as far as it can be seen from here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Presence(Option<(Arc<Socket>, Goodbye)>);

/// How the other end takes its leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goodbye {
    /// There is nothing more to read.
    Silent,
    /// TLS: there is a last record to read before that. It is encrypted, so that only the end of the connection behind it
    /// tells it from a request.
    Said,
}

impl Stream {
    pub(crate) fn new(socket: Socket) -> Self {
        Self::among(socket, &EVERYBODY)
    }

    fn among(socket: Socket, crowd: &'static Crowd) -> Self {
        Self { socket: Arc::new(socket), crowd, brings_much: false }
    }

    /// Learns from what came at once.
    fn heard(&mut self, count: usize) {
        self.set(count >= if self.brings_much { LEAST / 2 } else { LEAST });
    }

    /// So much may come at once. The first read of a body fills no buffer: there may be many that begin.
    fn most(&self) -> usize {
        if self.brings_much { self.crowd.most() } else { LEAST }
    }

    /// Whoever is answered has sent what there was.
    fn answers(&mut self) {
        self.set(false);
    }

    fn set(&mut self, much: bool) {
        match (self.brings_much, much) {
            (false, true) => _ = self.crowd.0.fetch_add(1, Relaxed),
            (true, false) => _ = self.crowd.0.fetch_sub(1, Relaxed),
            _ => {}
        }
        self.brings_much = much;
    }

    pub(crate) fn presence(&self) -> Presence {
        Presence(Some((self.socket.clone(), Goodbye::Silent)))
    }

    /// The same where what is sent is encrypted.
    pub(crate) fn encrypted_presence(&self) -> Presence {
        Presence(Some((self.socket.clone(), Goodbye::Said)))
    }
}

impl Presence {
    /// Ends when the other end has closed its side or is gone. One that went without a word is not noticed, and one
    /// that has sent more is there.
    pub(crate) async fn gone(&self) {
        let gone = match &self.0 {
            None => false,
            Some((socket, Goodbye::Silent)) => matches!(socket.peek().await, Ok(0) | Err(_)),
            Some((socket, Goodbye::Said)) => socket.closed().await.is_ok(),
        };
        if !gone {
            std::future::pending::<()>().await;
        }
    }

    /// Whether it is gone now: asked of the system itself, which may know before we are told.
    pub(crate) fn is_gone(&self) -> bool {
        let Some((socket, goodbye)) = &self.0 else { return false };
        if *goodbye == Goodbye::Said {
            return socket.is_closed();
        }
        match socket.look() {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    /// Whether it has sent something that nobody has read yet.
    pub(crate) fn has_sent(&self) -> bool {
        self.0.as_ref().is_some_and(|(socket, goodbye)| {
            let last_words = *goodbye == Goodbye::Said && socket.is_closed();
            !last_words && socket.look().is_ok_and(|count| count > 0)
        })
    }
}

impl Crowd {
    fn most(&self) -> usize {
        let much = self.0.load(Relaxed);
        READS.iter().find(|(few, _)| much <= *few).map_or(LEAST, |(_, read)| *read)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.set(false);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            match self.socket.try_read_buf(&mut (&mut *buf).limit(self.most())) {
                Ok(count) => {
                    self.heard(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Stream {
    fn poll_out(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&Socket) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(cx))?;
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answers();
        self.poll_out(cx, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.answers();
        self.poll_out(cx, |socket| socket.try_write_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = rustix::net::shutdown(&*self.socket, Shutdown::Write);
        // The other end may have gone first.
        Poll::Ready(shut.or_else(|error| if error == Errno::NOTCONN { Ok(()) } else { Err(error.into()) }))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap is a failed test")]

    use quaymaster_testkit::servers::any_port;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn tcp(stream: &Stream) -> &TcpStream {
        match &*stream.socket {
            Socket::Tcp(socket) => socket,
            Socket::Unix(_) => panic!("a TCP connection"),
        }
    }

    async fn pair(listener: &TcpListener, crowd: &'static Crowd) -> (TcpStream, Stream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, Stream::among(listener.accept().await.unwrap().0.into(), crowd))
    }

    /// Sends as much as a read takes by now, and reads it; how much that was.
    async fn bring(client: &mut TcpStream, stream: &mut Stream) -> usize {
        let patience = std::time::Duration::from_secs(60);
        tokio::time::timeout(patience, brought(client, stream)).await.expect("all that was sent comes")
    }

    async fn brought(client: &mut TcpStream, stream: &mut Stream) -> usize {
        let much = stream.most();
        client.write_all(&vec![7; much]).await.unwrap();
        // All of it is there before any of it is read.
        let mut seen = vec![0; much];
        while tcp(stream).peek(&mut seen).await.unwrap() < much {
            tokio::task::yield_now().await;
        }
        client.write_all(&[7]).await.unwrap();
        let mut read = vec![0; 1 << 20];
        let count = stream.read(&mut read).await.unwrap();
        let mut rest = count;
        while rest < much + 1 {
            rest += tcp(stream).try_read(&mut read).unwrap_or(0);
            tokio::task::yield_now().await;
        }
        count
    }

    #[tokio::test]
    async fn many_that_bring_much_bring_less_at_once() {
        let crowd: &'static Crowd = Box::leak(Box::new(Crowd(AtomicUsize::new(0))));
        let listener = TcpListener::bind(any_port()).await.unwrap();
        let (mut client, mut stream) = pair(&listener, crowd).await;
        assert_eq!(bring(&mut client, &mut stream).await, LEAST, "a body that begins");
        assert_eq!(bring(&mut client, &mut stream).await, READS[0].1);
        let mut others = Vec::new();
        for (few, read) in READS {
            while crowd.0.load(Relaxed) < few {
                let (mut client, mut stream) = pair(&listener, crowd).await;
                bring(&mut client, &mut stream).await;
                others.push((client, stream));
            }
            assert_eq!(bring(&mut client, &mut stream).await, read);
        }
        let (mut one_more, mut too_many) = pair(&listener, crowd).await;
        bring(&mut one_more, &mut too_many).await;
        assert_eq!(bring(&mut client, &mut stream).await, LEAST);
        // Answered, gone, or with little to say: each is out of the crowd.
        let all = crowd.0.load(Relaxed);
        too_many.write_all(b"answer").await.unwrap();
        let answer = [io::IoSlice::new(b"a"), io::IoSlice::new(b"b")];
        assert_eq!(others[0].1.write_vectored(&answer).await.unwrap(), 2);
        drop(others.pop());
        let (client, stream) = others.last_mut().unwrap();
        client.write_all(b"little").await.unwrap();
        assert_eq!(stream.read(&mut [0; 64]).await.unwrap(), 6);
        assert_eq!(crowd.0.load(Relaxed), all - 4);
        drop((others, too_many));
        assert_eq!(crowd.0.load(Relaxed), 1);
    }
}
