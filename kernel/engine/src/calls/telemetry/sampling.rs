//! Which traces are told (W3C Trace Context, level 2, section 3.2.2; OpenTelemetry's `TraceIdRatioBased` and
//! `ParentBased`).

/// How many of the traces that begin here are told, and whether callers have a say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Of a hundred.
    pub percent: u8,
    /// A caller that says whether its trace is sampled is followed.
    pub parent_based: bool,
}

impl Sampler {
    /// Whether this trace is told. `caller` is what its `traceparent` says, where it sent one. The same trace is
    /// judged the same on every node that has the same rule.
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
    fn as_many_are_told_as_was_said() {
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
