//! Which settings a command uses. Variables of the others are not looked up.

/// A part of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `[server]`: tokens above all.
    Server,
    /// `[store]`.
    Store,
    /// `database` in `[store]`.
    Database,
    /// `[uploads]`.
    Uploads,
}

/// The parts that somebody uses.
#[derive(Debug, Clone, Copy)]
pub struct Needs(&'static [Part]);

impl Needs {
    /// Whoever serves.
    pub const ALL: Self = Self(&[Part::Server, Part::Store, Part::Database, Part::Uploads]);
    /// Whoever works without being asked over HTTP.
    pub const WORK: Self = Self(&[Part::Store, Part::Database, Part::Uploads]);
    /// Whoever counts on a limit.
    pub const LIMITS: Self = Self(&[Part::Store, Part::Database]);
    /// Whoever sends or reads files.
    pub const UPLOADS: Self = Self(&[Part::Store, Part::Uploads]);
    /// Whoever asks the store.
    pub const STORE: Self = Self(&[Part::Store]);
    /// Whoever reads the schema alone.
    pub const SCHEMA: Self = Self(&[]);

    /// Whether `part` is among them.
    pub fn has(self, part: Part) -> bool {
        self.0.contains(&part)
    }

    /// Whether `field` of the table `table`, by its dotted name, is used.
    pub(super) fn uses(self, table: &str, field: &str) -> bool {
        match (table.split('.').next(), field) {
            (Some("server"), _) => self.has(Part::Server),
            (Some("store"), "database") => self.has(Part::Database),
            (Some("store"), _) => self.has(Part::Store),
            (Some("uploads"), _) => self.has(Part::Uploads),
            _ => true,
        }
    }
}

impl Default for Needs {
    fn default() -> Self {
        Self::ALL
    }
}
