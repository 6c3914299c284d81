//! The embedded store equals a real server: random histories on both, replies and keyspace compared.
//!
//! A few hundred histories by default, ten thousand of each kind under `QUAYMASTER_SOAK=1`.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use quaymaster_store::embedded::Bug;
use quaymaster_testkit::differential::{Fixture, count, grammar, seed};
use quaymaster_testkit::servers::Binary;

async fn commands_agree(binary: Binary, short: u64, soak: u64) {
    let fixture = Fixture::start(binary).await;
    let histories = count(short, soak);
    let tally = match fixture.compare(seed()..seed() + histories).await {
        Ok(tally) => tally,
        Err(mismatch) => panic!("{mismatch}"),
    };
    println!(
        "{binary:?}: {} histories, {} steps, {} keys compared",
        tally.histories, tally.steps, tally.keys
    );
    assert_eq!(tally.histories, histories);
    // A history in which nothing works proves little: every command must have answered, and (those that
    // can fail at all) failed.
    for name in grammar::commands() {
        let (answers, errors) = tally.commands.get(name).copied().unwrap_or_default();
        println!("  {name:<18}{answers:>8} answers {errors:>7} errors");
        assert!(
            answers >= histories.min(1000) / 50,
            "{name}: only {answers} answers in {histories} histories"
        );
        // Few histories may leave a command out that hardly ever fails.
        assert!(errors >= 1 || histories < 1000, "{name}: no errors in {histories} histories");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_does_what_redis_7_does() {
    commands_agree(Binary::Redis7, 1000, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_does_what_redis_6_2_does() {
    commands_agree(Binary::Redis62, 1000, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_does_what_valkey_9_does() {
    commands_agree(Binary::Valkey9, 1000, 10_000).await;
}

async fn limits_agree(binary: Binary, short: u64, soak: u64) {
    let fixture = Fixture::start(binary).await;
    let histories = count(short, soak);
    let tally = match fixture.compare_limits(seed()..seed() + histories).await {
        Ok(tally) => tally,
        Err(mismatch) => panic!("{mismatch}"),
    };
    println!("{binary:?}: {tally:?}");
    assert_eq!(tally.histories, histories);
    let share = tally.calls / 20;
    assert!(tally.allowed > share && tally.limited > share && tally.errors > 0, "{tally:?}");
    assert!(tally.stale > 0 && tally.keys > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_limit_operation_answers_alike_on_redis_7() {
    limits_agree(Binary::Redis7, 400, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_limit_operation_answers_alike_on_redis_6_2() {
    limits_agree(Binary::Redis62, 200, 10_000).await;
}

async fn guards_agree(binary: Binary, short: u64, soak: u64) {
    let fixture = Fixture::start(binary).await;
    let histories = count(short, soak);
    let tally = match fixture.compare_guards(seed()..seed() + histories).await {
        Ok(tally) => tally,
        Err(mismatch) => panic!("{mismatch}"),
    };
    let mut answers: Vec<_> = tally.answers.iter().collect();
    answers.sort();
    println!(
        "{binary:?}: {} histories, {} calls, {} keys, {answers:#?}",
        tally.histories, tally.calls, tally.keys
    );
    assert_eq!(tally.histories, histories);
    assert!(tally.stale > 0 && tally.keys > 0, "{tally:?}");
    // A history in which everything is refused, or nothing is, proves little.
    for word in [
        "Enter Entered",
        "Enter Limited",
        "Enter InProgress",
        "Enter Finished",
        "Enter Mismatch",
        "Enter Held",
        "Enter key.malformed",
        "Enter key.wrong_type",
        "Leave Left",
        "Begin Started",
        "Begin Finished",
        "Begin InProgress",
        "Begin Mismatch",
        "Finish Finished",
        "Finish Lost",
        "Abandon Abandoned",
        "Abandon Lost",
        "Acquire Ours",
        "Acquire Held",
        "Renew Ours",
        "Renew Lost",
        "Release Released",
        "Release Lost",
        "Put Stored",
        "Get Hit",
        "Get Miss",
        "Exists Present",
        "Delete Deleted",
        "First First",
    ] {
        assert!(tally.answered(word) >= histories.min(400) / 100, "{word}: {}", tally.answered(word));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_idempotencies_guards_caches_and_dedupes_answer_alike_on_redis_7() {
    guards_agree(Binary::Redis7, 400, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_idempotencies_guards_caches_and_dedupes_answer_alike_on_redis_6_2() {
    guards_agree(Binary::Redis62, 200, 10_000).await;
}

async fn queues_agree(binary: Binary, short: u64, soak: u64) {
    let fixture = Fixture::start(binary).await;
    let histories = count(short, soak);
    let tally = match fixture.compare_queues(seed()..seed() + histories).await {
        Ok(tally) => tally,
        Err(mismatch) => panic!("{mismatch}"),
    };
    println!("{binary:?}: {tally:#?}");
    assert_eq!(tally.histories, histories);
    assert!(tally.keys > 0 && tally.jobs > histories, "{tally:?}");
    // A history in which everything is refused, or nothing is, proves little.
    for word in [
        "Push Pushed",
        "Push queue.full",
        "Push key.wrong_type",
        "Claim some",
        "Claim none",
        "Claim key.wrong_type",
        "Ack Acked",
        "Nack Retry",
        "Nack Dead",
        "Nack Lost",
        "Extend Ours",
        "Extend Lost",
        "Pressure Pressure",
        "Dead DeadPage",
        "Redrive Redriven",
        "Sweep Swept",
    ] {
        assert!(tally.answered(word) >= histories.min(300) / 100, "{word}: {}", tally.answered(word));
    }
    // Few histories may leave out what hardly ever happens.
    assert!(tally.answered("Ack queue.full") > 0 || histories < 1000, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_answer_alike_on_redis_7() {
    queues_agree(Binary::Redis7, 300, 5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_answer_alike_on_redis_6_2() {
    queues_agree(Binary::Redis62, 180, 5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_answer_alike_on_redis_7() {
    let fixture = Fixture::start(Binary::Redis7).await;
    let histories = count(240, 5_000);
    let tally = match fixture.compare_batches(seed()..seed() + histories).await {
        Ok(tally) => tally,
        Err(mismatch) => panic!("{mismatch}"),
    };
    println!("{tally:#?}");
    assert_eq!(tally.histories, histories);
    for word in
        ["Add Added", "Close Closed", "Close None", "List List", "Sweep Swept", "Detect Acked", "Take Took"]
    {
        assert!(tally.answered(word) >= histories / 4, "{word}: {}", tally.answered(word));
    }
}

async fn runs_agree(binary: Binary, short: u64, soak: u64) {
    let fixture = Fixture::start(binary).await;
    let histories = count(short, soak);
    let tally = match fixture.compare_runs(seed()..seed() + histories).await {
        Ok(tally) => tally,
        Err(mismatch) => panic!("{mismatch}"),
    };
    println!("{tally:#?}");
    assert_eq!(tally.histories, histories);
    for word in
        ["Start Started", "Processed Processed", "Failed Failed", "Show Some", "Sweep Swept", "Retry Retried"]
    {
        assert!(tally.answered(word) >= histories / 4, "{word}: {}", tally.answered(word));
    }
    for word in ["Finish RunState", "Finish run.finished", "TaskFinish TaskFinished", "Processed run.missing"]
    {
        assert!(tally.answered(word) > 0, "{word}: {tally:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_answer_alike_on_redis_7() {
    runs_agree(Binary::Redis7, 240, 5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_answer_alike_on_redis_6_2() {
    runs_agree(Binary::Redis62, 120, 5_000).await;
}

async fn stats_agree(binary: Binary, short: u64, soak: u64) {
    let fixture = Fixture::start(binary).await;
    let histories = count(short, soak);
    let tally = match fixture.compare_stats(seed()..seed() + histories).await {
        Ok(tally) => tally,
        Err(mismatch) => panic!("{mismatch}"),
    };
    println!("{tally:#?}");
    assert_eq!(tally.histories, histories);
    for word in ["Record Recorded", "Report Report", "Sweep Swept", "Live Lived"] {
        assert!(tally.answered(word) >= histories / 4, "{word}: {}", tally.answered(word));
    }
    for word in ["Record key.malformed", "Record request.reused"] {
        assert!(tally.answered(word) > 0, "{word}: {tally:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stats_answer_alike_on_redis_7() {
    stats_agree(Binary::Redis7, 200, 5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stats_answer_alike_on_redis_6_2() {
    stats_agree(Binary::Redis62, 100, 5_000).await;
}

/// What the journal gives back is what the server still holds, whatever the histories did to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_back_from_disk_is_what_redis_7_holds() {
    const BATCH: u64 = 250;
    let folder = tempfile::tempdir().expect("a folder");
    let mut fixture = Fixture::start_on_disk(Binary::Redis7, folder.path()).await;
    fixture.pair.keep = true;
    let mut keys = 0;
    for batch in 0..count(500, 5000).div_ceil(BATCH) {
        let first = seed() + batch * BATCH;
        if let Err(mismatch) = fixture.compare(first..first + BATCH).await {
            panic!("{mismatch}");
        }
        fixture.reopen(folder.path()).await;
        match fixture.compare_keys().await {
            Ok(held) => keys += held,
            Err(difference) => panic!("after reading the journal of seeds from {first}: {difference}"),
        }
    }
    println!("{keys} keys read back");
    assert!(keys > 1000, "only {keys} keys were read back");
}

/// Wrong answers, wrong order, wrong expiry: each is found, and cut down to a few commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_defect_in_the_data_model_is_found_and_cut_down() {
    let fixture = Fixture::start(Binary::Redis7).await;
    let wrong = [
        (Bug::LremFromHead, "LREM"),
        (Bug::PexpireKeepsOldTtl, "PEXPIRE"),
        (Bug::ExclusiveBoundIncluded, "("),
    ];
    for (bug, suspect) in wrong {
        fixture.embedded.seed_bug(Some(bug));
        let mismatch = fixture.compare(1..1001).await.expect_err("the defect must be found");
        println!("{bug:?}: {mismatch}");
        let commands: usize = mismatch.history.steps.iter().map(|step| step.commands().len()).sum();
        assert!(commands <= 5, "{bug:?} is not cut down:\n{mismatch}");
        assert!(
            mismatch.to_string().to_uppercase().contains(suspect),
            "{bug:?} is not what was found:\n{mismatch}"
        );
    }
    let mismatch = {
        fixture.embedded.seed_bug(Some(Bug::PexpireKeepsOldTtl));
        fixture.compare_guards(1..401).await.expect_err("the defect must be found")
    };
    println!("{mismatch}");
    fixture.embedded.seed_bug(None);
    fixture.compare(1..251).await.expect("without a defect the two are equal");
    fixture.compare_guards(1..101).await.expect("without a defect the two are equal");
}
