//! The knee: the highest rate at which the promises hold, found by short probes.

use anyhow::Result;

/// The rates it is searched in; a rate below counts as "never", one above as "never reached".
const LOWEST: f64 = 500.0;
const HIGHEST: f64 = 500_000.0;
/// How near the answer comes to the rate that fails.
const NEAR: f64 = 1.06;

/// Climbs (or descends) from `start` by half as much again until the answer changes, then halves the gap.
/// `None` when even the lowest rate fails.
pub(crate) fn find(start: f64, mut holds: impl FnMut(f64) -> Result<bool>) -> Result<Option<f64>> {
    let (mut good, mut bad);
    if holds(start)? {
        good = start;
        loop {
            bad = good * 1.5;
            if bad > HIGHEST {
                return Ok(Some(good));
            }
            if !holds(bad)? {
                break;
            }
            good = bad;
        }
    } else {
        bad = start;
        loop {
            good = bad / 1.5;
            if good < LOWEST {
                return Ok(None);
            }
            if holds(good)? {
                break;
            }
            bad = good;
        }
    }
    while bad / good > NEAR {
        let middle = (good * bad).sqrt();
        if holds(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(Some(good))
}

/// Two of three: one probe beside somebody else's burst decides nothing.
pub(crate) fn majority(mut probe: impl FnMut() -> Result<bool>) -> Result<bool> {
    let (first, second) = (probe()?, probe()?);
    if first == second { Ok(first) } else { probe() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_found_from_below_and_from_above() -> Result<()> {
        for knee in [800.0, 9_999.0, 10_000.0, 31_234.0, 200_000.0] {
            for start in [10_000.0, 1_000.0, 40_000.0] {
                let found = find(start, |rate| Ok(rate <= knee))?.unwrap_or(0.0);
                assert!(found <= knee && found * NEAR >= knee, "{found} for {knee} from {start}");
            }
        }
        Ok(())
    }

    #[test]
    fn no_rate_at_all_is_no_knee_and_a_search_has_an_end() -> Result<()> {
        assert_eq!(find(10_000.0, |_| Ok(false))?, None);
        let found = find(10_000.0, |_| Ok(true))?;
        assert!(found.is_some_and(|rate| rate * 1.5 > HIGHEST), "{found:?}");
        Ok(())
    }

    #[test]
    fn one_probe_out_of_three_is_outvoted() -> Result<()> {
        let votes = |votes: [bool; 3]| {
            let mut votes = votes.into_iter();
            majority(move || Ok(votes.next().unwrap_or(false)))
        };
        assert!(votes([true, false, true])? && votes([false, true, true])?);
        assert!(!votes([false, true, false])? && !votes([true, false, false])?);
        Ok(())
    }
}
