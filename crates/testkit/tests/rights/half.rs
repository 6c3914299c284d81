//! A right that is taken away while the server runs: no policy answers for a script that may have written.

use quaymaster::guard::{Enter, Entered, Leave};
use quaymaster::{Code, Retry};
use quaymaster_testkit::servers::Binary;

use crate::publish::SCHEMA;
use crate::{server, subject};

#[tokio::test]
async fn a_script_that_stops_half_way_is_an_error_that_says_so() {
    for binary in [Binary::Redis62, Binary::Redis7, Binary::Valkey9] {
        let server = server(binary, &["~*", "&*", "+@all"]);
        let quaymaster = subject("narrowed", &server).await.schema(SCHEMA);
        let (guard, key) = (quaymaster.guard("pay").unwrap(), [("id", "1"), ("account", "a")]);
        let Entered::Entered(pass) = guard.enter(&key, Enter::default()).await.unwrap() else { panic!() };
        server.command::<()>(&["ACL", "SETUSER", "svc", "-del"]);
        let error = guard.leave(&key, &pass.token, Leave::default()).await.unwrap_err();
        assert_eq!(error.code, Code::StoreScript, "{binary:?} {error}");
        assert_eq!(error.code.retry(), Retry::MayHaveRun);
        // With the right back the same call ends what is left.
        server.command::<()>(&["ACL", "SETUSER", "svc", "+del"]);
        let left = guard.leave(&key, &pass.token, Leave::default()).await.unwrap();
        assert!(left.outage.is_none() && !left.lost_any(), "{binary:?} {left:?}");
        assert_eq!(server.command::<i64>(&["EXISTS", "case:lock:a"]), 0, "{binary:?}");
    }
}
