//! The embedded store: Lua in process, a data model in memory, a journal on disk.

mod change;
