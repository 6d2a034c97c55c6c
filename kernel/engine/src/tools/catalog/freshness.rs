//! How long a list may be cached, and by whom (SEP-2549: `ttlMs` and `cacheScope`).

use std::time::Duration;

use mgp_json::members;

/// Longest TTL in milliseconds: a day, because servers of this kernel may change independently of any promise.
pub(crate) const TTL_MAX: u64 = 24 * 60 * 60 * 1000;

/// Who may cache a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheScope {
    /// Any intermediary, for all clients.
    Public,
    /// Only the receiving client.
    #[default]
    Private,
}

impl CacheScope {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
        }
    }
}

/// How long a result may be cached, and by whom. The default is that of legacy servers: stale at once, and private.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// The TTL in milliseconds, at most [`TTL_MAX`].
    pub ttl_ms: u64,
    /// Who may cache it.
    pub scope: CacheScope,
}

impl Freshness {
    /// Parses the JSON text of a result. Missing or invalid members have the default; fractions of a millisecond are
    /// dropped.
    #[must_use]
    pub fn parse(result: &str) -> Self {
        let mut read = Self::default();
        for (name, value) in members(result).unwrap_or_default() {
            match &*name {
                "ttlMs" => read.ttl_ms = parse_ttl(value.get()),
                "cacheScope" if value.get() == "\"public\"" => read.scope = CacheScope::Public,
                "cacheScope" => read.scope = CacheScope::Private,
                _ => {}
            }
        }
        read
    }

    /// The freshness of a combined result: the shorter TTL, and public only if both are.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        let scope = match (self.scope, other.scope) {
            (CacheScope::Public, CacheScope::Public) => CacheScope::Public,
            (CacheScope::Private, _) | (_, CacheScope::Private) => CacheScope::Private,
        };
        Self {
            ttl_ms: self.ttl_ms.min(other.ttl_ms),
            scope,
        }
    }

    /// The freshness of a result received `age` ago.
    #[must_use]
    pub fn remaining(self, age: Duration) -> Self {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Self {
            ttl_ms: self.ttl_ms.saturating_sub(age),
            scope: self.scope,
        }
    }
}

fn parse_ttl(json: &str) -> u64 {
    let whole = json.parse::<u64>().ok();
    // A conversion to u64 keeps within its bounds: negative becomes 0.
    let other = || json.parse::<f64>().ok().map(|ms| ms as u64);
    whole.or_else(other).unwrap_or(0).min(TTL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(ttl_ms: u64, scope: CacheScope) -> Freshness {
        Freshness { ttl_ms, scope }
    }

    /// SEP-2549: whatever a server writes there, the result is at worst asked for too often.
    #[test]
    fn invalid_freshness_is_stale_and_private() {
        for (ttl, want) in [
            ("60000", 60_000),
            ("0", 0),
            ("6.5e1", 65),
            ("1.9", 1),
            ("-5", 0),
            ("-1.5", 0),
            ("\"60000\"", 0),
            ("null", 0),
            ("{}", 0),
            ("99999999999999999999999", TTL_MAX),
        ] {
            let read = Freshness::parse(&format!(r#"{{"tools":[],"ttlMs": {ttl} }}"#));
            assert_eq!(read, fresh(want, CacheScope::Private), "{ttl}");
        }
        for (scope, want) in [
            ("\"public\"", CacheScope::Public),
            ("\"private\"", CacheScope::Private),
            ("\"PUBLIC\"", CacheScope::Private),
            ("true", CacheScope::Private),
        ] {
            let read = Freshness::parse(&format!(r#"{{"cacheScope":{scope}}}"#));
            assert_eq!(read, fresh(0, want), "{scope}");
        }
        for nothing in ["{}", "[]", "", "null"] {
            assert_eq!(Freshness::parse(nothing), Freshness::default());
        }
    }

    #[test]
    fn combined_freshness_is_that_of_the_worst_part() {
        use CacheScope::{Private, Public};
        let (long, short) = (fresh(9, Public), fresh(4, Public));
        assert_eq!(long.combine(short), short);
        assert_eq!(short.combine(fresh(9, Private)), fresh(4, Private));
        assert_eq!(fresh(9, Private).combine(short), fresh(4, Private));
    }

    #[test]
    fn freshness_expires() {
        let minute = fresh(60_000, CacheScope::Public);
        let left = |ms| minute.remaining(Duration::from_millis(ms));
        assert_eq!(left(0), minute);
        assert_eq!(left(59_999), fresh(1, CacheScope::Public));
        assert_eq!(left(60_001), fresh(0, CacheScope::Public));
        assert_eq!(
            minute.remaining(Duration::MAX),
            fresh(0, CacheScope::Public)
        );
    }
}
