//! Headers of an agent's HTTP request for servers whose entry names them (`pass_headers`).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, HeaderName};
use mgp_sync::Snapshot;

/// The names that any server was ever configured with; no other header is kept beyond the door. It grows by what a
/// person writes, and nothing else.
#[derive(Debug)]
pub struct ForwardedNames(Snapshot<BTreeSet<String>>);

impl Default for ForwardedNames {
    fn default() -> Self {
        Self(Snapshot::new(BTreeSet::new()))
    }
}

impl ForwardedNames {
    /// Headers of these names, in small letters, are kept from now on.
    pub fn add(&self, names: &[String]) {
        if names.iter().any(|name| !self.0.load().contains(name)) {
            self.0
                .update(|known| known.iter().chain(names).cloned().collect());
        }
    }

    /// What of these headers may be handed on; `None` for nothing, as nearly always.
    #[must_use]
    pub fn select(&self, headers: &HeaderMap) -> Option<ForwardedHeaders> {
        let names = self.0.load();
        if names.is_empty() {
            return None;
        }
        let mut kept = HeaderMap::new();
        for (name, value) in headers {
            if names.contains(name.as_str()) {
                let mut value = value.clone();
                value.set_sensitive(true);
                kept.append(name.clone(), value);
            }
        }
        (!kept.is_empty()).then(|| ForwardedHeaders {
            headers: kept,
            sent: Mutex::default(),
        })
    }
}

/// What of one request may be handed on, and what was. Its debug form shows no values.
#[derive(Debug)]
pub struct ForwardedHeaders {
    headers: HeaderMap,
    sent: Mutex<BTreeSet<String>>,
}

impl ForwardedHeaders {
    /// The same for another request that its caller makes with these.
    #[must_use]
    pub fn for_next_request(&self) -> Self {
        Self {
            headers: self.headers.clone(),
            sent: Mutex::default(),
        }
    }

    /// Adds those of these names, each as often as the agent sent it, and notes their names.
    pub fn copy_to(&self, names: &[HeaderName], to: &mut HeaderMap) {
        for name in names {
            let mut values = self.headers.get_all(name).iter().peekable();
            if values.peek().is_none() {
                continue;
            }
            to.remove(name);
            for value in values {
                to.append(name.clone(), value.clone());
            }
            let mut handed = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            handed.insert(name.as_str().to_owned());
        }
    }

    /// The names of those that a server was sent.
    #[must_use]
    pub fn sent_names(&self) -> Vec<String> {
        let handed = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        handed.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// Decision 0061: only what a server names is kept, and only to that server is it handed.
    #[test]
    fn nothing_is_kept_that_nobody_names() {
        let names = ForwardedNames::default();
        let mut sent = HeaderMap::new();
        sent.insert("x-tenant", HeaderValue::from_static("acme"));
        sent.append("x-trace", HeaderValue::from_static("1"));
        sent.append("x-trace", HeaderValue::from_static("2"));
        sent.insert("authorization", HeaderValue::from_static("Bearer mine"));
        assert!(names.select(&sent).is_none());
        names.add(&["x-tenant".into()]);
        names.add(&["x-trace".into(), "x-absent".into()]);
        let kept = names.select(&sent).unwrap();
        assert!(!format!("{kept:?}").contains("acme"), "{kept:?}");
        let mut to = HeaderMap::new();
        let its = ["x-trace", "x-absent", "authorization"].map(HeaderName::from_static);
        kept.copy_to(&its, &mut to);
        assert_eq!(to.len(), 2);
        let trace: Vec<_> = to.get_all("x-trace").iter().collect();
        assert_eq!(trace, ["1", "2"]);
        assert_eq!(kept.sent_names(), ["x-trace"]);
    }
}
