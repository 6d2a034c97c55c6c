//! `mgp top`.

use std::time::Duration;

use clap::Args;

/// Shortest interval: the kernel samples the processes of servers at most twice a second.
const INTERVAL_MIN: f64 = 0.5;
/// Longest interval.
const INTERVAL_MAX: f64 = 3600.0;

/// `mgp top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mgp top
  mgp top --interval 0.5
  mgp top --once                               # one table as text, for a pipe or a file
  mgp top --json | jq -c .calls_per_second     # a line every 2 s, until it is ended
  mgp top --json --once | jq '.servers[0]'

Keys:
  q, Esc, Ctrl-C     leave
  up, down, j, k     move; PgUp, PgDn, Home and End, too
  Tab                from the servers to what waits for you, and back
  Enter              all there is to read about the one that is marked
  y, n               answer what waits; it is shown first, and Enter confirms
  /                  show the servers with this text alone
  s, r               order by the next column, reverse the order
  S C E L M P R N    order by state, calls, errors, latency, memory, processor, restarts, name")]
pub struct Top {
    /// Interval of samples in seconds, from 0.5 to 3600.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Print one table as text and exit: two samples, one interval apart.
    #[arg(long)]
    pub(crate) once: bool,
}

fn parse_interval(typed: &str) -> Result<Duration, String> {
    let seconds = typed.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (INTERVAL_MIN..=INTERVAL_MAX).contains(seconds));
    let seconds = seconds.ok_or("an interval is a number of seconds from 0.5 to 3600")?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_bounds() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("3600"), Ok(Duration::from_secs(3600)));
        for wrong in ["0.49", "0", "-2", "3601", "NaN", "inf", "1e9", "", "2s"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }
}
