//! The three ways of running the mix.

use anyhow::Result;

use super::book::Lap;
use super::direct::Direct;
use super::documented::Documented;
use super::mix::Step;
use super::over_http::OverHttp;

/// One way, ready to run steps.
#[derive(Debug)]
pub(crate) enum Way {
    Direct(Direct),
    OverHttp(OverHttp),
    Documented(Documented),
}

impl Way {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Way::Direct(_) => "crate",
            Way::OverHttp(_) => "HTTP",
            Way::Documented(_) => "as documented",
        }
    }

    /// Runs one step; an answer the mix does not expect is an error.
    pub(crate) async fn step(&self, step: Step, lap: Lap<'_>) -> Result<()> {
        match self {
            Way::Direct(way) => way.step(step, lap).await,
            Way::OverHttp(way) => way.step(step, lap).await,
            Way::Documented(way) => way.step(step, lap).await,
        }
    }
}
