//! The Quaymaster schema: TOML in, checked resources, key tables, lints and documents out. No I/O.

pub mod code;
