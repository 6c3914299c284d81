//! What a guard must do where a cluster parts its keys, and where nothing does.

use quaymaster::Code;
use quaymaster::guard::{Enter, Entered, Leave};
use quaymaster::idempotency::{Begin, Begun};
use quaymaster::limit::Charge;
use quaymaster::lock::{Acquire, Acquired};
use quaymaster_store::Topology;

use super::guard::{calls, enter, guard, key, on, pass, payment, scribble};
use crate::toll::Toll;

/// No `colocate`: every part under a tag of its own.
const PARTED: &str = "";

crate::cases! {
    async fn parts_in_different_slots_are_entered_in_steps_and_given_back(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let quaymaster = on(&payment(subject, 2, "10s", "10s", PARTED), toll.clone());
        let guard = guard(&quaymaster);
        let cluster = subject.engine.topology() == Topology::Cluster;
        let steps = if cluster { 4 } else { 1 };
        let first = pass(guard, "1", "a", "p").await;
        assert_eq!(toll.runs(), steps);
        assert_eq!(first.quotas.iter().map(|quota| quota.used).collect::<Vec<_>>(), [1, 1]);

        // The lock says no: the claim is given back.
        let answer = enter(guard, "2", "a", "p").await;
        assert!(matches!(answer, Entered::Held { .. }), "{answer:?}");
        assert_eq!(toll.runs(), if cluster { 3 } else { 1 });
        let left = guard.leave(&key("1", "a"), &first.token, Leave::default()).await.expect("leave");
        assert!(!left.lost_any());
        assert_eq!(toll.runs(), if cluster { 2 } else { 1 });

        // The last part says no: everything before it is given back, and every part is as free as before.
        let tries = quaymaster.limit("tries").expect("declared");
        assert!(tries.take(&[("id", "3")], Charge::of(50)).await.expect("take").is_allowed());
        toll.runs();
        let how = Enter { request_id: Some("r"), ..Enter::default() };
        for _ in 0..2 {
            let answer = guard.enter(&key("3", "a"), how).await.expect("enter");
            let Entered::Limited(verdicts) = answer else { panic!("{answer:?}") };
            assert_eq!(verdicts.iter().map(|verdict| verdict.is_allowed()).collect::<Vec<_>>(), [true, false]);
            assert_eq!(verdicts[0].quota().used, 1, "given back");
            assert_eq!(toll.runs(), if cluster { 4 + 3 + 1 } else { 1 }, "entered, given back, asked");
        }
        assert_eq!(calls(&quaymaster).await, 1);
        assert!(matches!(
            quaymaster.idempotency("pay").expect("declared").begin(&[("id", "3")], Begin::default()).await,
            Ok(Begun::Started(_))
        ));
        let lock = quaymaster.lock("account").expect("declared");
        assert!(matches!(
            lock.acquire(&[("account", "a")], Acquire::default()).await,
            Ok(Acquired::Ours(_))
        ));
        let given_back = guard.counts().given_back();
        assert_eq!(given_back, if cluster { 1 + 3 + 3 } else { 0 });
        assert_eq!(guard.counts().not_given_back(), 0);
    }

    async fn a_step_whose_reply_is_lost_is_given_back_as_far_as_it_is_known(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let quaymaster = on(&payment(subject, 2, "10s", "10s", PARTED), toll.clone());
        if subject.engine.topology() == Topology::Single {
            // One step is all or nothing: there is nothing to give back that the caller could not find again.
            toll.lose_next_reply();
            let lost = guard(&quaymaster).enter(&key("1", "a"), Enter::default()).await.expect_err("lost");
            assert_eq!(lost.code, Code::StoreLost);
            assert_eq!(guard(&quaymaster).counts().given_back(), 0);
            return;
        }
        toll.lose_next_reply();
        let lost = guard(&quaymaster).enter(&key("1", "a"), Enter::default()).await.expect_err("lost");
        assert_eq!(lost.code, Code::StoreLost);
        // The claim was made although nobody heard so; it does not stand in the way of the next one.
        let _ = pass(guard(&quaymaster), "1", "a", "p").await;
        assert_eq!(calls(&quaymaster).await, 1);
    }

    async fn a_held_lock_is_told_before_a_full_limit_whatever_the_slots(subject: &Subject) {
        let quaymaster = subject.schema(
            "[idempotency.pay]\nkey = \"idem:{id}\"\nttl = \"1h\"\ncolocate = \"x\"\n\
             [lock.account]\nkey = \"lock:{account}\"\nttl = \"10s\"\n\
             [limit.calls]\nkey = \"calls:{who}\"\nalgorithm = \"token_bucket\"\nlimit = 1\nwindow = \"1h\"\ncolocate = \"x\"\n\
             [guard.pay]\nlimits = [\"calls\"]\nidempotency = \"pay\"\nlock = \"account\"\n",
        );
        let guard = guard(&quaymaster);
        let _ = pass(guard, "1", "a", "p").await;
        let answer = enter(guard, "2", "a", "p").await;
        assert!(matches!(answer, Entered::Held { .. }), "{answer:?}");
        let answer = enter(guard, "2", "b", "p").await;
        assert!(matches!(answer, Entered::Limited(_)), "{answer:?}");
        // Two steps, and the limit lies in the first: given back when the lock says no.
        let calls = quaymaster.limit("calls").expect("declared");
        let _ = calls.reset(&[("who", "w")], None).await.expect("reset");
        let answer = enter(guard, "3", "a", "p").await;
        assert!(matches!(answer, Entered::Held { .. }), "{answer:?}");
        assert_eq!(calls.peek(&[("who", "w")]).await.expect("peek").quota().used, 0);
    }

    async fn a_request_that_was_given_back_is_counted_when_it_comes_again(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "10s", PARTED);
        let guard = guard(&quaymaster);
        let tries = quaymaster.limit("tries").expect("declared");
        assert!(tries.take(&[("id", "1")], Charge::of(50)).await.expect("take").is_allowed());
        let how = Enter { request_id: Some("r"), ..Enter::default() };
        let answer = guard.enter(&key("1", "a"), how).await.expect("enter");
        assert!(matches!(answer, Entered::Limited(_)), "{answer:?}");
        assert_eq!(calls(&quaymaster).await, 0);
        let _ = tries.reset(&[("id", "1")], None).await.expect("reset");
        let answer = guard.enter(&key("1", "a"), how).await.expect("enter");
        assert!(matches!(answer, Entered::Entered(_)), "{answer:?}");
        assert_eq!(calls(&quaymaster).await, 1);
        // Without a lease only what is kept of the request could tell that it was counted.
        let quaymaster = subject.apart("limits").schema(
            "[limit.calls]\nkey = \"calls:{who}\"\nalgorithm = \"fixed_window\"\nlimit = 9\nwindow = \"1h\"\n\
             [limit.tries]\nkey = \"tries:{id}\"\nalgorithm = \"sliding_log\"\nlimit = 1\nwindow = \"1h\"\n\
             [guard.pay]\nlimits = [\"calls\", \"tries\"]\n",
        );
        let guard = self::guard(&quaymaster);
        let tries = quaymaster.limit("tries").expect("declared");
        assert!(tries.take(&[("id", "1")], Charge::of(1)).await.expect("take").is_allowed());
        let key = [("who", "w"), ("id", "1")];
        let answer = guard.enter(&key, how).await.expect("enter");
        assert!(matches!(answer, Entered::Limited(_)), "{answer:?}");
        assert_eq!(calls(&quaymaster).await, 0);
        let _ = tries.reset(&[("id", "1")], None).await.expect("reset");
        for _ in 0..2 {
            let answer = guard.enter(&key, how).await.expect("enter");
            assert!(matches!(answer, Entered::Entered(_)), "{answer:?}");
            assert_eq!(calls(&quaymaster).await, 1);
        }
    }

    async fn a_request_id_that_comes_again_after_its_leave_is_counted_again(subject: &Subject) {
        for (name, colocate) in [("parted", PARTED), ("together", "colocate = \"g\"")] {
            let quaymaster = payment(&subject.apart(name), 3, "10s", "10s", colocate);
            let guard = guard(&quaymaster);
            let how = Enter { request_id: Some("same"), ..Enter::default() };
            for round in 1..=3 {
                for _ in 0..2 {
                    let answer = guard.enter(&key("1", "a"), how).await.expect("enter");
                    assert!(matches!(answer, Entered::Entered(_)), "{name} {round}: {answer:?}");
                    assert_eq!(calls(&quaymaster).await, round, "{name}");
                }
                let Entered::Entered(pass) = guard.enter(&key("1", "a"), how).await.expect("enter") else {
                    panic!("{name} {round}: it is ours")
                };
                assert_eq!(pass.quotas[0].used, round, "{name}");
                let left = guard
                    .leave(&key("1", "a"), &pass.token, Leave { abandon: true, ..Leave::default() })
                    .await
                    .expect("leave");
                assert!(!left.lost_any());
            }
            let answer = guard.enter(&key("1", "a"), how).await.expect("enter");
            assert!(matches!(answer, Entered::Limited(_)), "{name}: {answer:?}");
        }
    }

    async fn a_lock_in_another_slot_is_released_also_when_the_record_is_malformed(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "10s", PARTED);
        let guard = guard(&quaymaster);
        let first = pass(guard, "1", "a", "p").await;
        scribble(subject, &quaymaster, "pay", &[("id", "1")]).await;
        let error = guard.leave(&key("1", "a"), &first.token, Leave::default()).await.expect_err("malformed");
        assert_eq!(error.code, Code::KeyMalformed);
        let _ = pass(guard, "2", "a", "p").await;
    }
}
