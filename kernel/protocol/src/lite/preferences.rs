//! `Prefer` (RFC 7240): how long a caller waits, and whether it accepts a promise.

/// The longest wait, in seconds; longer ones are reduced to it.
pub(crate) const WAIT_MAX: u64 = 86_400;

/// A caller's preferences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// `wait=N`: the seconds it waits.
    pub wait: Option<u64>,
    /// `respond-async`: a promise at once, unless `wait` is set.
    pub respond_async: bool,
    /// `respond-sync`, an extension of this kernel: no promise. After the wait the call is cancelled.
    pub respond_sync: bool,
}

impl Preferences {
    /// Parses the values of all `Prefer` headers. Unknown ones are ignored, as the RFC requires; of
    /// duplicates the first counts (§2).
    pub fn parse<'h>(values: impl Iterator<Item = &'h str>) -> Self {
        let mut read = Self::default();
        for preference in values.flat_map(|value| value.split(',')) {
            let setting = preference.split(';').next().unwrap_or_default();
            let (name, value) = match setting.split_once('=') {
                Some((name, value)) => (name.trim(), value.trim().trim_matches('"')),
                None => (setting.trim(), ""),
            };
            if name.eq_ignore_ascii_case("wait") && read.wait.is_none() {
                let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                let secs = digits.then(|| value.parse().unwrap_or(WAIT_MAX));
                read.wait = secs.map(|secs: u64| secs.min(WAIT_MAX));
            } else if name.eq_ignore_ascii_case("respond-async") {
                read.respond_async = true;
            } else if name.eq_ignore_ascii_case("respond-sync") {
                read.respond_sync = true;
            }
        }
        // With both, the answer has precedence over a promise.
        read.respond_async &= !read.respond_sync;
        read
    }

    /// The value of `Preference-Applied`; `None` without preferences.
    #[must_use]
    pub fn applied_header(&self) -> Option<String> {
        let wait = self.wait.map(|secs| format!("wait={secs}"));
        let words = [
            (self.respond_async, "respond-async"),
            (self.respond_sync, "respond-sync"),
        ];
        let words = words.into_iter().filter(|(applied, _)| *applied);
        let words = words.map(|(_, word)| word.to_owned());
        let all: Vec<String> = words.chain(wait).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Preferences {
        Preferences::parse([value].into_iter())
    }

    #[test]
    fn preferences_are_parsed_as_in_the_rfc() {
        assert_eq!(read("wait=10").wait, Some(10));
        assert_eq!(read("respond-async, wait=\"10\"; a=b").wait, Some(10));
        assert_eq!(read("WAIT = 3, wait=9").wait, Some(3));
        assert_eq!(read("wait=99999999999999999999").wait, Some(WAIT_MAX));
        for nothing in ["wait", "wait=", "wait=-1", "wait=1.5", "waits=4", ""] {
            assert_eq!(read(nothing).wait, None, "{nothing}");
        }
        let both = read("respond-async, respond-sync, wait=2");
        assert!(both.respond_sync && !both.respond_async);
        assert_eq!(
            both.applied_header().as_deref(),
            Some("respond-sync, wait=2")
        );
        assert_eq!(read("return=minimal").applied_header(), None);
        let two = Preferences::parse(["wait=1", "respond-async"].into_iter());
        assert_eq!(
            two.applied_header().as_deref(),
            Some("respond-async, wait=1")
        );
    }
}
