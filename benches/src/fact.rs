//! A figure without a contestant: a time, a size.

use crate::contest::Spread;

/// One measured quantity, several times.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) family: &'static str,
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) value: Spread,
    /// What we promise not to exceed; `None` when the row only informs.
    pub(crate) at_most: Option<f64>,
}

impl Fact {
    pub(crate) fn new(
        family: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        runs: impl IntoIterator<Item = f64>,
    ) -> Self {
        Self { family, what: what.into(), unit, value: Spread::of(runs.into_iter()), at_most: None }
    }

    pub(crate) fn at_most(mut self, most: f64) -> Self {
        self.at_most = Some(most);
        self
    }

    pub(crate) fn kept(&self) -> Option<bool> {
        self.at_most.map(|most| self.value.median <= most)
    }
}
