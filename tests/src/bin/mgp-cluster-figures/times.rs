//! How long things took, beside how long they may take.

use std::time::{Duration, Instant};

use mgp_tests::load::Cell;

/// The columns of most tables.
pub(crate) const COLUMNS: &[&str] = &[
    "what",
    "times",
    "median ms",
    "p99 ms",
    "max ms",
    "may take ms",
    "held",
];
/// What stands in the last column of a row whose bound was missed.
pub(crate) const MISSED: &str = "MISSED";
/// What it begins with where it could not be run.
pub(crate) const NOT_RUN: &str = "not run";

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// How long one thing took, each time.
#[derive(Debug, Default)]
pub(crate) struct Times {
    taken: Vec<Duration>,
    /// How often it was given up.
    lost: usize,
}

impl Times {
    /// Once more; `None` when it was given up.
    pub(crate) fn add(&mut self, took: Option<Duration>) {
        match took {
            Some(took) => self.taken.push(took),
            None => self.lost += 1,
        }
    }

    /// A row of a table. The bound is that of 99 in 100, and none may be given up.
    pub(crate) fn row(mut self, what: &str, bound: Option<Duration>) -> Vec<Cell> {
        self.taken.sort_unstable();
        let times = self.taken.len() + self.lost;
        let count = match self.lost {
            0 => times.to_string(),
            lost => format!("{times}, {lost} given up"),
        };
        let mut row = vec![Cell::from(what), count.into()];
        row.extend([50, 99, 100].map(|percent| self.percentile(percent).map_or(Cell::Nothing, ms)));
        row.push(bound.map_or(Cell::Nothing, |bound| Cell::Number(millis(bound), 0)));
        row.push(match (bound, self.percentile(99)) {
            (_, None) if self.lost == 0 => NOT_RUN.into(),
            (_, None) => MISSED.into(),
            (None, Some(_)) => Cell::Nothing,
            (Some(bound), Some(p99)) if p99 <= bound && self.lost == 0 => "yes".into(),
            (Some(_), Some(_)) => MISSED.into(),
        });
        row
    }

    fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.taken.len() * percent).div_ceil(100);
        self.taken.get(rank.checked_sub(1)?).copied()
    }
}

/// A row for what is counted and may not happen.
pub(crate) fn never(what: &str, times: usize) -> Vec<Cell> {
    let held = if times == 0 { "yes" } else { MISSED };
    let mut row = vec![Cell::from(what), times.to_string().into()];
    row.extend([
        Cell::Nothing,
        Cell::Nothing,
        Cell::Nothing,
        Cell::Number(0.0, 0),
    ]);
    row.push(held.into());
    row
}

/// A row of so many columns for what could not be run, and why.
pub(crate) fn not_run(what: &str, why: &str, columns: usize) -> Vec<Cell> {
    let mut row = vec![Cell::Nothing; columns];
    row[0] = what.into();
    row[columns - 1] = format!("{NOT_RUN}: {why}").into();
    row
}

fn ms(time: Duration) -> Cell {
    Cell::Number(millis(time), 1)
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Looks until it is so; gives how long that was from `since` on, nothing when it is not so within `limit`.
pub(crate) async fn until(
    since: Instant,
    limit: Duration,
    mut so: impl AsyncFnMut() -> bool,
) -> Option<Duration> {
    loop {
        if so().await {
            return Some(since.elapsed());
        }
        if since.elapsed() > limit {
            return None;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A few rounds of something: no more than so many, and none that begins after the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    pub(crate) most: usize,
    pub(crate) time: Duration,
}

impl Rounds {
    /// Their numbers, while there is time.
    pub(crate) fn each(self) -> impl Iterator<Item = usize> {
        let end = Instant::now() + self.time;
        (0..self.most).take_while(move |_| Instant::now() < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(times: Times, bound: u64) -> Vec<String> {
        let row = times.row("x", Some(Duration::from_millis(bound)));
        row.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_bound_is_held_by_99_in_100_and_by_all_that_were_not_given_up() {
        let of = |last: u64| {
            let mut times = Times::default();
            (1..100).for_each(|n| times.add(Some(Duration::from_millis(n))));
            times.add(Some(Duration::from_millis(last)));
            times
        };
        assert_eq!(
            shown(of(500), 99)[2..],
            ["50.0", "99.0", "500.0", "99", "yes"]
        );
        assert_eq!(shown(of(500), 98)[6], MISSED);
        let mut given_up = of(100);
        given_up.add(None);
        assert_eq!(shown(given_up, 1000)[6], MISSED);
        assert_eq!(shown(Times::default(), 1)[6], NOT_RUN);
    }
}
