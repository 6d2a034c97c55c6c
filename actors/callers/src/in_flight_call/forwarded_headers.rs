//! Headers of an agent's HTTP request that are forwarded to servers whose entry names them
//! (`pass_headers`).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, HeaderName};
use mgp_sync::Snapshot;

/// The header names that any server was ever configured with; the endpoint drops all other headers. Grows
/// only with the configuration.
#[derive(Debug)]
pub struct ForwardedNames(Snapshot<BTreeSet<String>>);

impl Default for ForwardedNames {
    fn default() -> Self {
        Self(Snapshot::new(BTreeSet::new()))
    }
}

impl ForwardedNames {
    /// Adds header names, in lower case.
    pub fn add(&self, names: &[String]) {
        if names.iter().any(|name| !self.0.load().contains(name)) {
            self.0
                .update(|names_before| names_before.iter().chain(names).cloned().collect());
        }
    }

    /// Selects the headers that may be forwarded; `None` for none, the usual case.
    #[must_use]
    pub fn select(&self, headers: &HeaderMap) -> Option<ForwardedHeaders> {
        let names = self.0.load();
        if names.is_empty() {
            return None;
        }
        let mut selected = HeaderMap::new();
        for (name, value) in headers {
            if names.contains(name.as_str()) {
                let mut value = value.clone();
                value.set_sensitive(true);
                selected.append(name.clone(), value);
            }
        }
        (!selected.is_empty()).then(|| ForwardedHeaders {
            headers: selected,
            sent: Mutex::default(),
        })
    }
}

/// The headers of one request that may be forwarded, and the names of those that were. Its debug form shows
/// no values.
#[derive(Debug)]
pub struct ForwardedHeaders {
    headers: HeaderMap,
    sent: Mutex<BTreeSet<String>>,
}

impl ForwardedHeaders {
    /// A copy for another request of the same caller.
    #[must_use]
    pub fn for_next_request(&self) -> Self {
        Self {
            headers: self.headers.clone(),
            sent: Mutex::default(),
        }
    }

    /// Adds the headers with these names, each as often as the agent sent it, and records their names.
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

    /// The names of the headers that were sent to a server.
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

    /// Decision 0061: only headers that a server names are stored, and only that server receives them.
    #[test]
    fn only_configured_headers_are_forwarded() {
        let names = ForwardedNames::default();
        let mut sent = HeaderMap::new();
        sent.insert("x-tenant", HeaderValue::from_static("acme"));
        sent.append("x-trace", HeaderValue::from_static("1"));
        sent.append("x-trace", HeaderValue::from_static("2"));
        sent.insert("authorization", HeaderValue::from_static("Bearer mine"));
        assert!(names.select(&sent).is_none());
        names.add(&["x-tenant".into()]);
        names.add(&["x-trace".into(), "x-absent".into()]);
        let selected = names.select(&sent).unwrap();
        assert!(!format!("{selected:?}").contains("acme"), "{selected:?}");
        let mut to = HeaderMap::new();
        let its = ["x-trace", "x-absent", "authorization"].map(HeaderName::from_static);
        selected.copy_to(&its, &mut to);
        assert_eq!(to.len(), 2);
        let trace: Vec<_> = to.get_all("x-trace").iter().collect();
        assert_eq!(trace, ["1", "2"]);
        assert_eq!(selected.sent_names(), ["x-trace"]);
    }
}
