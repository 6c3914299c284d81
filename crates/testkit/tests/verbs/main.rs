//! Every verb that writes, taken from the server's table of calls, while replies are eaten, held back and changed, and
//! with records that another program wrote.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

/// Declares the kinds of the cases, with a test on each store.
macro_rules! kinds {
    ($($name:ident)*) => {
        $(mod $name {
            use crate::honest::{Place, try_all};
            use quaymaster_testkit::servers::{RedisConfig, RedisServer};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_redis() {
                let server = RedisServer::start(RedisConfig::default());
                try_all(&Place::Redis(Box::new(server)), stringify!($name)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_the_embedded_store() {
                try_all(&Place::Embedded, stringify!($name)).await;
            }
        })*

        /// A kind that is not named here has no case either.
        #[test]
        fn every_kind_is_tried() {
            let named = [$(stringify!($name)),*];
            assert!(CASES.iter().all(|case| named.contains(&case.call.0)));
        }
    };
}

mod cases;
mod durable;
mod honest;
mod records;
mod routes;
mod runner;
