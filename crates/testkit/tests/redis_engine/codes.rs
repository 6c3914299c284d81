//! What a real server says, as the code a caller sees.

use std::time::{Duration, Instant};

use quaymaster_store::redis::RedisStore;
use quaymaster_store::{Code, Effect, Engine, Reply};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer, any_port, free_address};

use crate::support::{call, code, connect, count, counted, fails_with, options, until};

async fn refused_at_connect(url: &str) -> Code {
    RedisStore::connect(options(url)).await.map(|_| ()).unwrap_err().code
}

#[tokio::test]
async fn wrong_credentials_are_told_at_once() {
    let server = RedisServer::start(RedisConfig::default().line("requirepass secret"));
    let address = server.address();
    let began = Instant::now();
    assert_eq!(refused_at_connect(&server.url()).await, Code::StoreAuth);
    assert_eq!(refused_at_connect(&format!("redis://:wrong@{address}")).await, Code::StoreAuth);
    assert_eq!(refused_at_connect(&format!("redis://nobody:secret@{address}")).await, Code::StoreAuth);
    assert!(began.elapsed() < options(&server.url()).deadline, "waiting does not mend a password");
    connect(&format!("redis://:secret@{address}")).await;
    connect(&format!("redis://default:secret@{address}/3")).await;
    let far = format!("redis://:secret@{address}/4711");
    assert_eq!(refused_at_connect(&far).await, Code::ConfigInvalid);
}

async fn acl_user_is_held_to_its_rights(binary: Binary) {
    // A user of scripts on its own keys and nothing else: no INFO, no CLIENT, no SCRIPT.
    let rights = "user narrow on >pw ~mine:* -@all +evalsha +eval +incr +get +ping +time";
    let server = RedisServer::start(RedisConfig::of(binary).line(rights));
    let store = connect(&format!("redis://narrow:pw@{}", server.address())).await;
    assert_eq!(counted(&store, "mine:k").await, 1);
    assert_eq!(code(store.run(count("theirs:k")).await), Code::StorePermission);
    let forbidden = "return redis.call('SET', KEYS[1], 'x')";
    assert_eq!(code(store.run(call(forbidden, Effect::Writes, "mine:k")).await), Code::StoreScript);
    let undeclared = "return redis.call('GET', 'theirs:k')";
    assert_eq!(code(store.run(call(undeclared, Effect::Reads, "mine:k")).await), Code::StoreScript);
}

#[tokio::test]
async fn an_acl_user_is_held_to_its_rights_on_redis_7() {
    acl_user_is_held_to_its_rights(Binary::Redis7).await;
}

#[tokio::test]
async fn an_acl_user_is_held_to_its_rights_on_valkey() {
    acl_user_is_held_to_its_rights(Binary::Valkey9).await;
}

#[tokio::test]
async fn an_acl_user_is_held_to_its_rights_on_redis_6_2() {
    acl_user_is_held_to_its_rights(Binary::Redis62).await;
}

async fn full_memory_refuses_and_changes_nothing(binary: Binary) {
    let server = RedisServer::start(RedisConfig::of(binary));
    let store = connect(&server.url()).await;
    counted(&store, "k").await;
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(code(store.run(count("k")).await), Code::StoreOom);
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(counted(&store, "k").await, 2);
}

#[tokio::test]
async fn full_memory_is_told_apart_on_redis_7() {
    full_memory_refuses_and_changes_nothing(Binary::Redis7).await;
}

#[tokio::test]
async fn full_memory_is_told_apart_on_redis_6_2() {
    full_memory_refuses_and_changes_nothing(Binary::Redis62).await;
}

#[tokio::test]
async fn a_replica_is_told_apart_and_becomes_useful_when_promoted() {
    let primary = RedisServer::start(RedisConfig::default());
    let replica = RedisServer::start(RedisConfig::default().line(primary.followed_by()));
    let mut config = options(&replica.url());
    config.deadline = Duration::from_millis(300);
    let impatient = RedisStore::connect(config).await.unwrap();
    fails_with(&impatient, &count("k"), Code::StoreReadOnly).await;

    let patient = connect(&replica.url()).await;
    let (answer, ()) = tokio::join!(patient.run(count("k")), async {
        until("the call was refused once", async || patient.health().retries > 0).await;
        replica.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    });
    assert_eq!(answer.unwrap(), Reply::Int(1));
}

#[tokio::test]
async fn a_busy_server_is_waited_for_and_the_call_runs_once() {
    let server = RedisServer::start(RedisConfig::default().line("lua-time-limit 20"));
    let store = connect(&server.url()).await;
    let mut config = options(&server.url());
    config.deadline = Duration::from_secs(2);
    let impatient = RedisStore::connect(config).await.unwrap();
    let mut endless = server.client().await;
    let spin = tokio::spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<()>(&mut endless).await
    });
    until("the script is noticed", async || {
        server.try_command::<String>(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    fails_with(&impatient, &count("k"), Code::StoreBusy).await;
    let (answer, ()) = tokio::join!(store.run(count("k")), async {
        until("the call was refused once", async || store.health().retries > 0).await;
        server.command::<()>(&["SCRIPT", "KILL"]);
    });
    assert_eq!(answer.unwrap(), Reply::Int(1));
    assert!(spin.await.unwrap().is_err());
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses_writes() {
    let server = RedisServer::start(RedisConfig::default().line("save 3600 1"));
    let store = connect(&server.url()).await;
    // A folder where the file should be: the save fails whoever runs the test.
    std::fs::create_dir(server.folder().join("dump.rdb")).unwrap();
    std::fs::write(server.folder().join("dump.rdb/x"), "").unwrap();
    let _ = server.try_command::<()>(&["BGSAVE"]);
    until("the save failed", async || {
        server.info("persistence", "rdb_last_bgsave_status").is_some_and(|status| status == "err")
    })
    .await;
    assert_eq!(code(store.run(count("k")).await), Code::StoreMisconf);
    std::fs::remove_dir_all(server.folder().join("dump.rdb")).unwrap();
    server.command::<()>(&["SAVE"]);
    assert_eq!(counted(&store, "k").await, 1);
}

#[tokio::test]
async fn a_server_that_loads_is_waited_for() {
    let mut server = RedisServer::start(RedisConfig::default());
    let fill = "for i = 1, 2500 do redis.call('SET', 'k' .. i, string.rep('x', 500)) end";
    server.command::<()>(&["EVAL", fill, "0"]);
    server.command::<()>(&["SAVE"]);
    let store = connect(&server.url()).await;
    counted(&store, "n").await;
    server.kill9();
    // Each key takes two milliseconds to load, and questions are answered in between.
    let url = server.url();
    let config = server.folder().join("server.conf");
    let lines = std::fs::read_to_string(&config).unwrap();
    let slow = format!("{lines}\nkey-load-delay 2000\nloading-process-events-interval-bytes 1024\n");
    std::fs::write(&config, slow).unwrap();
    let log = server.folder().join("server.log");
    let args = [config.display().to_string()];
    let _loading = quaymaster_testkit::servers::Process::spawn(&Binary::Redis7.path(), &args, &[], &log);
    let ask = || {
        let mut connection = redis::Client::open(url.as_str())?.get_connection()?;
        redis::cmd("PING").query::<String>(&mut connection)
    };
    until("it is loading", async || ask().is_err_and(|error| error.code() == Some("LOADING"))).await;
    let mut config = options(&server.url());
    config.deadline = Duration::from_secs(1);
    // On a busy machine the server may also be too slow to say anything; it must not be taken for ready.
    until("the store says that it loads", async || match RedisStore::connect(config.clone()).await {
        Ok(_) => panic!("a server that loads was taken for one that serves"),
        Err(error) if error.code == Code::StoreRefused => false,
        Err(error) => {
            assert_eq!(error.code, Code::StoreLoading);
            true
        }
    })
    .await;
    until("it has loaded", async || ask().is_ok()).await;
    until("the store is usable again", async || store.run(count("m")).await.is_ok()).await;
}

#[tokio::test]
async fn a_closed_port_and_an_unknown_name_are_refusals() {
    let free = free_address();
    assert_eq!(refused_at_connect(&format!("redis://{free}")).await, Code::StoreRefused);
    assert_eq!(refused_at_connect("redis://no-such-host.invalid:6379").await, Code::StoreRefused);
    assert_eq!(refused_at_connect("redis+unix:///no/such/socket").await, Code::StoreRefused);
}

#[tokio::test]
async fn a_server_that_is_something_else_is_told_apart() {
    let listener = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    });
    assert_eq!(refused_at_connect(&format!("redis://{address}")).await, Code::StoreProtocol);
}

#[tokio::test]
async fn a_unix_socket_works_like_a_port() {
    let server = RedisServer::start_with(RedisConfig::default(), |folder| {
        vec![format!("unixsocket {}", folder.join("redis.sock").display())]
    });
    let store = connect(&format!("redis+unix://{}", server.folder().join("redis.sock").display())).await;
    assert_eq!(counted(&store, "k").await, 1);
}
