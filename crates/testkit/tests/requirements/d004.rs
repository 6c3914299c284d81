//! Document 004: `systems/psp`.

cases! {}
