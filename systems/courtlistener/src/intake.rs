//! From a file of ids to jobs, piece by piece.
//!
//! Every piece is pushed under an id made of the run and what is in it. A node that died and nodes with the same file
//! push the same pieces, and the queue takes each of them once. What the run has processed is left out.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, BufRead as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use quaymaster::Code;
use quaymaster::queue::{Push, Queue};
use quaymaster::run::Run;
use ring::digest::{Context, SHA256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::docket::Docket;
use crate::patience::Patience;

/// Dockets of one piece.
pub(crate) const PIECE: usize = 500;
/// Longer lines hold no id.
const LONGEST_LINE: u64 = 4096;
/// Bad lines that are told one by one.
const TOLD: u64 = 20;

/// What a file held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Intake {
    /// Ids, each counted once.
    pub(crate) dockets: u64,
    /// Lines with an id that was there before.
    pub(crate) repeated: u64,
    /// Lines that hold no id.
    pub(crate) bad: u64,
    /// Dockets pushed by us.
    pub(crate) pushed: u64,
    /// Dockets the run had processed already.
    pub(crate) done: u64,
}

/// Reads the file and pushes what is in it, waiting while the queue is full or the store is away.
pub(crate) async fn load(
    file: &Path,
    queue: &Queue,
    run: &Run,
    run_id: &str,
    stop: &CancellationToken,
) -> anyhow::Result<Intake> {
    let (pieces, mut next) = mpsc::channel(2);
    let path = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        read(io::BufReader::new(file), |piece| pieces.blocking_send(piece).is_ok())
            .with_context(|| format!("cannot read {}", path.display()))
    });
    let mut intake = Intake::default();
    while let Some(piece) = next.recv().await {
        let Some((pushed, done)) = push(&piece, queue, run, run_id, stop).await? else { break };
        intake.pushed += pushed;
        intake.done += done;
    }
    drop(next);
    let read = reading.await??;
    Ok(Intake { pushed: intake.pushed, done: intake.done, ..read })
}

/// Hands over the ids of a text in pieces, until `take` wants no more.
fn read(mut text: impl io::BufRead, mut take: impl FnMut(Vec<Docket>) -> bool) -> io::Result<Intake> {
    let (mut intake, mut seen) = (Intake::default(), HashSet::new());
    let (mut line, mut number) = (Vec::new(), 0_u64);
    let mut piece = Vec::new();
    loop {
        line.clear();
        let length = io::Read::take(&mut text, LONGEST_LINE).read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        number += 1;
        let cut = length as u64 == LONGEST_LINE && !line.ends_with(b"\n");
        if cut {
            skip_line(&mut text)?;
        }
        let parsed = match std::str::from_utf8(&line) {
            _ if cut => Err(format!("longer than {LONGEST_LINE} bytes")),
            Err(_) => Err("not UTF-8".to_owned()),
            Ok(line) => match line.trim_start_matches('\u{feff}').trim() {
                "" => continue,
                comment if comment.starts_with('#') => continue,
                id => Docket::parse(id),
            },
        };
        match parsed {
            Err(why) => {
                intake.bad += 1;
                if intake.bad <= TOLD {
                    tracing::warn!(line = number, "passed over: {why}");
                }
            }
            Ok(docket) if seen.contains(&docket) => intake.repeated += 1,
            Ok(docket) => {
                intake.dockets += 1;
                seen.insert(docket.clone());
                piece.push(docket);
                if piece.len() == PIECE && !take(std::mem::take(&mut piece)) {
                    return Ok(intake);
                }
            }
        }
    }
    if intake.bad > TOLD {
        tracing::warn!(more = intake.bad - TOLD, "further lines hold no id");
    }
    if !piece.is_empty() {
        take(piece);
    }
    Ok(intake)
}

fn skip_line(text: &mut impl io::BufRead) -> io::Result<()> {
    loop {
        let buffer = text.fill_buf()?;
        let (length, end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        text.consume(length);
        if end {
            return Ok(());
        }
    }
}

/// How many of a piece were pushed and how many were done; nothing when told to stop.
async fn push(
    piece: &[Docket],
    queue: &Queue,
    run: &Run,
    run_id: &str,
    stop: &CancellationToken,
) -> anyhow::Result<Option<(u64, u64)>> {
    let id = piece_id(run_id, piece);
    let items: Vec<&str> = piece.iter().map(Docket::as_str).collect();
    let mut patience = Patience::new(stop);
    loop {
        let asked = async {
            let left: HashSet<String> = run.remaining(run_id, &items).await?.into_iter().collect();
            let payloads: Vec<_> = piece
                .iter()
                .filter(|docket| left.contains(docket.as_str()))
                .map(|docket| docket.job().into())
                .collect();
            let done = (piece.len() - payloads.len()) as u64;
            if payloads.is_empty() {
                return Ok::<_, quaymaster::Error>((0, done));
            }
            let pushed = queue.push(Push { id: Some(id.clone()), ..Push::many(payloads) }).await?;
            Ok((pushed.accepted, done))
        };
        match asked.await {
            Ok(told) => return Ok(Some(told)),
            // Whoever fetches makes room.
            Err(error) if error.code == Code::QueueFull => {
                if !patience.pause(Duration::from_millis(500)).await {
                    return Ok(None);
                }
            }
            Err(error) => {
                if !patience.after(error).await? {
                    return Ok(None);
                }
            }
        }
    }
}

/// The same piece of the same run has the same id, whoever pushes it.
fn piece_id(run_id: &str, piece: &[Docket]) -> String {
    let mut context = Context::new(&SHA256);
    for part in std::iter::once(run_id).chain(piece.iter().map(Docket::as_str)) {
        // Neither holds one, so no two pieces read the same.
        context.update(part.as_bytes());
        context.update(b"\n");
    }
    context.finish().as_ref().iter().take(16).fold(String::from("piece-"), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn taken(text: &[u8]) -> (Vec<String>, Intake) {
        let mut ids = Vec::new();
        let intake = read(text, |piece| {
            assert!(piece.len() <= PIECE);
            ids.extend(piece.iter().map(ToString::to_string));
            true
        });
        (ids, intake.unwrap())
    }

    #[test]
    fn a_line_is_an_id_and_what_is_none_is_counted() {
        let (ids, intake) = taken(b"\xef\xbb\xbf1\r\n\n# a note\n 2 \nno id\n1\n\xff\n3");
        assert_eq!(ids, ["1", "2", "3"]);
        assert_eq!(intake, Intake { dockets: 3, repeated: 1, bad: 2, ..Intake::default() });
        assert_eq!(taken(b""), (Vec::new(), Intake::default()));
    }

    #[test]
    fn a_line_without_an_end_neither_fills_the_memory_nor_hides_what_follows() {
        let mut text = vec![b'1'; 3 * LONGEST_LINE as usize];
        text.extend(b"\n7\n");
        text.extend(vec![b'2'; LONGEST_LINE as usize - 1]);
        text.extend(b"\n8\n");
        let (ids, intake) = taken(&text);
        assert_eq!(ids, ["7", "8"]);
        assert_eq!((intake.bad, intake.dockets), (2, 2));
    }

    #[test]
    fn pieces_are_the_same_whoever_reads() {
        let text = (0..1_234).map(|id: u32| id.to_string()).collect::<Vec<_>>().join("\n");
        let pieces = || {
            let mut pieces = Vec::new();
            read(text.as_bytes(), |piece| {
                pieces.push(piece_id("run", &piece));
                true
            })
            .unwrap();
            pieces
        };
        assert_eq!(pieces().len(), 3);
        assert_eq!(pieces(), pieces());
        let two = [Docket::parse("1").unwrap(), Docket::parse("2").unwrap()];
        assert_ne!(piece_id("run", &two), piece_id("ruN", &two));
        assert_ne!(piece_id("run", &two), piece_id("run", &two[..1]));
    }
}
