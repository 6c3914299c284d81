//! An error that does not say `may_have_run` had no effect, whatever happened on the way: neither on keys nor, for uploads,
//! on the rows of the ledger and on objects.

use std::path::Path;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::{Code, Engine};
use quaymaster_testkit::script_proxy::{ScriptProxy, Trick as Wire};
use quaymaster_testkit::servers::RedisServer;
use quaymaster_testkit::trickster::{Trick, Trickster};

use crate::cases::{CASES, Case};
use crate::durable;
use crate::runner::{Dump, Listener, Runner, Seen, changes, connect, dump};

/// On the wire to a Redis.
const WIRE: &[Wire] = &[
    Wire::Eat,
    Wire::Delay,
    Wire::Leave,
    Wire::Say(b"+OK\r\n"),
    Wire::Say(b"*1\r\n$7\r\nunheard\r\n"),
    Wire::Say(b"-ERR user_script:1: halfway script: 1f, on @user_script:1.\r\n"),
    Wire::Say(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    Wire::Refuse(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
    Wire::Refuse(b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n"),
];

/// In front of the embedded store.
const CALLS: &[Trick] = &[
    Trick::Lose,
    Trick::Refuse,
    Trick::Full,
    Trick::Say("OK"),
    Trick::Say("unheard"),
    Trick::Half,
    Trick::Fail,
];

/// No case has more steps: one that does would not be tried whole.
const STEPS: u64 = 16;
/// Cases at a time: most of each is waiting.
const AT_ONCE: usize = 12;

#[derive(Debug, Clone, Copy)]
enum Play {
    Wire(Wire),
    Call(Trick),
}

impl Play {
    /// Whether it is a reply that nobody understands, of a script that has run.
    fn is_unheard(self) -> bool {
        match self {
            Self::Wire(Wire::Say(said)) => said[0] != b'-' && said[0] != b'H',
            Self::Call(trick) => matches!(trick, Trick::Say(_)),
            Self::Wire(_) => false,
        }
    }
}

/// Where the cases run.
pub(crate) enum Place {
    Redis(Box<RedisServer>),
    Embedded,
}

/// A store, and the same behind something that plays tricks.
enum Tricked {
    Redis { store: Arc<dyn Engine>, behind: Arc<dyn Engine>, proxy: ScriptProxy },
    Embedded { store: Arc<dyn Engine>, behind: Arc<Trickster> },
}

impl Place {
    fn plays(&self) -> Vec<Play> {
        match self {
            Self::Redis(_) => WIRE.iter().copied().map(Play::Wire).collect(),
            Self::Embedded => CALLS.iter().copied().map(Play::Call).collect(),
        }
    }

    async fn open(&self) -> Tricked {
        match self {
            Self::Redis(server) => {
                let proxy = ScriptProxy::start(server.address()).await;
                let store = connect(&server.url()).await;
                Tricked::Redis { store, behind: connect(&proxy.url()).await, proxy }
            }
            Self::Embedded => {
                let store: Arc<dyn Engine> =
                    Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
                Tricked::Embedded { behind: Trickster::new(store.clone()), store }
            }
        }
    }
}

impl Tricked {
    fn store(&self) -> &Arc<dyn Engine> {
        match self {
            Self::Redis { store, .. } | Self::Embedded { store, .. } => store,
        }
    }

    fn behind(&self) -> Arc<dyn Engine> {
        match self {
            Self::Redis { behind, .. } => behind.clone(),
            Self::Embedded { behind, .. } => behind.clone(),
        }
    }

    fn play(&self, play: Play, step: u64) {
        match (self, play) {
            (Self::Redis { proxy, .. }, Play::Wire(trick)) => proxy.play(trick, step),
            (Self::Embedded { behind, .. }, Play::Call(trick)) => behind.play(trick, step),
            (_, play) => panic!("{play:?} is of another store"),
        }
    }

    fn played(&self) -> u64 {
        match self {
            Self::Redis { proxy, .. } => proxy.played(),
            Self::Embedded { behind, .. } => behind.played(),
        }
    }

    fn scripts(&self) -> u64 {
        match self {
            Self::Redis { proxy, .. } => proxy.scripts(),
            Self::Embedded { behind, .. } => behind.scripts(),
        }
    }
}

/// All that a call can change, as it was before.
struct Before {
    dump: Dump,
    published: Option<Listener>,
}

async fn look(store: &Arc<dyn Engine>, prefix: &str, folder: &Path) -> Dump {
    let mut found = dump(store, prefix).await;
    durable::add_to(&mut found, folder).await;
    found
}

impl Before {
    async fn of(case: &Case, store: &Arc<dyn Engine>, prefix: &str, folder: &Path) -> Self {
        let (kind, _, name) = case.call;
        let published = match kind {
            "event" => Some(Listener::on(store, format!("{prefix}{name}")).await),
            _ => None,
        };
        Self { dump: look(store, prefix, folder).await, published }
    }

    /// What has changed since.
    async fn changes(self, store: &Arc<dyn Engine>, prefix: &str, folder: &Path) -> Vec<String> {
        let mut after = look(store, prefix, folder).await;
        let heard = match self.published {
            Some(listener) => listener.count().await,
            None => 0,
        };
        after.extend((0..heard).map(|message| (format!("message {message}"), Seen::THERE)));
        changes(&self.dump, &after)
    }
}

/// One step of a case, under an id or without one, and what happens to it.
#[derive(Clone, Copy)]
struct Try<'a> {
    case: &'a Case,
    play: Play,
    step: u64,
    id: Option<&'static str>,
}

/// Answers what was wrong.
async fn try_one(place: &Place, Try { case, play, step, id }: Try<'_>) -> Vec<String> {
    let what = format!("{:?} {} as {id:?}, {play:?} on step {step}", case.call, case.fields);
    let prefix = format!("p{:08x}:", fastrand::u32(..));
    let folder = tempfile::tempdir().unwrap();
    let tricked = place.open().await;
    let store = tricked.store();
    let mut fields = case.prepare(&Runner::on(store.clone(), &prefix, folder.path())).await;
    if let Some(id) = id {
        fields = Case::asked_as(&fields, id);
    }
    let runner = Runner::on(tricked.behind(), &prefix, folder.path());
    runner.open_uploads(case.call.0).await;
    let before = Before::of(case, store, &prefix, folder.path()).await;
    tricked.play(play, step);
    let answer = runner.run(case.call, fields).await;
    // A call that was given up may still be on its way to the server, never behind what is asked now.
    let changed = before.changes(store, &prefix, folder.path()).await;
    let mut wrong = Vec::new();
    if let Err(error) = &answer {
        if !error.may_have_run && !changed.is_empty() {
            wrong.push(format!("{what}: {error}, and changed {changed:?}"));
        }
        // Only that the trick was played makes an error of a case that is sound.
        if tricked.played() == 0 {
            wrong.push(format!("{what}: {error} without any trick"));
        }
        // An upload that cannot be ended now is ended later, and says so under a code of its own.
        let told = matches!(error.code, Code::StoreReply | Code::UploadBackend);
        if play.is_unheard() && !told {
            wrong.push(format!("{what}: {error} in place of store.reply"));
        }
    }
    wrong
}

/// How many scripts the case takes when nothing happens to it. What it does then must be seen: an error could not be known
/// to be dishonest otherwise.
async fn steps(place: &Place, case: &Case, id: Option<&str>) -> u64 {
    let prefix = format!("p{:08x}:", fastrand::u32(..));
    let folder = tempfile::tempdir().unwrap();
    let tricked = place.open().await;
    let runner = Runner::on(tricked.behind(), &prefix, folder.path());
    let mut fields = case.prepare(&runner).await;
    if let Some(id) = id {
        fields = Case::asked_as(&fields, id);
    }
    runner.open_uploads(case.call.0).await;
    let before = Before::of(case, tricked.store(), &prefix, folder.path()).await;
    tricked.scripts();
    runner.run(case.call, fields).await.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let steps = tricked.scripts();
    let changed = before.changes(tricked.store(), &prefix, folder.path()).await;
    assert!(case.only_looks() || !changed.is_empty(), "{case:?} as {id:?} changes nothing that is looked at");
    assert!(steps > 0, "{case:?} asks the store nothing");
    assert!(steps <= STEPS, "{case:?} takes {steps} steps, of which {STEPS} would be tried: raise STEPS");
    steps
}

pub(crate) async fn try_all(place: &Place, kind: &str) {
    let mut tries = Vec::new();
    for case in CASES.iter().filter(|case| case.call.0 == kind) {
        for id in [None, Some("R1")] {
            let steps = steps(place, case, id).await;
            for play in place.plays() {
                tries.extend((0..steps).map(|step| Try { case, play, step, id }));
            }
        }
    }
    let wrong: Vec<Vec<String>> =
        stream::iter(tries).map(|one| try_one(place, one)).buffer_unordered(AT_ONCE).collect().await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A `POST` that a token for reading may send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_needs_only_the_role_read_changes_nothing() {
    let described = quaymaster_server::describe();
    let kinds = described["kinds"].as_array().unwrap().iter();
    let reads: Vec<(&str, &str)> = kinds
        .flat_map(|kind| kind["verbs"].as_array().unwrap().iter().map(move |verb| (kind, verb)))
        .filter(|(_, verb)| verb["role"] == "read")
        .map(|(kind, verb)| (kind["kind"].as_str().unwrap(), verb["verb"].as_str().unwrap()))
        .collect();
    let mut tried = 0;
    for case in CASES.iter().filter(|case| reads.contains(&(case.call.0, case.call.1))) {
        let folder = tempfile::tempdir().unwrap();
        let tricked = Place::Embedded.open().await;
        let runner = Runner::on(tricked.behind(), "p:", folder.path());
        let fields = case.prepare(&runner).await;
        let before = look(tricked.store(), "p:", folder.path()).await;
        runner.run(case.call, Case::asked_as(&fields, "R1")).await.unwrap();
        let after = look(tricked.store(), "p:", folder.path()).await;
        let changed = changes(&before, &after);
        assert!(changed.is_empty(), "{case:?} changed {changed:?}");
        tried += 1;
    }
    assert!(tried > 0, "no verb that writes needs only `read`");
}
