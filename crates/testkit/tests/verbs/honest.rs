//! An error that does not say `may_have_run` had no effect, whatever happened on the way.

use futures_util::{StreamExt as _, stream};
use quaymaster::Code;
use quaymaster_testkit::script_proxy::{ScriptProxy, Trick};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::cases::{CASES, Case};
use crate::runner::{Runner, changes, connect, dump};

const TRICKS: &[Trick] = &[
    Trick::Eat,
    Trick::Delay,
    Trick::Leave,
    Trick::Say(b"+OK\r\n"),
    Trick::Say(b"*1\r\n$7\r\nunheard\r\n"),
    Trick::Say(b"-ERR user_script:1: halfway script: 1f, on @user_script:1.\r\n"),
    Trick::Say(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    Trick::Refuse(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
    Trick::Refuse(b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n"),
];

/// Steps of a call that are met by a trick each, at most.
const STEPS: u64 = 4;
/// Cases at a time: most of each is waiting.
const AT_ONCE: usize = 12;

/// Plays one trick on one step of a case; answers what was wrong.
async fn try_one(
    server: &RedisServer,
    case: &Case,
    trick: Trick,
    step: u64,
    id: Option<&str>,
) -> Vec<String> {
    let what = format!("{:?} {} as {id:?}, {trick:?} on step {step}", case.call, case.fields);
    let prefix = format!("p{:08x}:", fastrand::u32(..));
    let folder = tempfile::tempdir().unwrap();
    let store = connect(&server.url()).await;
    let mut fields = case.prepare(&Runner::on(store.clone(), &prefix, folder.path())).await;
    if let Some(id) = id {
        fields = Case::asked_as(&fields, id);
    }
    let proxy = ScriptProxy::start(server.address()).await;
    let tricked = Runner::on(connect(&proxy.url()).await, &prefix, folder.path());
    let before = dump(&store, &prefix).await;
    proxy.play(trick, step);
    let answer = tricked.run(case.call, fields).await;
    // A call that was given up may still be on its way to the server, never behind what is asked now.
    let after = dump(&store, &prefix).await;
    let mut wrong = Vec::new();
    if let Err(error) = &answer {
        if !error.may_have_run && before != after {
            wrong.push(format!("{what}: {error}, and changed {:?}", changes(&before, &after)));
        }
        // Only that the trick was played makes an error of a case that is sound.
        if proxy.played() == 0 {
            wrong.push(format!("{what}: {error} without any trick"));
        }
        let unheard = matches!(trick, Trick::Say(said) if said[0] != b'-' && said[0] != b'H');
        // An upload that cannot be ended now is ended later, and says so under a code of its own.
        let told = matches!(error.code, Code::StoreReply | Code::UploadBackend);
        if unheard && !told {
            wrong.push(format!("{what}: {error} in place of store.reply"));
        }
    }
    wrong
}

/// How many scripts the case takes when nothing happens to it.
async fn steps(server: &RedisServer, case: &Case, id: Option<&str>) -> u64 {
    let prefix = format!("p{:08x}:", fastrand::u32(..));
    let folder = tempfile::tempdir().unwrap();
    let proxy = ScriptProxy::start(server.address()).await;
    let runner = Runner::on(connect(&proxy.url()).await, &prefix, folder.path());
    let mut fields = case.prepare(&runner).await;
    if let Some(id) = id {
        fields = Case::asked_as(&fields, id);
    }
    proxy.scripts();
    runner.run(case.call, fields).await.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    proxy.scripts().min(STEPS)
}

async fn try_all(kind: &str) {
    let server = RedisServer::start(RedisConfig::default());
    let mut tries = Vec::new();
    for case in CASES.iter().filter(|case| case.call.0 == kind) {
        for id in [None, Some("R1")] {
            let steps = steps(&server, case, id).await;
            assert!(steps > 0, "{case:?} asks the store nothing");
            for trick in TRICKS {
                tries.extend((0..steps).map(|step| (case, *trick, step, id)));
            }
        }
    }
    let wrong: Vec<Vec<String>> = stream::iter(tries)
        .map(|(case, trick, step, id)| try_one(&server, case, trick, step, id))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

macro_rules! kinds {
    ($($name:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            try_all(stringify!($name)).await;
        })*

        /// A kind that is not named here has no case either.
        #[test]
        fn every_kind_is_tried() {
            let named = [$(stringify!($name)),*];
            assert!(CASES.iter().all(|case| named.contains(&case.call.0)));
        }
    };
}

kinds! { limit lock idempotency cache dedupe guard batch event queue run stats upload }
