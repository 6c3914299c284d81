//! Every verb that writes, taken from the server's table of calls, while replies are eaten, held back and changed, and
//! with records that another program wrote.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod cases;
mod durable;
mod honest;
mod records;
mod routes;
mod runner;
