//! Formats numbers for tables.

/// A rate: `0`, `0.5`, `12.5`, `250`, `12k`; `–` if unknown.
pub(super) fn format_rate(a_second: Option<f64>) -> String {
    match a_second {
        None => "–".into(),
        Some(rate) if rate < 0.05 && rate > 0.0 => "<0.1".into(),
        Some(rate) if rate < 0.05 => "0".into(),
        Some(rate) if rate < 99.95 => format!("{rate:.1}"),
        Some(rate) if rate < 9999.5 => format!("{rate:.0}"),
        Some(rate) => format!("{:.0}k", rate / 1000.0),
    }
}

/// A latency: `0.3 ms`, `25 ms`, `1.2 s`; `–` without calls.
pub(super) fn format_latency(micros: Option<u64>) -> String {
    match micros {
        None => "–".into(),
        Some(us @ 0..10_000) => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        Some(us @ 10_000..1_000_000) => format!("{} ms", us / 1000),
        Some(us @ 1_000_000..60_000_000) => {
            format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000)
        }
        Some(_) => ">1 min".into(),
    }
}

/// A share of one processor: `0.3%`, `150%`.
pub(super) fn format_cpu(cpu: Option<f64>) -> String {
    match cpu.map(|cpu| cpu * 100.0) {
        None => "–".into(),
        Some(percent) if percent < 9.95 => format!("{percent:.1}%"),
        Some(percent) => format!("{percent:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let rates = [
            None,
            Some(0.0),
            Some(0.01),
            Some(0.5),
            Some(99.9),
            Some(100.4),
            Some(12_345.0),
        ];
        assert_eq!(
            rates.map(format_rate),
            ["–", "0", "<0.1", "0.5", "99.9", "100", "12k"]
        );
        let spans = [
            None,
            Some(0),
            Some(1750),
            Some(25_300),
            Some(1_250_000),
            Some(60_000_000),
        ];
        assert_eq!(
            spans.map(format_latency),
            ["–", "0.0 ms", "1.7 ms", "25 ms", "1.2 s", ">1 min"]
        );
        let shares = [None, Some(0.0), Some(0.0025), Some(1.5)];
        assert_eq!(shares.map(format_cpu), ["–", "0.0%", "0.2%", "150%"]);
    }
}
