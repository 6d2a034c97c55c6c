//! Which traces are exported (W3C Trace Context, level 2, section 3.2.2; OpenTelemetry's `TraceIdRatioBased` and
//! `ParentBased`).

/// The share of traces beginning here that is exported, and whether the sampling flag of callers counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// In percent.
    pub percent: u8,
    /// The sampling flag of a caller is followed.
    pub parent_based: bool,
}

impl Sampler {
    /// Whether this trace is exported. `caller` is the sampling flag of its `traceparent`, where it sent one. The
    /// decision for a trace is the same on every node with the same configuration.
    #[must_use]
    pub fn should_sample(self, trace: u128, caller: Option<bool>) -> bool {
        if let Some(sampled) = caller.filter(|_| self.parent_based) {
            return sampled;
        }
        // The last 56 bits are the random ones.
        let low = trace & ((1 << 56) - 1);
        low * 100 < u128::from(self.percent) << 56
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: all, none, about as many as were asked for, and who sent a trace decides.
    #[test]
    fn sampling_follows_the_configured_ratio() {
        let rule = |percent| Sampler {
            percent,
            parent_based: true,
        };
        let spread = |n: u64| u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let of = |percent| {
            (0..10_000)
                .filter(|n| rule(percent).should_sample(spread(*n), None))
                .count()
        };
        assert_eq!((of(0), of(100)), (0, 10_000));
        assert!((900..1_100).contains(&of(10)), "{}", of(10));
        assert!(rule(0).should_sample(1, Some(true)) && !rule(100).should_sample(1, Some(false)));
        let own = Sampler {
            percent: 0,
            parent_based: false,
        };
        assert!(!own.should_sample(1, Some(true)));
    }
}
