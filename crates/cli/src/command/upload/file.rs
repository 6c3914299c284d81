//! One file on its way: cut into chunks, sent several at once, sent again where that is asked for, compared at the end.

use std::borrow::Cow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use quaymaster::upload::{Last, MAX_CHUNKS, Status};
use quaymaster::{Code, Error};
use quaymaster_server::command::Fields;
use quaymaster_upload::{Hasher, Sha256};
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::args::Put;
use super::bar::{Bar, Doing};
use super::patience::patiently;
use super::reading::Reading;
use super::way::{Seen, Way};
use crate::failure::{Cause, Unreadable};

/// Between two looks at an upload whose chunks are all sent.
const LOOK: Duration = Duration::from_millis(100);
/// After so much waiting for its end it is said what for.
const QUIET: Duration = Duration::from_secs(10);
/// Uploads of one file that ended without an object, each of which takes a key.
const ENDED_MAX: u32 = 100;
/// Read at once when comparing.
const PIECE: usize = 1 << 20;

/// What a file became.
#[derive(Debug)]
pub(super) struct Uploaded {
    pub(super) upload_id: String,
    pub(super) node_id: String,
    pub(super) size: u64,
    /// Of the content as it was read back.
    pub(super) sha256: Option<Sha256>,
    /// Bytes that had been there before.
    pub(super) kept: u64,
}

pub(super) struct Sending<'a> {
    pub(super) way: &'a Way,
    pub(super) put: &'a Put,
    pub(super) path: &'a Path,
    /// Told how many bytes are sent, or were there.
    pub(super) bar: &'a Bar,
}

/// A file as it was when the upload began.
struct Source {
    path: PathBuf,
    size: u64,
    /// What tells it from every other file and from itself after a change.
    mark: String,
}

/// An upload, and how the file is cut for it.
struct Cut {
    upload_id: String,
    node_id: String,
    chunk: u64,
    count: u32,
}

impl Sending<'_> {
    pub(super) async fn run(&self) -> anyhow::Result<Uploaded> {
        let source = self.source().await?;
        let (cut, seen) = self.begin(&source).await?;
        let has = |number: &u32| seen.has.iter().any(|range| range.contains(number));
        let mut todo: Vec<u32> = (0..cut.count).filter(|number| !has(number)).collect();
        let kept: u64 = (0..cut.count).filter(has).map(|number| cut.length(&source, number)).sum();
        self.bar.more(kept);
        if seen.status == Status::Completed {
            todo.clear();
        }
        loop {
            self.send(&source, &cut, &todo).await?;
            match self.wait(&cut).await? {
                Some(again) => todo = again,
                None => break,
            }
        }
        self.bar.end();
        self.unchanged(&source, &cut).await?;
        let sha256 = if self.put.no_verify { None } else { Some(self.verify(&source, &cut).await?) };
        Ok(Uploaded { upload_id: cut.upload_id, node_id: cut.node_id, size: source.size, sha256, kept })
    }

    /// Refuses a file that is not what it was: its chunks are of several versions.
    async fn unchanged(&self, source: &Source, cut: &Cut) -> anyhow::Result<()> {
        let now = self.source().await?;
        if now.mark == source.mark {
            return Ok(());
        }
        let detail = format!(
            "{} has changed while it was sent: what upload {} holds is not the file as it is now; send it again",
            self.path.display(),
            cut.upload_id
        );
        Err(Error::new("upload.put", Code::UploadDigest, detail).into())
    }

    async fn source(&self) -> anyhow::Result<Source> {
        let unreadable =
            |why: Cause| Unreadable::because(format_args!("cannot read {}", self.path.display()), why);
        let path = tokio::fs::canonicalize(self.path).await.map_err(|error| unreadable(error.into()))?;
        let facts = tokio::fs::metadata(&path).await.map_err(|error| unreadable(error.into()))?;
        if !facts.is_file() {
            return Err(unreadable("it is not a file".into()).into());
        }
        // Before there is an upload of it.
        tokio::fs::File::open(&path).await.map_err(|error| unreadable(error.into()))?;
        let mark = format!(
            "{} {} {} {}.{}",
            facts.dev(),
            facts.ino(),
            facts.size(),
            facts.mtime(),
            facts.mtime_nsec()
        );
        Ok(Source { path, size: facts.size(), mark })
    }

    /// The upload of this file: the one that was begun before and goes on, or a new one.
    async fn begin(&self, source: &Source) -> anyhow::Result<(Cut, Seen)> {
        let put = self.put;
        let once =
            if put.again { format!("{}.{:?}", std::process::id(), Instant::now()) } else { String::new() };
        let (path, chunk_bytes) = (source.path.to_string_lossy(), put.chunk_bytes.to_string());
        let mut fields = put.fields(self.path)?;
        fields.insert("size".to_owned(), to_raw_value(&source.size)?);
        for ended in 0..ENDED_MAX {
            let nth = ended.to_string();
            let facts = [&*path, &source.mark, &once, &chunk_bytes, &nth].map(Cow::from);
            let facts =
                facts.into_iter().chain(idempotency_facts(&put.given.fields)).collect::<Vec<_>>().join("\0");
            let key = format!("put-{}", Sha256::of(facts.as_bytes()));
            fields.insert("idempotency_key".to_owned(), to_raw_value(&key)?);
            let began = patiently(|| self.way.create(&fields)).await?;
            let chunk = put.chunk_bytes.clamp(began.chunk_min_bytes, began.chunk_max_bytes);
            let chunk = chunk.max(source.size.div_ceil(u64::from(MAX_CHUNKS)));
            let count = u32::try_from(source.size.div_ceil(chunk).max(1)).unwrap_or(MAX_CHUNKS);
            let cut = Cut { upload_id: began.upload_id, node_id: began.node_id, chunk, count };
            match patiently(|| self.way.standing(&cut.upload_id)).await? {
                Some(seen) if seen.aborted || seen.status == Status::Expired => {}
                Some(seen) if seen.status == Status::Failed => {
                    patiently(|| self.way.resume(&cut.upload_id)).await?;
                    let again = patiently(|| self.way.standing(&cut.upload_id)).await?;
                    return Ok((cut, again.unwrap_or(seen)));
                }
                Some(seen) => return Ok((cut, seen)),
                // Forgotten between the two questions.
                None => {}
            }
        }
        let detail = format!("{ENDED_MAX} uploads of this file have ended without an object; use --again");
        Err(Error::new("upload.put", Code::UploadClosed, detail).into())
    }

    async fn send(&self, source: &Source, cut: &Cut, todo: &[u32]) -> anyhow::Result<()> {
        let sent = stream::iter(todo.iter().copied().map(|number| self.send_one(source, cut, number)));
        sent.buffer_unordered(usize::from(self.put.parallel)).try_for_each(|()| async { Ok(()) }).await
    }

    async fn send_one(&self, source: &Source, cut: &Cut, number: u32) -> anyhow::Result<()> {
        let bytes = cut.read(source, number).await?;
        let last = if number + 1 == cut.count { Last::Yes } else { Last::No };
        let shown = AtomicU64::new(0);
        let tell = |sent: u64| self.bar.moved(shown.swap(sent, Relaxed), sent);
        patiently(|| {
            // What was sent of it before is sent again.
            tell(0);
            self.way.chunk(&cut.upload_id, number, last, bytes.clone(), &tell)
        })
        .await?;
        tell(bytes.len() as u64);
        Ok(())
    }

    /// Waits until the object is there; chunks that are asked for again come back before.
    async fn wait(&self, cut: &Cut) -> anyhow::Result<Option<Vec<u32>>> {
        let (mut pause, since, mut told) = (LOOK, Instant::now(), None);
        loop {
            let Some(seen) = patiently(|| self.way.standing(&cut.upload_id)).await? else {
                return Err(Error::new("upload.put", Code::UploadUnknown, "the upload was forgotten").into());
            };
            match seen.status {
                Status::Completed => return Ok(None),
                Status::Failed | Status::Expired => {
                    let over = seen.aborted || seen.status == Status::Expired;
                    let then = if over { "the same command begins another" } else { self.put.afterwards() };
                    let why = seen.error.unwrap_or_default();
                    let detail = format!("upload {} is {}: {why}; {then}", cut.upload_id, seen.status);
                    return Err(Error::new("upload.put", Code::UploadClosed, detail).into());
                }
                _ if !seen.resend.is_empty() => return Ok(Some(seen.resend)),
                _ => {}
            }
            // Once for each reason: the first may come after it was said that something is waited for.
            if since.elapsed() >= QUIET
                && told.as_ref().is_none_or(|told| seen.error.is_some() && *told != seen.error)
            {
                self.say_waiting(cut, &seen);
                told = Some(seen.error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Nobody should sit before a bar that is full and a command that says nothing.
    fn say_waiting(&self, cut: &Cut, seen: &Seen) {
        let (what, done) = match seen.status {
            Status::Completing => ("waiting for the completion", "durable"),
            _ => ("waiting until its chunks are durable", "sent"),
        };
        let why = seen.error.as_deref().filter(|why| !why.is_empty());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let line = format!("all chunks of upload {} are {done}; {what}{why}", cut.upload_id);
        self.bar.waits(what, &line);
    }

    /// Reads the content back and compares it with the file.
    async fn verify(&self, source: &Source, cut: &Cut) -> anyhow::Result<Sha256> {
        let path = Arc::new(source.path.clone());
        let ours = tokio::task::spawn_blocking(move || -> std::io::Result<Sha256> {
            use std::io::Read as _;
            let mut file = std::fs::File::open(&*path)?;
            let (mut hasher, mut piece) = (Hasher::new(), vec![0; PIECE]);
            loop {
                match file.read(&mut piece)? {
                    0 => return Ok(hasher.finish()),
                    count => hasher.update(&piece[..count]),
                }
            }
        });
        let bar = Bar::new(Doing::Comparing, name_of(self.path), source.size);
        let mut content = Reading::begin(self.way, &cut.upload_id).await?;
        let mut hasher = Hasher::new();
        while let Some(piece) = content.next().await? {
            hasher.update(&piece);
            bar.more(piece.len() as u64);
        }
        let (theirs, ours) = (hasher.finish(), ours.await??);
        if theirs != ours {
            let detail = format!(
                "the content of upload {} has the SHA-256 {theirs}, the file {ours}: did it change meanwhile?",
                cut.upload_id
            );
            return Err(Error::new("upload.put", Code::UploadDigest, detail).into());
        }
        Ok(theirs)
    }
}

/// What the flags say of a file, as its upload's key has it. Keys must stay what they are: an upload that an earlier
/// version began goes on by its key.
fn idempotency_facts(fields: &Fields) -> Vec<Cow<'_, str>> {
    const ALWAYS: [&str; 4] = ["mime_type", "drive", "connector_id", "parent_id"];
    const FIRST: [&str; 4] = ["name", "path", "client_node_id", "custom_metadata"];
    let text = |value: &RawValue| match serde_json::from_str::<String>(value.get()) {
        Ok(text) => text,
        Err(_) => value.get().to_owned(),
    };
    let mut said: Vec<Cow<'_, str>> = ALWAYS
        .iter()
        .map(|name| fields.get(*name).map_or(Cow::Borrowed(""), |value| text(value).into()))
        .collect();
    let others =
        fields.keys().map(String::as_str).filter(|name| !ALWAYS.contains(name) && !FIRST.contains(name));
    for name in FIRST.into_iter().chain(others) {
        if let Some(value) = fields.get(name) {
            said.extend([name.into(), text(value).into()]);
        }
    }
    said
}

/// A file's name without its folder.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

impl Cut {
    fn length(&self, source: &Source, number: u32) -> u64 {
        let from = u64::from(number) * self.chunk;
        source.size.saturating_sub(from).min(self.chunk)
    }

    async fn read(&self, source: &Source, number: u32) -> anyhow::Result<Bytes> {
        let length = usize::try_from(self.length(source, number))?;
        let mut file = tokio::fs::File::open(&source.path).await?;
        file.seek(std::io::SeekFrom::Start(u64::from(number) * self.chunk)).await?;
        let mut bytes = BytesMut::zeroed(length);
        file.read_exact(&mut bytes).await.map_err(|error| {
            let what = format!("cannot read {}, which may have changed meanwhile", source.path.display());
            Unreadable::because(what, error)
        })?;
        Ok(bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_key_is_made_of_the_same_words_as_by_earlier_versions() {
        let given = |words: &[(&str, &str)]| {
            let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
            let fields = words.iter().map(|(name, value)| ((*name).to_owned(), raw(value))).collect();
            idempotency_facts(&fields).join(" ")
        };
        assert_eq!(given(&[]), "   ");
        let all = [
            ("client_node_id", r#""n""#),
            ("connector_id", r#""c""#),
            ("custom_metadata", r#"{ "a": 1 }"#),
            ("drive", r#""d""#),
            ("mime_type", r#""m""#),
            ("name", r#""f""#),
            ("parent_id", r#""u""#),
            ("path", r#""p""#),
        ];
        let words = r#"m d c u name f path p client_node_id n custom_metadata { "a": 1 }"#;
        assert_eq!(given(&all), words);
        assert_eq!(given(&[&all[..], &[("node_id", r#""i""#)]].concat()), format!("{words} node_id i"));
    }
}
