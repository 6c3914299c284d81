//! One file per command.

pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod clean;
pub(crate) mod describe;
pub(crate) mod docs;
pub(crate) mod explain;
pub(crate) mod health;
pub(crate) mod init;
pub(crate) mod respell;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod stream;
pub(crate) mod upload;
pub(crate) mod watch;
pub(crate) mod worker;
