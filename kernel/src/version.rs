//! Versions of releases: three numbers.

/// A version; a release before it (`-rc.1`) counts as the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version([u64; 3]);

impl Version {
    /// Of a text such as `0.2.1`; `None` if it is not one.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let release = text.strip_prefix('v').unwrap_or(text);
        let release = release.split(['-', '+']).next()?;
        let numbers: Option<Vec<u64>> = release.split('.').map(|part| part.parse().ok()).collect();
        Some(Self(numbers?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let version = |text| Version::parse(text).unwrap();
        assert!(version("0.9.0") < version("0.10.0"));
        assert!(version("v1.0.0-rc.1") == version("1.0.0+build"));
        for odd in ["", "1", "1.2", "1.2.x", "1.2.3.4", "a.b.c", "-1.0.0"] {
            assert_eq!(Version::parse(odd), None, "{odd}");
        }
    }
}
