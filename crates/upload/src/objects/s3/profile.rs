//! Credentials of a profile in shared files, and those that replace them there: no restart when they are renewed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;

use super::shared::{Choice, Found, Lack, Profile, Reason};
use super::text::{Seen, is_unchanged};
use crate::{Error, Result, Trouble};

/// Between two looks at the files.
const PAUSE: Duration = Duration::from_secs(3);

/// Longer no request waits for a disk: what it has is probably still good.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last keys that a profile was seen to have.
pub(super) struct ProfileCredentials {
    watch: Arc<Watch>,
}

struct Watch {
    profile: Profile,
    held: Mutex<Held>,
    /// One looks at a time, and whoever comes meanwhile waits for what is seen.
    turn: Arc<AsyncMutex<()>>,
}

struct Held {
    credential: Arc<AwsCredential>,
    seen: Vec<Seen>,
    /// What was wrong with the files the last time, and has been told.
    trouble: Option<String>,
    /// When they are to be looked at.
    due: Instant,
}

/// What a look at the files came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Looked {
    /// Nothing new.
    Same,
    /// Other keys from now on.
    Changed,
    /// There are no keys to be had, so those that were there last stay.
    Kept,
}

impl ProfileCredentials {
    /// `None`: there are none, and nobody said so. A profile that was chosen has them, or is refused.
    ///
    /// Waits for the disk, once.
    pub(super) fn open(profile: Profile) -> Result<Option<Self>> {
        let seen = profile.glance();
        let Found { credential, from } = match profile.search() {
            Ok(found) => found,
            Err(lack) => return without(&profile, lack),
        };
        let (name, file) = (&profile.name, from.display());
        tracing::debug!(profile = name, %file, "credentials of a shared file");
        if let Some(key) = profile.unfollowed() {
            tracing::warn!(profile = name, key, "not supported: the profile's own keys are used as they are");
        }
        let held = Held { credential: credential.into(), seen, trouble: None, due: Instant::now() + PAUSE };
        let watch = Watch { profile, held: Mutex::new(held), turn: Arc::default() };
        Ok(Some(Self { watch: watch.into() }))
    }

    async fn current(&self) -> Arc<AwsCredential> {
        let watch = &self.watch;
        if watch.is_due() && tokio::time::timeout(PATIENCE, self.look()).await.is_err() {
            let detail = format!("the disk does not answer for {} ms", PATIENCE.as_millis());
            watch.keep(detail);
        }
        Arc::clone(&watch.held.lock().credential)
    }

    async fn look(&self) {
        let turn = Arc::clone(&self.watch.turn).lock_owned().await;
        if !self.watch.is_due() {
            return;
        }
        let watch = Arc::clone(&self.watch);
        // The turn ends with the work, not with whoever waits for it: a disk that hangs has one thread, not all.
        let work = spawn_blocking(move || {
            let looked = watch.look();
            drop(turn);
            looked
        });
        if let Err(error) = work.await {
            self.watch.keep(error.to_string());
        }
    }
}

/// What it means that a profile has no keys.
fn without(profile: &Profile, Lack { reason, detail }: Lack) -> Result<Option<ProfileCredentials>> {
    let name = &profile.name;
    let trouble = match (profile.choice, reason) {
        // May pass: so looks a file that is being written.
        (_, Reason::Torn) | (Choice::Ours, Reason::Unreadable) => Trouble::Credentials,
        (Choice::Ours, Reason::Nothing | Reason::Unfollowed) => Trouble::Never,
        (Choice::Nobodys, Reason::Nothing) => return Ok(None),
        (Choice::Nobodys, Reason::Unfollowed | Reason::Unreadable) => {
            tracing::warn!(profile = name, detail, "no credentials from shared files; going on without them");
            return Ok(None);
        }
    };
    let (chosen, otherwise) = match profile.choice {
        Choice::Ours => (" of AWS_PROFILE", "name another profile, or unset AWS_PROFILE"),
        Choice::Nobodys => ("", "or remove it"),
    };
    let detail = format!(
        "objects: no credentials of the profile {name:?}{chosen}: {detail}. Give it aws_access_key_id and \
         aws_secret_access_key in one of these files, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, {otherwise}"
    );
    Err(Error::new("objects.open", trouble, detail))
}

impl Watch {
    fn is_due(&self) -> bool {
        self.held.lock().due <= Instant::now()
    }

    fn look(&self) -> Looked {
        let seen = self.profile.glance();
        let unchanged = is_unchanged(&self.held.lock().seen, &seen);
        // Without the lock: others sign meanwhile.
        match (!unchanged).then(|| self.profile.search()) {
            None => {
                self.held.lock().due = Instant::now() + PAUSE;
                Looked::Same
            }
            Some(Ok(found)) => self.take(found, seen),
            Some(Err(lack)) => {
                self.keep(lack.detail);
                Looked::Kept
            }
        }
    }

    fn take(&self, Found { credential, from }: Found, seen: Vec<Seen>) -> Looked {
        let (profile, file) = (&self.profile.name, from.display());
        let mut held = self.held.lock();
        held.due = Instant::now() + PAUSE;
        held.seen = seen;
        if held.trouble.take().is_some() {
            tracing::info!(profile, %file, "credentials can be read again");
        }
        if *held.credential == credential {
            return Looked::Same;
        }
        tracing::info!(profile, %file, "credentials have changed");
        held.credential = credential.into();
        Looked::Changed
    }

    /// Those that were there last; told once, however often it is seen.
    fn keep(&self, detail: String) {
        let mut held = self.held.lock();
        held.due = Instant::now() + PAUSE;
        // Read again, whatever they look like.
        held.seen.clear();
        if held.trouble.as_ref() != Some(&detail) {
            let profile = &self.profile.name;
            tracing::warn!(profile, detail, "credentials cannot be read; the last ones are kept");
            held.trouble = Some(detail);
        }
    }
}

/// Never shows the secret.
impl fmt::Debug for ProfileCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileCredentials").field("profile", &self.watch.profile).finish_non_exhaustive()
    }
}

impl CredentialProvider for ProfileCredentials {
    type Credential = AwsCredential;

    fn get_credential<'a, 'b>(&'a self) -> BoxFuture<'b, object_store::Result<Arc<AwsCredential>>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { Ok(self.current().await) })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::fs;
    use std::path::PathBuf;

    use tempfile::TempDir;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// A folder with a credentials file.
    struct Home {
        _folder: TempDir,
        file: PathBuf,
    }

    impl Home {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let home = Self { file: folder.path().join("credentials"), _folder: folder };
            home.write(text);
            home
        }

        fn write(&self, text: impl AsRef<[u8]>) {
            fs::write(&self.file, text).unwrap();
        }

        fn profile(&self, chosen: Option<&str>) -> Profile {
            Profile::of(|name| match name {
                "AWS_PROFILE" => chosen.map(str::to_owned),
                "AWS_SHARED_CREDENTIALS_FILE" => Some(self.file.to_str()?.to_owned()),
                _ => None,
            })
        }

        fn open(&self) -> ProfileCredentials {
            ProfileCredentials::open(self.profile(None)).unwrap().unwrap()
        }
    }

    fn keys(id: &str) -> String {
        format!(
            "[default]\naws_access_key_id = {id}\naws_secret_access_key = hush-{id}\naws_session_token = hush\n"
        )
    }

    async fn id(credentials: &ProfileCredentials) -> String {
        credentials.get_credential().await.unwrap().key_id.clone()
    }

    #[tokio::test]
    async fn keys_that_replace_others_are_used_from_the_next_look_on() {
        let home = Home::new(&keys("one"));
        let credentials = home.open();
        home.write(keys("two"));
        assert_eq!(id(&credentials).await, "one", "it is not looked at all the time");
        credentials.watch.held.lock().due = Instant::now();
        // Whoever comes first looks, and all of them get what is seen.
        let all = futures_util::future::join_all((0..20).map(|_| id(&credentials))).await;
        assert!(all.iter().all(|id| id == "two"), "{all:?}");
        assert!(!credentials.watch.is_due());
        assert_eq!(credentials.watch.look(), Looked::Same);
        home.write(keys("three"));
        assert_eq!(credentials.watch.look(), Looked::Changed);
        assert_eq!(id(&credentials).await, "three");
    }

    #[tokio::test]
    async fn a_file_that_looks_as_it_did_is_not_read_again() {
        let home = Home::new(&keys("one"));
        let rest = || {
            let file = fs::File::options().write(true).open(&home.file).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
        };
        rest();
        let credentials = home.open();
        home.write(keys("two"));
        rest();
        assert_eq!(credentials.watch.look(), Looked::Same);
        assert_eq!(id(&credentials).await, "one");
        home.write(keys("two"));
        assert_eq!(credentials.watch.look(), Looked::Changed);
    }

    #[tokio::test]
    async fn while_a_file_is_torn_the_last_keys_are_kept() {
        let home = Home::new(&keys("one"));
        let credentials = home.open();
        let whole = keys("two");
        for torn in [
            &b""[..],
            b"[default]\n",
            b"[default]\naws_access_key_id = two\n",
            b"[other]\naws_access_key_id = x\naws_secret_access_key = y\n",
            b"\xff\xfe\0\0",
            "#".repeat(2 << 20).as_bytes(),
        ] {
            home.write(torn);
            assert_eq!(credentials.watch.look(), Looked::Kept);
            assert_eq!(id(&credentials).await, "one");
        }
        fs::remove_file(&home.file).unwrap();
        assert_eq!(credentials.watch.look(), Looked::Kept);
        home.write(keys("one"));
        assert_eq!(credentials.watch.look(), Looked::Same);
        home.write(&whole);
        assert_eq!(credentials.watch.look(), Looked::Changed);
        assert_eq!(id(&credentials).await, "two");
    }

    #[tokio::test]
    async fn a_disk_that_does_not_answer_holds_nobody_up_for_long() {
        let home = Home::new(&keys("one"));
        let credentials = home.open();
        home.write(keys("two"));
        // Somebody has been looking for ever.
        let looking = Arc::clone(&credentials.watch.turn).lock_owned().await;
        credentials.watch.held.lock().due = Instant::now();
        assert_eq!(id(&credentials).await, "one");
        assert!(!credentials.watch.is_due(), "the next one does not even wait");
        drop(looking);
        credentials.watch.held.lock().due = Instant::now();
        assert_eq!(id(&credentials).await, "two");
    }

    #[test]
    fn a_profile_that_was_chosen_and_has_no_keys_is_refused() {
        let home = Home::new("[sso]\nsso_session = x\n[empty]\n[half]\naws_access_key_id = x\n");
        let file = home.file.to_str().unwrap();
        for (name, trouble, why) in [
            ("nobody", Trouble::Never, "has no [nobody]"),
            ("empty", Trouble::Never, "has [empty] without keys"),
            ("sso", Trouble::Never, "has [sso] with sso_session, which is not supported"),
            ("half", Trouble::Credentials, "has [half] with aws_access_key_id and no aws_secret_access_key"),
        ] {
            let error = ProfileCredentials::open(home.profile(Some(name))).unwrap_err();
            assert_eq!(error.trouble(), trouble, "{error}");
            let told = error.to_string();
            assert!(told.contains(&format!("{name:?} of AWS_PROFILE: {file} {why}. ")), "{told}");
            assert!(told.ends_with("or unset AWS_PROFILE"), "{told}");
        }
        home.write("\0");
        let error = ProfileCredentials::open(home.profile(Some("nobody"))).unwrap_err();
        assert_eq!(error.trouble(), Trouble::Credentials, "{error}");
    }

    #[test]
    fn a_default_profile_without_keys_is_done_without_unless_it_has_half_of_them() {
        let home = Home::new("");
        for (text, warnings) in
            [("", 0), ("[default]\n", 0), ("[other]\n", 0), ("[default]\nrole_arn = x\n", 1), ("\0", 1)]
        {
            home.write(text);
            let said = logged(|| assert!(ProfileCredentials::open(home.profile(None)).unwrap().is_none()));
            assert_eq!(said.len(), warnings, "{text:?}: {said:?}");
        }
        home.write("[default]\naws_secret_access_key = hush\n");
        let error = ProfileCredentials::open(home.profile(None)).unwrap_err();
        assert_eq!(error.trouble(), Trouble::Credentials);
        assert!(
            !error.to_string().contains("hush") && error.to_string().ends_with("or remove it"),
            "{error}"
        );
    }

    #[test]
    fn trouble_is_told_once_and_secrets_never() {
        let home = Home::new(&format!("{}role_arn = x\n", keys("one")));
        let mut shown = String::new();
        let said = logged(|| {
            let credentials = home.open();
            shown = format!("{credentials:?}");
            for text in ["[default]\naws_secret_access_key = hush", "hush = hush", &keys("two"), "hush\0"] {
                home.write(text);
                for _ in 0..3 {
                    let _ = credentials.watch.look();
                }
            }
        });
        assert!(!shown.contains("hush") && !said.concat().contains("hush"), "{shown} {said:?}");
        let told: Vec<_> =
            said.iter().filter_map(|line| line.split_once(' ')).map(|(level, _)| level).collect();
        assert_eq!(told, ["WARN", "WARN", "WARN", "INFO", "INFO", "WARN"], "{said:?}");
    }

    /// What is said meanwhile on this thread, from `INFO` on.
    fn logged(work: impl FnOnce()) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(Listener(Arc::clone(&lines)), work);
        let said = lines.lock();
        said.clone()
    }

    struct Listener(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Listener {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::INFO
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            self.0.lock().push(line.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            use fmt::Write as _;
            let _ = write!(self.0, " {field}={value:?}");
        }
    }
}
